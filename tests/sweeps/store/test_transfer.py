"""Archives of sweeps: read like the sweep itself, and refused if they hold anything else."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pandas as pd
import pytest
from small_sweeps import small_plan, write_sweep

from privnets.membership.config import MembershipConfig
from privnets.points import Replicate
from sweeps.analysis.results import open_result
from sweeps.errors import InputError
from sweeps.store.ledger import Ledger
from sweeps.store.transfer import pack_sweep, unpack_sweep


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    plan = small_plan(tmp_path)

    def replicate_of(config: MembershipConfig, seed: int) -> Replicate:
        metrics = dict.fromkeys(plan.objectives, config.weight_decay)
        return Replicate(seed, metrics, finished_at=1.0)

    ledger = write_sweep(tmp_path / "there", "sweep", plan, replicate_of)
    ledger.write_failure("lost", [("absent", 0)], "r")
    return ledger


def test_an_unpacked_archive_reads_like_the_sweep(ledger: Ledger, tmp_path: Path) -> None:
    archive, again = io.BytesIO(), io.BytesIO()
    pack_sweep(ledger, archive)
    pack_sweep(ledger, again)
    assert again.getvalue() == archive.getvalue()
    unpack_sweep(archive.getvalue(), tmp_path / "here", "sweep")
    there, here = (open_result("sweep", str(tmp_path / name)) for name in ("there", "here"))
    pd.testing.assert_frame_equal(here.points, there.points)
    pd.testing.assert_frame_equal(here.front(all=True), there.front(all=True))
    assert here.failures == there.failures == {"lost": "r"}


@pytest.mark.parametrize(
    "name", ["../spec.yaml", "/etc/x", "ledger/../../x", "other/x", "ledger/.x"]
)
def test_an_archive_with_a_foreign_file_is_refused(name: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(InputError, match="foreign file"):
        unpack_sweep(gzip.compress(buffer.getvalue()), tmp_path / "here", "sweep")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["symlink", "damaged"])
def test_links_and_damaged_archives_are_refused(kind: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        link = tarfile.TarInfo("spec.yaml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    content = gzip.compress(buffer.getvalue())
    with pytest.raises(InputError, match=r"foreign file|damaged"):
        unpack_sweep(content if kind == "symlink" else content[:20], tmp_path / "here", "sweep")


@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(2**40)},
        {"GNU.sparse.size": str(2**40), "GNU.sparse.offset": "0", "GNU.sparse.numbytes": "1"},
        {"size": "-1024"},
        {"size": "9" * 30},
    ],
)
def test_sizes_that_the_archive_does_not_have_are_refused(
    headers: dict[str, str], tmp_path: Path
) -> None:
    """A sparse file could fill the disk, and a negative size repeat a member for ever."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("ledger/a.parquet")
        member.size, member.pax_headers = 1, headers
        archive.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(InputError, match=r"foreign file|damaged"):
        unpack_sweep(gzip.compress(buffer.getvalue()), tmp_path / "here", "sweep")
    assert not list(tmp_path.rglob("*.parquet"))


def test_an_archive_with_any_byte_changed_is_refused_or_read(
    ledger: Ledger, tmp_path: Path
) -> None:
    archive = io.BytesIO()
    pack_sweep(ledger, archive)
    content = archive.getvalue()
    refused = 0
    for place in range(0, len(content), max(1, len(content) // 64)):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        try:
            unpack_sweep(bytes(changed), tmp_path / str(place), "sweep")
        except InputError:
            refused += 1
    assert refused > 32
