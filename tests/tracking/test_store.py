"""A store is one absolute place, made once, and says soon when it cannot be used."""

from __future__ import annotations

import http.server
import itertools
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import mlflow
import pytest
from made_points import made_points
from mlflow import MlflowClient
from mlflow_server import free_port
from stores import new_store

import tracking
from privnets.credentials import redact, strip_credentials
from privnets.points import Replicate, TradeoffPoint
from tracking import TrackingError, resolve_uri
from tracking.client import connect, translate_errors


def test_the_default_is_a_file_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_uri() == f"sqlite:///{tmp_path}/mlflow.db"


def test_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000/")
    assert resolve_uri() == "http://127.0.0.1:5000"


def test_a_relative_file_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_uri("sqlite:///a b/x.db") == f"sqlite:///{tmp_path}/a b/x.db"
    assert resolve_uri("sqlite:///a%20b/x.db") == f"sqlite:///{tmp_path}/a b/x.db"


@pytest.mark.parametrize(
    "uri",
    [
        "file:///tmp/mlruns",
        "./mlruns",
        "mlflow.db",
        "ftp://host",
        "sqlite://",
        "sqlite:///:memory:",
    ],
)
def test_other_schemes_are_refused(uri: str) -> None:
    with pytest.raises(TrackingError, match="sqlite:///"):
        resolve_uri(uri)


def test_a_path_with_escapes_is_refused() -> None:
    with pytest.raises(TrackingError, match="free of %"):
        resolve_uri("sqlite:////data/100%25/mlflow.db")


@pytest.mark.parametrize(
    "text",
    [
        "http://ann:hunter2@host:5000/path",
        "API request to https://ann:hunter2@host failed, see 'https://ann:hunter2@host/x'.",
        "postgresql+psycopg2://ann:p@ss/hunter2@host/db",
        "postgresql://host/db?user=ann&password=hunter2",
        "http://hunter2@host",
        "s3://AKIA1:hunter2/hunter2+x@host/path?region=eu",
        "abfs://files@host/path?account_key=hunter2",
        "abfs://files@host/path?sig=hunter2&x=1",
    ],
)
def test_messages_never_hold_credentials(text: str) -> None:
    shown = redact(text)
    assert "hunter2" not in shown
    assert "host" in shown


@pytest.mark.parametrize(
    ("uri", "clean"),
    [
        ("postgresql://u:p@host:5432/db?password=x", "postgresql://host:5432/db"),
        (
            "postgresql+psycopg2://u:p/w?d@host/db?user=u&sslmode=require&connect_timeout=3&pwd=x",
            "postgresql+psycopg2://host/db?sslmode=require&connect_timeout=3",
        ),
        ("postgresql://host/db?sslkey=/a/key.pem", "postgresql://host/db?sslkey=/a/key.pem"),
        ("https://host/path", "https://host/path"),
        ("http://token@host:80/", "http://host:80/"),
        ("sqlite:////tmp/an@odd/mlflow.db?timeout=9", "sqlite:////tmp/an@odd/mlflow.db?timeout=9"),
    ],
)
def test_credentials_are_left_out_and_nothing_else(uri: str, clean: str) -> None:
    assert strip_credentials(uri) == clean


def test_a_traceback_holds_no_credentials_either() -> None:
    """A cause that would show them is left out."""
    with (
        pytest.raises(TrackingError) as caught,
        translate_errors("http://ann:hunter2@host"),
    ):
        raise OSError("no route to http://ann:hunter2@host")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_check_accepts_a_store_that_works(uri: str) -> None:
    tracking.check(uri)


def test_check_writes_nothing(tmp_path: Path) -> None:
    tracking.check(f"sqlite:///{tmp_path}/new/mlflow.db")
    assert list(tmp_path.iterdir()) == []


