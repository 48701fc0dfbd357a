"""Write access to a sweep's storage gives no code execution, other files or unbounded memory."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from audit_guard import MARK
from hostile_files import (
    kept_ledger,
    objects,
    pack_columns,
    parquet_of,
    pickle_payload,
    point,
    safetensors_with,
    torch_payload,
)
from watched import Watched, run_watched

from sweeps.analysis.results import open_result
from sweeps.engine.executor import new_sweep_name
from sweeps.errors import InputError
from sweeps.report.contents import ReportContents
from sweeps.report.page import render_page
from sweeps.store.checkpoints import Checkpoint
from sweeps.store.codec import PackFileError, decode_table
from sweeps.store.filesystem import absolute_storage
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import choose_tracking_uri, read_manifest
from sweeps.store.reader import read_failures

MEMORY = 6 * 2**30


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return kept_ledger(tmp_path)


def place(ledger: Ledger, name: str) -> Path:
    path = Path(ledger.directory.path, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_stored_files_cannot_run_code(ledger: Ledger, tmp_path: Path) -> None:
    """Pickles of Python, torch and numpy, under every name that a reader opens."""
    sign = tmp_path / "sign"
    kinds = {"pickle": pickle_payload(sign), "torch": torch_payload(sign), "numpy": objects(sign)}
    names = (
        "ledger/{}.parquet",
        "failures/{}.json",
        "checkpoints/{}/state.safetensors",
        "checkpoints/{}/points.parquet",
        "artifacts/kept/0-{}.safetensors",
        "tune/{}.pkl",
        "tune/tuner.pkl",
        "tune/trainable.pkl",
    )
    for kind, content in kinds.items():
        for name in names:
            place(ledger, name.format(kind)).write_bytes(content)
    found = run_watched("stored", tmp_path, "sweep", memory=MEMORY)
    assert found.seen == []
    assert "'kept'" in found.said
    for kind in kinds:
        assert f"{kind}.parquet" in found.said
        assert f"failures/{kind}.json" in found.said
    assert "(0, (), False)" in found.said
    assert not sign.exists()


def test_a_report_runs_no_code_that_a_point_names(ledger: Ledger, tmp_path: Path) -> None:
    """Also where the stored id is not that of the point's configuration."""
    sign = tmp_path / "sign"
    recorded = open_result("recorded:quickstart")
    (whole,) = recorded.select_points([recorded.points["point_id"][0]]).values()
    config = {name: value for name, value in whole.config.items() if name != "dataset"}
    config |= {"dataset.torch": "os:system", "dataset.params.command": f"touch {sign}"}
    ledger.write_pack("named", [replace(whole, config=config)])
    result = open_result("sweep", str(tmp_path))
    assert len(result.points) == 1
    render_page([ReportContents(result)])
    assert not sign.exists()


