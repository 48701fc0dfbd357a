"""A tracking server that is none, or means harm: one message, soon; credentials go nowhere else."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support import run_command

import tracking
from tracking import TrackingError

Answer = Callable[[BaseHTTPRequestHandler], None]
SECRET = "hunter2-marked"


@contextmanager
def http_server(
    answer: Answer, host: str = "127.0.0.1"
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Answer every request in one way; gives the address, and the headers of what was asked."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            asked.append({"path": self.path, **{k.lower(): v for k, v in self.headers.items()}})
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                answer(self)
            except OSError:
                self.close_connection = True

        do_GET = do_POST = do_PUT = do_PATCH = do_HEAD = _any

        def log_message(self, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def saying(body: bytes, kind: str = "application/json", code: int = 200, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            **headers,
        }.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    return answer


def after_the_check(answer: Answer) -> Answer:
    """Answers the first look as MLflow would."""

    def both(request: BaseHTTPRequestHandler) -> None:
        if request.path.endswith("experiments/search") and not getattr(both, "looked", False):
            setattr(both, "looked", True)  # noqa: B010
            saying(b'{"experiments": []}')(request)
        else:
            answer(request)

    return both


NONSENSE: dict[str, Any] = {
    "null": None,
    "list": [1, 2],
    "text": "x",
    "number": 3,
    "wrong types": {"experiments": 3, "runs": "x", "experiment": [], "next_page_token": {}},
    "wrong inside": {
        "experiments": [{"experiment_id": {}, "name": 3}],
        "runs": [{"info": 3}],
        "experiment": {"experiment_id": [], "lifecycle_stage": 3},
    },
    "nulls": {"experiments": [None], "runs": [None], "experiment": None},
    "no status": {
        "experiments": [{"experiment_id": "1", "name": "a"}],
        "runs": [
            {
                "info": {"run_id": "r", "status": "NONSENSE", "experiment_id": "1"},
                "data": {"tags": [{"key": "point_id", "value": "p"}]},
            }
        ],
    },
    "half a run": {
        "experiments": [{"experiment_id": "1", "name": "a"}],
        "runs": [{"info": {"run_id": "r", "status": "FINISHED", "experiment_id": "1"}}],
    },
    "bad metrics": {
        "experiments": [{"experiment_id": "1", "name": "a"}],
        "runs": [
            {
                "info": {"run_id": "r", "status": "FINISHED", "experiment_id": "1"},
                "data": {"metrics": [{"key": 3, "value": "x"}], "tags": [{}]},
            }
        ],
    },
}
BODIES = {name: json.dumps(body).encode() for name, body in NONSENSE.items()} | {
    "html": b"<html><body>Sign in</body></html>",
    "empty": b"",
    "broken": b'{"experiments": [',
    "deep": b"[" * 100_000,
    "deep mapping": b'{"a":' * 100_000,
    "bytes": b"\xff\xfe\x00",
    "digits": b"9" * 10_000,
    "huge number": b'{"experiments": [{"experiment_id": "1", "creation_time": '
    + b"9" * 400
    + b"}]}",
    "surrogate": b'{"experiments": [{"experiment_id": "\\ud800", "name": "\\ud800"}]}',
}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", SECRET)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_answers_that_are_none_are_one_tracking_error(body: bytes) -> None:
    """From the first look to the last page; what can be read as nothing holds no such sweep."""
    with http_server(after_the_check(saying(body))) as (uri, _):
        said = [
            _error_message(lambda: tracking.load_points("sweep", uri)),
            _error_message(lambda: tracking.load_points("sweep", uri, "study")),
            _error_message(lambda: tracking.compare([], "sweep", uri)),
        ]
    with http_server(saying(body)) as (uri, _):
        said.append(_error_message(lambda: tracking.check(uri)))
    assert not any(SECRET in one or len(one) > 2500 for one in said)


def _error_message(ask: Callable[[], object]) -> str:
    """The message of its TrackingError; empty where there is none. Anything else is a fault."""
    try:
        ask()
    except TrackingError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_credentials_follow_to_another_host(code: int) -> None:
    with (
        http_server(saying(b"{}"), "127.0.0.2") as (elsewhere, asked),
        http_server(saying(b"", code=code, Location=f"{elsewhere}/take")) as (uri, first),
    ):
        for ask in (lambda: tracking.check(uri), lambda: tracking.load_points("sweep", uri)):
            with pytest.raises(TrackingError) as caught:
                ask()
            assert SECRET not in str(caught.value)
    assert any("authorization" in headers for headers in first)
    assert not any(SECRET in repr(headers) or "authorization" in headers for headers in asked)
    assert asked == []


def test_a_server_cannot_say_how_long_to_wait() -> None:
    with http_server(saying(b"{}", code=429, Retry_After="86400")) as (uri, _):
        began = time.monotonic()
        with pytest.raises(TrackingError):
            tracking.load_points("sweep", uri)
    assert time.monotonic() - began < 150


def test_pages_without_end_are_ended() -> None:
    """Each page says that there is another."""
    page = json.dumps(
        {
            "experiments": [{"experiment_id": "1", "name": "a", "lifecycle_stage": "active"}],
            "runs": [
                {
                    "info": {"run_id": "r", "status": "FINISHED", "experiment_id": "1"},
                    "data": {"tags": [{"key": "kind", "value": "sweep"}]},
                }
            ],
            "next_page_token": "more",
        }
    ).encode()
    with (
        http_server(saying(page)) as (uri, asked),
        pytest.raises(TrackingError, match="does not end"),
    ):
        tracking.load_points("sweep", uri)
    assert len(asked) < 10


def test_a_command_tells_of_a_hostile_server_in_one_line() -> None:
    said = b"\x1b]0;owned\x07<html>\n\n" + SECRET.encode() + b"</html>" * 1000
    with http_server(saying(said, kind="text/html")) as (uri, _):
        ended = run_command("points", "sweep", "--tracking-uri", uri)
    assert ended.exit_code == 2
    assert ended.stderr.startswith("Error: ")
    assert "\x1b" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr) < 2500


@pytest.mark.parametrize(
    "uri",
    [
        "http://[",
        "http://",
        "http://a:99999",
        "https://a:x",
        "http:///x",
        "postgresql://[",
        "sqlite:///a%00b",
        f"sqlite:///{'a' * 300}",
        "sqlite:///\udcff",
    ],
)
def test_an_address_that_cannot_be_is_refused(uri: str) -> None:
    """The smallest that fuzzing found among command lines."""
    with pytest.raises(TrackingError):
        tracking.resolve_uri(uri)


def test_a_database_s_port_that_is_no_number_is_refused() -> None:
    with pytest.raises(TrackingError, match="not the address of a database"):
        tracking.check("postgresql://127.0.0.1:x/y")