ADVICE = "; start it, or leave --tracking-uri out and publish later with `sweeps sync`."


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections, and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_check_says_soon_that_no_server_answers() -> None:
    port, start = free_port(), time.monotonic()
    with pytest.raises(TrackingError) as caught:
        tracking.check(f"http://ann:hunter2@127.0.0.1:{port}")
    server = f"http://***@127.0.0.1:{port}"
    assert str(caught.value) == f"no MLflow server answers at {server} (Connection refused){ADVICE}"
    assert time.monotonic() - start < 90


def test_check_says_soon_that_a_server_is_silent(silent: int) -> None:
    start = time.monotonic()
    with pytest.raises(TrackingError) as caught:
        tracking.check(f"http://127.0.0.1:{silent}")
    server = f"http://127.0.0.1:{silent}"
    assert str(caught.value) == f"no MLflow server answers at {server} (timed out){ADVICE}"
    assert time.monotonic() - start < 90


def test_check_says_that_a_host_does_not_exist() -> None:
    """The name is reserved and never exists (RFC 2606)."""
    with pytest.raises(TrackingError) as caught:
        tracking.check("http://server.invalid:5000")
    assert str(caught.value).startswith("no MLflow server answers at http://server.invalid:5000 (")


def test_recording_says_that_no_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackingError, match=r"^no MLflow server answers .*\(Connection refused\);"):
        tracking.record(made_points(1), sweep="s", tracking_uri=f"http://127.0.0.1:{free_port()}")


def test_check_refuses_an_unreachable_database_soon() -> None:
    start = time.monotonic()
    with pytest.raises(TrackingError, match=r"127\.0\.0\.1") as caught:
        tracking.check(f"postgresql+psycopg2://ann:hunter2@127.0.0.1:{free_port()}/runs")
    assert "hunter2" not in str(caught.value)
    assert time.monotonic() - start < 90


def test_check_refuses_a_missing_database_driver() -> None:
    with pytest.raises(TrackingError, match="pg8000"):
        tracking.check("postgresql+pg8000://127.0.0.1/runs")


def test_check_refuses_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    file.write_text("not at all a database")
    with pytest.raises(TrackingError, match="file is not a database"):
        tracking.check(f"sqlite:///{file}")


def test_check_refuses_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrackingError, match="not a writable directory"):
        tracking.check(f"sqlite:///{tmp_path}/file/mlflow.db")


