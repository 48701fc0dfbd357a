"""Data sets' files, archives and the cache beside them: read or refused, whatever they hold."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socketserver
import tarfile
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hostile_files import objects, pickle_payload, tar_of, torch_payload, zip_of
from watched import run_watched

from privnets.data import DataError, adult, eco_files, fetch, location30
from privnets.data.files import DataFile, DatasetInfo
from tests.support import add_data_set

TABLE = b'"1",0,1\n"30",1,0\n'
ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, "
    "Male, 2174, 0, 40, United-States, <=50K\n"
)
MEMORY = 4 * 2**30


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def bomb(size: int) -> bytes:
    """Returns compressed zeros, whose checksum is wrong: a reader of all of them reports that."""
    deflate = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    part = deflate.compress(bytes(2**20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10] + part * (size >> 20) + deflate.flush() + bytes(8)


def test_no_file_of_a_data_set_runs_code(tmp_path: Path) -> None:
    sign, folder = tmp_path / "sign", tmp_path / "files"
    folder.mkdir()
    payloads = (
        pickle_payload(sign),
        torch_payload(sign),
        objects(sign),
        zip_of("x", pickle_payload(sign)),
    )
    for number, content in enumerate(payloads):
        (folder / f"adult.{number}").write_bytes(content)
        (folder / f"cache.{number}").write_bytes(hashlib.sha256(content).digest() + content)
        for dataset in ("location30", "mnist", "eco_aggregated"):
            (folder / f"{dataset}.{number}").write_bytes(gzip.compress(content))
    found = run_watched("datasets", folder)
    assert found.seen == []
    for name, said in json.loads(found.said).items():
        # A forged file with a right digest may fail as it likes: nobody else writes the cache.
        assert name.startswith("cache") or said.startswith("DataError")
    assert not sign.exists()


CLIMBING = {
    "link": [(member("bangkok", tarfile.SYMTYPE, "/etc/passwd"), b"")],
    "hard link": [(member("bangkok", tarfile.LNKTYPE, "/etc/passwd"), b"")],
    "hard link inside": [(member("x"), TABLE), (member("bangkok", tarfile.LNKTYPE, "x"), b"")],
    "device": [(member("bangkok", tarfile.CHRTYPE), b"")],
    "pipe": [(member("bangkok", tarfile.FIFOTYPE), b"")],
    "directory": [(member("bangkok", tarfile.DIRTYPE), b"")],
    "climbing": [(member("../bangkok"), TABLE), (member("/tmp/bangkok"), TABLE)],
    "windows": [(member("..\\bangkok"), TABLE), (member("C:\\bangkok"), TABLE)],
    "none": [],
}


@pytest.mark.parametrize("members", CLIMBING.values(), ids=CLIMBING)
def test_archives_with_links_and_escaping_members_are_refused(
    members: list[tuple[tarfile.TarInfo, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no regular file"):
        location30.parse(gzip.compress(tar_of(*members)))
    assert list(tmp_path.iterdir()) == []


def test_a_compressed_gigabyte_takes_no_memory(tmp_path: Path) -> None:
    content = bomb(2**30)
    assert len(content) < 2 * 2**20
    for dataset in ("location30", "mnist", "eco_aggregated"):
        (tmp_path / dataset).write_bytes(content)
    found = json.loads(run_watched("datasets", tmp_path, memory=MEMORY).said)
    assert all(said.startswith("DataError") and "unpacks to" in said for said in found.values())


def test_a_large_sparse_member_is_refused() -> None:
    head = member("bangkok", tarfile.GNUTYPE_SPARSE)
    with pytest.raises(DataError):
        location30.parse(gzip.compress(tar_of((head, TABLE))))


@pytest.mark.parametrize(
    "text",
    [
        "a,b,c\n",
        ROW.replace("39", "old"),
        ROW.replace("39", "nan"),
        ROW.replace("39", "1e999"),
        ROW.replace("<=50K", "rich"),
        '"' + "x" * 200_000 + "\n",
        "",
        "\x00" * 20,
        ROW.rstrip() + ",x",
    ],
)
def test_an_invalid_adult_file_is_refused(text: str) -> None:
    with pytest.raises(DataError) as caught:
        adult.parse(text, "")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "table",
    [
        b"",
        b"1\n2\n",
        b"0,1\n",
        b"31,1\n",
        b"1,2\n",
        b"1,x\n",
        b"1,1\n1\n",
        b"9" * 40 + b",1\n",
        b"nan,1\n",
        b"\xff,1\n",
    ],
)
def test_an_invalid_location30_table_is_refused(table: bytes) -> None:
    with pytest.raises(DataError, match="bangkok"):
        location30.parse(gzip.compress(tar_of((member("bangkok"), table))))


def test_pipes_and_huge_files_are_refused_at_once(tmp_path: Path) -> None:
    pipe, huge = tmp_path / "2012-07-01.csv", tmp_path / "02_winter.csv"
    os.mkfifo(pipe)
    huge.touch()
    os.truncate(huge, 2**40)
    with pytest.raises(DataError, match="not a regular file"):
        eco_files.meter_day(pipe)
    with pytest.raises(DataError, match="more than"):
        list(eco_files.occupancy_days(huge))


class _Endless(BaseHTTPRequestHandler):
    sent = 0

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(2**14):
                self.wfile.write(bytes(2**16))
                type(self).sent += 2**16
        except OSError:
            return

    def log_message(self, *args: object) -> None:
        """Nothing."""


@contextmanager
def http_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    socketserver.TCPServer.allow_reuse_address = True
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_endless_download_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server(_Endless) as address:
        file = DataFile("a.csv", f"{address}/a.csv", 10, "0" * 64)
        info = DatasetInfo("small", "Small", 1, 1, "binary", 2, "s", "l", "c", (file,))
        add_data_set(monkeypatch, info, tmp_path)
        began = time.monotonic()
        with pytest.raises(DataError, match="more than 10 bytes"):
            fetch("small")
    assert time.monotonic() - began < 240
    assert _Endless.sent < 2**27
    assert not any(tmp_path.iterdir())
