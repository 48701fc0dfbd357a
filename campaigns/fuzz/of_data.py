"""Data sets' files, as their parsers get them once their digests have been compared."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from campaigns.fuzz.edits import Strategy, edited_inputs
from campaigns.fuzz.targets import Target
from privnets.data import (
    DataError,
    eco_files,
)
from privnets.data import adult as census
from privnets.data import (
    location30 as location,
)
from privnets.data import (
    mnist as idx,
)

_NUMBERS = (b"nan", b"inf", b"-1", b"1e400", b"1e308", b"", b"0x10", b"1_0", b"9" * 30, b"\xc2\xb2")
_MARKS = (b",", b"\n", b"\r", b'"', b'""', b"|", b"\x00", b".", b"?", b" ")


def adult(folder: Path) -> Target:
    """adult.data and adult.test, with a form feed between them."""
    row = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, "
    row += "Male, 2174, 0, 40, United-States, <=50K"
    test = row.replace("39", "25").replace("<=50K", ">50K.")
    corpus = [f"{row}\n{row}\n\n\f|1x3 Cross validator\n{test}\n\n".encode()]

    def read(content: bytes) -> bool:
        train, _, rest = content.decode("ascii", errors="replace").partition("\f")
        x, y = census.parse(train, rest)
        assert x.shape == (len(y), 14)
        assert np.isfinite(x).all()
        return True

    return _target("adult", folder, read, corpus, (*_NUMBERS, *_MARKS, b">50K", b"\f"))


def location30(folder: Path) -> Target:
    """The gzipped tar: bytes of the archive, or of the tar in it, or of the table in that."""
    table = b'"1",0,1,0\n"30",1,1,1\n"2",0,0,0\n'
    archives = [_tar("bangkok", table), _tar("other", table)]
    packed = [gzip.compress(archive, mtime=0) for archive in archives]

    def read(content: bytes) -> bool:
        x, y = location.parse(content)
        assert set(np.unique(x)) <= {0.0, 1.0}
        assert ((y >= 0) & (y < 30)).all()
        return True

    def inputs() -> Strategy:
        words = (
            b"bangkok",
            b"ustar\x00",
            b"../../etc/passwd",
            b"1",
            b"2",
            b"L",
            b"K",
            b"x",
            b"g",
            b"S",
        )
        inside = edited_inputs(archives, words).map(lambda tar: gzip.compress(tar, 1, mtime=0))
        rows = edited_inputs([table], (*_NUMBERS, *_MARKS)).map(
            lambda made: gzip.compress(_tar("bangkok", made), 1, mtime=0)
        )
        return edited_inputs(packed) | inside | rows

    return Target("location30", folder, _guard(read), lambda: packed, inputs)


def mnist(folder: Path) -> Target:
    """A gzipped idx file of three images of 4 x 4 pixels."""
    body = bytes((0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 4)) + bytes(range(48))
    corpus = [gzip.compress(body, mtime=0)]

    def read(content: bytes) -> bool:
        return idx.parse(content, "images.gz", (3, 4, 4)).shape == (3, 4, 4)

    def inputs() -> Strategy:
        return edited_inputs(corpus) | edited_inputs([body]).map(
            lambda made: gzip.compress(made, 1, mtime=0)
        )

    return Target("mnist", folder, _guard(read), lambda: corpus, inputs)


def eco_aggregated(folder: Path) -> Target:
    """The aggregated household: bytes of the gzip file, or of the text in it."""
    lines = [
        f"2012-06-0{d} {h:02d}:{m:02d}:00,{100 * h + m},0,{h % 2}"
        for d in (1, 2)
        for h in range(24)
        for m in (0, 15, 30, 45)
    ]
    text = ("time,power_w,temperature,occupancy\n" + "\n".join(lines) + "\n").encode()
    corpus = [gzip.compress(text, mtime=0)]

    def read(content: bytes) -> bool:
        found = eco_files.parse_aggregated(content)
        assert np.isfinite(found.watt_seconds).all()
        return True

    def inputs() -> Strategy:
        words = (
            *_NUMBERS,
            *_MARKS,
            b"0001-01-01 00:00:00",
            b"9999-12-31T23:45",
            b"+00:00",
            b"time",
        )
        inside = edited_inputs([text], words).map(lambda made: gzip.compress(made, 1, mtime=0))
        return edited_inputs(corpus) | inside

    return Target("eco_aggregated", folder, _guard(read), lambda: corpus, inputs)


def eco_published(folder: Path) -> Target:
    """A day of power and one of occupancy, in files as the authors publish them."""
    day = b"2012-07-01"
    meter = b"\n".join([b"1" + b",0" * 15] * 86_400)
    labels = b"," + b",".join(b"%d" % s for s in range(86_400)) + b"\n01-Jul-2012" + b",1" * 86_400
    corpus = [meter + b"\f" + labels, b"\f".join((meter[:320], labels[:900]))]

    def read(content: bytes) -> bool:
        power, _, recorded = content.partition(b"\f")
        place = folder / "02_sm_csv"
        place.mkdir(exist_ok=True)
        (place / f"{day.decode()}.csv").write_bytes(power)
        (folder / "02_summer.csv").write_bytes(recorded)
        households = eco_files.find_published(folder)
        found = eco_files.read_published(2, households[2])
        assert np.isfinite(found.watt_seconds).all()
        return True

    def inputs() -> Strategy:
        words = (*_NUMBERS, *_MARKS, b"\f", b"31-Feb-2012", b"01-Jul-2012", b"01-Jul-0000")
        return edited_inputs(corpus[1:], words) | edited_inputs(corpus, words)

    return Target("eco_published", folder, _guard(read), lambda: corpus, inputs)


def _target(
    name: str,
    folder: Path,
    read: Callable[[bytes], bool],
    corpus: list[bytes],
    words: tuple[bytes, ...],
) -> Target:
    return Target(name, folder, _guard(read), lambda: corpus, lambda: edited_inputs(corpus, words))


def _guard(read: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    def refused_in_order(content: bytes) -> bool:
        try:
            return read(content)
        except DataError as error:
            said = str(error)
        assert len(said) < 2000
        return False

    return refused_in_order


def _tar(name: str, content: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT) as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../outside"
        archive.addfile(link)
    return sink.getvalue()