class _Answer(http.server.BaseHTTPRequestHandler):
    """Answers every request as the server's `answer` says."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        self.server.caller = self.headers["Authorization"]  # type: ignore[attr-defined]
        status, body = self.server.answer  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[http.server.HTTPServer]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, b"<html>some other service"), "not in a valid JSON format"),
        ((404, b"gone"), "404"),
        ((503, b"overloaded"), "does not answer as an MLflow server: too many 503"),
        (
            (401, b"who are you"),
            r"rejects the credentials \(401\); set MLFLOW_TRACKING_USERNAME and .*PASSWORD",
        ),
        ((403, b"not you"), "rejects the credentials .*MLFLOW_TRACKING_USERNAME and .*PASSWORD"),
        ((403, b"Invalid Host header"), "--allowed-hosts"),
    ],
)
def test_check_refuses_other_servers(
    web: http.server.HTTPServer, answer: tuple[int, bytes], message: str
) -> None:
    web.answer = answer  # type: ignore[attr-defined]
    with pytest.raises(TrackingError, match=message):
        tracking.check(f"http://127.0.0.1:{web.server_port}")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            (401, b"who are you"),
            r"rejects the credentials \(401\); set MLFLOW_TRACKING_USERNAME and .*PASSWORD",
        ),
        ((403, b"not you"), "rejects the credentials .*MLFLOW_TRACKING_USERNAME and .*PASSWORD"),
        ((503, b"overloaded"), "does not answer as an MLflow server: too many 503 error responses"),
        ((400, b"a reason of its own"), "a reason of its own"),
    ],
)
def test_recording_says_why_a_server_refuses(
    web: http.server.HTTPServer,
    answer: tuple[int, bytes],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server may also refuse after the check."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    web.answer = answer  # type: ignore[attr-defined]
    with pytest.raises(TrackingError, match=message):
        tracking.record(
            made_points(1), sweep="s", tracking_uri=f"http://127.0.0.1:{web.server_port}"
        )


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    uri = new_store(tmp_path)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = 'another'")
    with pytest.raises(TrackingError, match="another"):
        tracking.load_points("s", uri)


def test_stores_are_checked_without_loading_mlflow(tmp_path: Path) -> None:
    checks = [
        f"tracking.check({uri!r})" for uri in (f"sqlite:///{tmp_path}/no.db", new_store(tmp_path))
    ]
    code = f"import sys, tracking; {'; '.join(checks)}; print('mlflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_store_deleted_between_two_recordings_is_created_again(tmp_path: Path) -> None:
    """As in a notebook; connections to the deleted file would fail."""
    uri = new_store(tmp_path)
    tracking.record(made_points(1), sweep="first", tracking_uri=uri)
    (tmp_path / "mlflow.db").unlink()
    tracking.record(made_points(2), sweep="second", tracking_uri=uri)
    assert len(tracking.load_points("second", uri)) == 2
    with pytest.raises(TrackingError, match="'first'"):
        tracking.load_points("first", uri)


def test_files_reach_a_server_without_a_change_of_the_process_s_own_uri(
    server_uri: str, sweep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    before = mlflow.get_tracking_uri()
    point = TradeoffPoint("a", "membership", {}, (Replicate(0, {}, artifacts={"a.txt": b"x"}),))
    tracking.record([point], sweep=sweep, tracking_uri=server_uri)
    assert mlflow.get_tracking_uri() == before
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_a_check_leaves_variables_that_another_thread_sets_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SET_MEANWHILE", raising=False)
    monkeypatch.setattr(
        MlflowClient, "search_experiments", lambda *_, **__: monkeypatch.setenv("SET_MEANWHILE", "")
    )
    tracking.check("http://127.0.0.1:1")
    assert "SET_MEANWHILE" in os.environ


def test_connections_at_once_leave_no_variable(
    sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one begins while the first one is in progress, and ends later."""
    tracking.create(sqlite_uri)
    both, numbers = threading.Barrier(2), itertools.count()

    def slow_client(uri: str) -> None:
        number = next(numbers)
        with suppress(threading.BrokenBarrierError):
            both.wait(1.0)
        time.sleep(0.3 * number)

    monkeypatch.setattr("tracking.client.MlflowClient", slow_client)
    threads = [threading.Thread(target=connect, args=(sqlite_uri,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "MLFLOW_SQLALCHEMYSTORE_POOLCLASS" not in os.environ


def test_nothing_is_created_by_reading(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="no tracking store"):
        tracking.load_points("s", f"sqlite:///{tmp_path}/mlflow.db")
    assert list(tmp_path.iterdir()) == []


def test_artifacts_lie_beside_the_database(
    sqlite_uri: str, sweep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working directory of the recording process does not matter."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    tracking.record(made_points(1), sweep=sweep, tracking_uri=sqlite_uri)
    folder = Path(sqlite_uri.removeprefix("sqlite:///")).parent
    assert (folder / "mlruns" / sweep).is_dir()
    assert not [path for path in elsewhere.rglob("*") if path.is_file()]


@pytest.mark.parametrize("meant", [False, True])
def test_an_account_of_a_netrc_file_is_sent_only_if_that_is_named(
    web: http.server.HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meant: bool
) -> None:
    """It would go before the one that was given."""
    file = tmp_path / ".netrc"
    file.write_text("machine 127.0.0.1 login ann password hunter2\n")
    file.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "given")
    monkeypatch.delenv("NETRC", raising=False)
    if meant:
        monkeypatch.setenv("NETRC", str(file))
    web.answer = (401, b"")  # type: ignore[attr-defined]
    with pytest.raises(TrackingError, match="rejects the credentials"):
        tracking.check(f"http://127.0.0.1:{web.server_port}")
    assert (web.caller == "Bearer given") == (not meant)  # type: ignore[attr-defined]
