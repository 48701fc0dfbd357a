import hashlib
import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import add_data_set

from privnets import data
from privnets.data import DataError
from privnets.data.files import DataFile, DatasetInfo
from privnets.data.transfer import Report

CONTENTS = {"a.csv": bytes(range(256)) * 1_000, "b.csv": b"second\n" * 10}


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENTS: whole under /good, changed under /bad, and cut off in three ways."""

    def do_GET(self) -> None:
        _, manner, name = self.path.split("/")
        body = CONTENTS[name]
        if manner == "missing":
            self.send_error(404)
            return
        if manner == "bad":
            body = body[:-1] + b"?"
        if manner == "short":
            body = body[: len(body) // 2]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if manner in {"broken", "stalled"}:
            body = body[: len(body) // 2]
        self.wfile.write(body)
        if manner == "stalled":
            self.wfile.flush()
            self.server.released.wait(30)  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[str]:
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(variable, "127.0.0.1")
    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.released = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.released.set()  # type: ignore[attr-defined]
    listening.shutdown()
    thread.join()
    listening.server_close()


Download = Callable[..., list[Path]]


@pytest.fixture
def download(monkeypatch: pytest.MonkeyPatch) -> Download:
    """Fetches a data set into a data directory."""

    def fetch(info: DatasetInfo, root: Path, report: Report | None = None) -> list[Path]:
        add_data_set(monkeypatch, info, root)
        return data.fetch(info.name, report)

    return fetch


def make_dataset(base: str, *manners: str) -> DatasetInfo:
    """A catalog entry whose files are served in these manners."""
    files = tuple(
        DataFile(name, f"{base}/{manner}/{name}", len(body), hashlib.sha256(body).hexdigest())
        for (name, body), manner in zip(CONTENTS.items(), manners, strict=True)
    )
    return DatasetInfo("small", "Small", 9, 1, "regression", 0, "here", "CC0", "nobody", files)


def test_files_arrive_whole_in_the_data_sets_folder(server, download, tmp_path):
    root = tmp_path / "new" / "data"
    paths = download(make_dataset(server, "good", "good"), root)
    assert paths == [root / "small" / name for name in CONTENTS]
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert [path.name for path in root.iterdir()] == ["small"]


def test_progress_is_reported_in_bytes_up_to_the_size(server, download, tmp_path):
    told: dict[str, list[tuple[int, int]]] = {}
    download(
        make_dataset(server, "good", "good"),
        tmp_path,
        lambda file, done, total: told.setdefault(file, []).append((done, total)),
    )
    for name, body in CONTENTS.items():
        assert {total for _, total in told[name]} == {len(body)}
        steps = [done for done, _ in told[name]]
        assert steps == sorted(steps)
        assert steps[-1] == len(body)


def test_intact_files_are_not_fetched_again(server, download, tmp_path):
    download(make_dataset(server, "good", "good"), tmp_path)
    before = (tmp_path / "small" / "a.csv").stat().st_mtime_ns
    assert len(download(make_dataset(server, "missing", "missing"), tmp_path)) == 2
    assert (tmp_path / "small" / "a.csv").stat().st_mtime_ns == before


def test_an_altered_file_is_replaced_and_the_intact_one_stays(server, download, tmp_path):
    download(make_dataset(server, "good", "good"), tmp_path)
    os.truncate(tmp_path / "small" / "b.csv", 3)
    download(make_dataset(server, "missing", "good"), tmp_path)
    assert (tmp_path / "small" / "b.csv").read_bytes() == CONTENTS["b.csv"]


@pytest.mark.parametrize(
    ("manner", "message"),
    [
        ("bad", r"/bad/b.csv is not the published file: b.csv is altered \(sha256"),
        ("short", r"b.csv is truncated \(35 bytes, expected 70\)"),
        ("broken", r"cannot download b.csv from http://.*/broken/b.csv"),
        ("missing", r"cannot download b.csv .*404"),
    ],
)
def test_a_file_other_than_the_published_one_is_not_stored(
    server, download, tmp_path, manner, message
):
    with pytest.raises(DataError, match=message) as caught:
        download(make_dataset(server, "good", manner), tmp_path)
    assert "Nothing was changed" in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_a_failed_fetch_keeps_existing_files(server, download, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "a.csv").write_bytes(b"old")
    with pytest.raises(DataError, match=r"b\.csv"):
        download(make_dataset(server, "good", "bad"), tmp_path)
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("a.csv", b"old")]


def test_without_a_network_the_message_says_where_to_copy_the_file(server, download, tmp_path):
    closed = replace(
        make_dataset(server, "good", "good"),
        files=tuple(
            replace(file, url=f"http://127.0.0.1:1/{file.name}")
            for file in make_dataset(server, "good", "good").files
        ),
    )
    with pytest.raises(DataError, match=r"cannot download a.csv from http://127.0.0.1:1/a") as e:
        download(closed, tmp_path)
    assert f"copy the published file to {tmp_path / 'small' / 'a.csv'}" in str(e.value)
    assert not any(tmp_path.iterdir())


def test_a_directory_that_is_not_writable_is_reported(server, download, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        DataError, match=r"cannot store data set 'small' in .*small: .*Set PRIVNETS_DATA to"
    ):
        download(make_dataset(server, "good", "good"), tmp_path / "file" / "data")


def test_a_killed_fetch_leaves_no_half_written_file(server, download, tmp_path):
    script = (
        "from privnets import data\n"
        "from privnets.data.files import DataFile, DatasetInfo\n"
        "class Small(data.DataSource):\n"
        f"    info = {make_dataset(server, 'good', 'stalled')!r}\n"
        "data.DATASETS._loaded['small'] = Small()\n"
        "data.fetch('small')\n"
    )
    environment = {**os.environ, "PRIVNETS_DATA": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment)
    deadline = time.monotonic() + 240
    while not is_arriving(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert is_arriving(tmp_path)
    assert not (tmp_path / "small").exists()
    download(make_dataset(server, "good", "good"), tmp_path)
    assert (tmp_path / "small" / "b.csv").read_bytes() == CONTENTS["b.csv"]


def is_arriving(root: Path) -> bool:
    """Whether the second file, which stalls, is on its way."""
    return any(root.glob(".fetch-*/b.csv"))