def test_guard_detects_unpickling(tmp_path: Path) -> None:
    """Without this, the other tests would prove nothing."""
    import subprocess
    import sys

    sign, here = tmp_path / "sign", Path(__file__).parent
    (tmp_path / "victim.py").write_text(
        "import pickle\ndef load(p): return pickle.load(open(p, 'rb'))"
    )
    (tmp_path / "p.pkl").write_bytes(pickle_payload(sign))
    ended = subprocess.run(
        [sys.executable, here / "audit_guard.py", "victim", "load", str(tmp_path / "p.pkl")],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = Watched(**json.loads(ended.stdout.splitlines()[-1]))
    assert sign.read_text().strip() == MARK
    assert any(event.startswith("os.system") for event in found.seen)
    assert any(event.startswith("pickle.find_class") for event in found.seen)


@pytest.mark.parametrize(
    "name", ["ledger/l.parquet", "failures/l.json", "spec.yaml", "checkpoints/l/state.safetensors"]
)
def test_link_to_another_file_is_not_read(ledger: Ledger, tmp_path: Path, name: str) -> None:
    """Read files may be published, so a link would reveal other files of the reader."""
    secret = tmp_path / "secret"
    secret.write_bytes(place(ledger, "ledger/whole.parquet").read_bytes())
    path = place(ledger, name)
    path.unlink(missing_ok=True)
    path.symlink_to(secret)
    if name == "spec.yaml":
        with pytest.raises(InputError, match=r"spec\.yaml cannot be read"):
            read_manifest(ledger)
    elif name.startswith("checkpoints"):
        assert Checkpoint(ledger, "l", "label").load().state is None
    else:
        assert [p.point_id for p in ledger.read_points()] == ["kept"]
        read_failures(ledger, set)
        assert any(entry.endswith(path.name) for entry in ledger.unreadable)


def test_linked_artifact_is_not_read(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"private")
    ledger.write_pack("pack", [point("linked", artifacts={"figure.png": b"x"})])
    stored = place(ledger, "artifacts/linked/0-figure.png")
    stored.unlink()
    stored.symlink_to(tmp_path / "secret")
    (found,) = (p for p in ledger.read_points() if p.point_id == "linked")
    with pytest.raises(OSError, match="figure"):
        _ = found.artifacts["figure.png"]


def test_hard_link_discloses_no_content(ledger: Ledger, tmp_path: Path) -> None:
    """Creating a hard link needs read access to the file."""
    (tmp_path / "secret").write_text("private words")
    os.link(tmp_path / "secret", place(ledger, "ledger/hard.parquet"))
    ledger.read_points()
    assert "hard.parquet" in ledger.unreadable
    assert "private" not in ledger.unreadable["hard.parquet"]


def test_linked_checkpoint_directory_is_not_removed(ledger: Ledger, tmp_path: Path) -> None:
    """Removing an outdated checkpoint must not delete the target of a link."""
    from sweeps.store.checkpoints import checkpointed_packs

    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    place(ledger, "checkpoints/x").symlink_to(other)
    assert checkpointed_packs(ledger) == []
    Checkpoint(ledger, "x", "label").remove()
    assert (other / "thesis.txt").read_text() == "years of work"


def test_pipe_in_the_ledger_does_not_block_readers(ledger: Ledger) -> None:
    os.mkfifo(place(ledger, "ledger/pipe.parquet"))
    os.mkfifo(place(ledger, "failures/pipe.json"))
    done = threading.Event()

    def read() -> None:
        ledger.read_points()
        read_failures(ledger, set)
        done.set()

    threading.Thread(target=read, daemon=True).start()
    assert done.wait(60)


@pytest.mark.parametrize(
    "name",
    [
        "ledger/huge.parquet",
        "failures/huge.json",
        "spec.yaml",
        "checkpoints/huge/state.safetensors",
    ],
)
def test_file_of_a_terabyte_is_not_read(ledger: Ledger, name: str) -> None:
    """A sparse file of that size takes no space on the disk."""
    path = place(ledger, name)
    path.touch()
    os.truncate(path, 2**40)
    began = time.monotonic()
    if name == "spec.yaml":
        with pytest.raises(InputError, match="too long"):
            read_manifest(ledger)
    else:
        assert [p.point_id for p in ledger.read_points()] == ["kept"]
        read_failures(ledger, set)
        assert Checkpoint(ledger, "huge", "label").load().state is None
    assert time.monotonic() - began < 60


NAMES = [
    "../outside",
    "/etc/passwd",
    "a/b",
    "..",
    ".",
    "",
    "C:\\x",
    "a\\b",
    "a\0b",
    "con:",
    "\x1b[31m",
    ".hidden",
    "-rf",
    "a" * 300,
    "λ",
    "a\nb",
]


@pytest.mark.parametrize("name", NAMES)
def test_unsafe_names_are_refused_in_every_column(ledger: Ledger, name: str) -> None:
    as_point = parquet_of(pack_columns(point_id=pa.array([name])))
    as_file = parquet_of(pack_columns(artifacts=pa.array([[name]], pa.list_(pa.string()))))
    for content in (as_point, as_file):
        with pytest.raises(PackFileError):
            decode_table(content)
    with pytest.raises((InputError, ValueError)):
        Ledger("/nowhere", name)


BAD_COLUMNS = {
    "seed of text": {"seed": pa.array(["zero"])},
    "text that is none": {"experiment": pa.array([b"\xff\xfe"])},
    "reason that is none": {"failure": pa.array([b"\xff"])},
    "nested": {"metric/x": pa.array([{"a": 1.0}])},
    "far future": {"finished_at": pa.array([1e300])},
    "before 1970": {"finished_at": pa.array([-1.0])},
    "no time": {"finished_at": pa.array([float("nan")])},
    "half a curve": {"curve_steps/c": pa.array([[1]], pa.list_(pa.int64()))},
    "no number": {"config": pa.array(['{"a": NaN}'])},
    "a huge number": {"config": pa.array(['{"a": ' + "9" * 400 + "}"])},
    "half a character": {"config": pa.array(['{"a": "\\ud800"}'])},
    "half a character in a key": {"notes": pa.array(['{"\\udfff": "a"}'])},
    "nested settings": {"config": pa.array(['{"a": {"b": 1}}'])},
    "deep settings": {"config": pa.array(["[" * 100_000])},
    "unknown column": {"other": pa.array([1])},
}


@pytest.mark.parametrize("changes", BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_invalid_tables_are_skipped_and_reported(
    ledger: Ledger, changes: dict[str, pa.Array]
) -> None:
    columns = pack_columns(**changes)
    place(ledger, "ledger/odd.parquet").write_bytes(_as_text(columns))
    assert [p.point_id for p in ledger.read_points()] == ["kept"]
    assert ledger.finished_replicates() == {("kept", 0)}
    assert set(ledger.unreadable) == {"odd.parquet"}


def _as_text(columns: dict[str, pa.Array]) -> bytes:
    """Returns a table whose text columns hold bytes that are not UTF-8."""
    said = {
        name: pa.Array.from_buffers(pa.string(), len(c), c.buffers())
        if pa.types.is_binary(c.type)
        else c
        for name, c in columns.items()
    }
    return parquet_of(said)


def test_repeated_column_is_refused(ledger: Ledger) -> None:
    columns = pack_columns()
    table = pa.Table.from_arrays([*columns.values(), columns["seed"]], [*columns, "seed"])
    with place(ledger, "ledger/twice.parquet").open("wb") as sink:
        pq.write_table(table, sink)
    assert [p.point_id for p in ledger.read_points()] == ["kept"]
    assert "twice" in ledger.unreadable["twice.parquet"]


def test_a_small_file_that_expands_to_more_than_a_gigabyte_is_refused(
    ledger: Ledger, tmp_path: Path
) -> None:
    zeros = pa.array(np.zeros(2**20))
    bomb = pa.table(pack_columns(2**20) | {f"metric/{n}": zeros for n in range(120)})
    path = place(ledger, "ledger/rows.parquet")
    pq.write_table(bomb, path, store_schema=False)
    assert path.stat().st_size < 2**23
    told = run_watched("ledger", tmp_path, "sweep", memory=MEMORY).said
    assert "'kept'" in told
    assert "too large" in told


def test_a_list_of_many_equal_numbers_is_refused() -> None:
    """It takes a few kilobytes in a file."""
    columns = pack_columns()
    curve = pa.ListArray.from_arrays([0, 2**26], pa.array(np.zeros(2**26)))
    steps = pa.ListArray.from_arrays([0, 2**26], pa.array(np.zeros(2**26, np.int64)))
    sink = pa.BufferOutputStream()
    table = pa.table(columns | {"curve_steps/x": steps, "curve_values/x": curve})
    pq.write_table(table, sink, store_schema=False)
    with pytest.raises(PackFileError, match="too large"):
        decode_table(sink.getvalue().to_pybytes())


def test_manifest_of_another_sweep_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """Otherwise points would be published under the other name."""
    other = kept_ledger(tmp_path, "other")
    place(other, "spec.yaml").write_bytes(place(ledger, "spec.yaml").read_bytes())
    with pytest.raises(InputError, match="is of the sweep 'sweep'"):
        read_manifest(other)


def test_credentials_never_go_to_a_server_that_only_a_file_names(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    manifest = read_manifest(ledger).model_copy(update={"tracking_uri": "http://elsewhere:5000"})
    assert choose_tracking_uri(manifest, None) == "http://elsewhere:5000"
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    with pytest.raises(InputError, match="name it yourself: pass --tracking-uri"):
        choose_tracking_uri(manifest, None)
    assert choose_tracking_uri(manifest, "http://asked") == "http://asked"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:secret@elsewhere:5000/")
    assert choose_tracking_uri(manifest, None) == "http://ann:secret@elsewhere:5000/"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://another:5000")
    with pytest.raises(InputError, match="MLFLOW_TRACKING_PASSWORD"):
        choose_tracking_uri(manifest, None)
    assert choose_tracking_uri(read_manifest(ledger), None) == "sqlite:////x"


SPECS = {
    "tag": "!!python/object/apply:os.system [id]",
    "name": "a: !!python/name:os.system",
    "deep": "[" * 5000,
    "laughs": "a: &a [x]\n"
    + "".join(
        f"{n}: &{n} [{', '.join([f'*{p}'] * 9)}]\n"
        for p, n in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "repeated": "sweep: a\nsweep: b\n",
    "sexagesimal": "a: 1" + ":1" * 400_000,
    "digits": "a: " + "9" * 500_000,
    "no text": 'a: "\\ud800"',
    "no character": 'a: "\\U99999999"',
    "list": "- 1",
    "escape": '"\\e[31mred": 1',
}


@pytest.mark.parametrize("text", SPECS.values(), ids=SPECS)
def test_hostile_manifests_are_refused_quickly(ledger: Ledger, text: str) -> None:
    place(ledger, "spec.yaml").write_text(text)
    began = time.monotonic()
    with pytest.raises(InputError, match=r"spec\.yaml"):
        read_manifest(ledger)
    assert time.monotonic() - began < 60


def test_expanding_aliases_are_refused(ledger: Ledger) -> None:
    """Each alias of a large value would be read as a value of its own."""
    where = ", ".join(f"k{i}: 1" for i in range(10_000))
    claim = f"{{statement: s, metric: m, axis: a, trend: constant, where: {{{where}}}}}"
    many = ", ".join(["*c"] * 10_000)
    place(ledger, "spec.yaml").write_text(f"first: &c {claim}\nstudy: {{claims: [{many}]}}\n")
    with pytest.raises(InputError, match=r"spec\.yaml"):
        read_manifest(ledger)


@pytest.mark.parametrize(
    "remaining",
    [
        "[" * 100_000,
        '[["p", Infinity]]',
        '[["p", 1e999]]',
        '[["p"]]',
        "{}",
        '[[["p"], 0]]',
        "9" * 5000,
    ],
)
def test_invalid_checkpoint_counts_as_absent(ledger: Ledger, remaining: str) -> None:
    header = json.dumps({"__metadata__": {"label": "label", "remaining": remaining}}).encode()
    place(ledger, "checkpoints/x/state.safetensors").write_bytes(safetensors_with(header))
    assert Checkpoint(ledger, "x", "label").replicate_keys() == ()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"members": [["p", Infinity]], "reason": "r"}',
        '{"members": 3, "reason": "r"}',
        "null",
        '{"members": [["p", 1e400]]}',
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_invalid_failure_record_is_reported(ledger: Ledger, text: str) -> None:
    place(ledger, "failures/x.json").write_text(text)
    assert read_failures(ledger, set) == {}
    assert ledger.unreadable == {"failures/x.json": "not a valid failure record"}


def test_impossible_storage_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for storage in (f"{tmp_path}/file", f"{tmp_path}/{'a' * 300}", "~nobody-of-that-name/x"):
        with pytest.raises(InputError):
            open_result("sweep", storage)
        with pytest.raises(InputError):
            new_sweep_name(absolute_storage(storage), "study")
