"""The client of a job server reports each mistake, and sends the token and nothing else."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from cluster import ConnectError
from cluster.jobs import JobClient
from cluster.submission import JobSpec, build_archive


class Server(ThreadingHTTPServer):
    """Answers everything with one status, and counts."""

    daemon_threads = True

    def __init__(self, status: int) -> None:
        self.status, self.asked = status, 0
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"<html>not what you look for</html>")

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@contextmanager
def server(status: int) -> Iterator[Server]:
    with Server(status) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:8265", "ray://127.0.0.1:10001", "http://", "http://h:x", "http://h:8265/else"],
)
def test_an_address_of_another_form_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ConnectError, match=r"http://HEAD:8265 .* got "):
        JobClient(address)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConnectError) as refused:
        JobClient("http://me:hush@127.0.0.1:8265")
    assert "hush" not in str(refused.value)


def test_an_unreachable_head_is_reported_within_seconds() -> None:
    began = time.monotonic()
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1: .*refused.*an SSH tunnel"):
        JobClient("http://127.0.0.1:1")
    assert time.monotonic() - began < 60


def test_an_unknown_host_is_reported() -> None:
    with pytest.raises(ConnectError, match=r"no Ray job server answers at http://no\.invalid"):
        JobClient("http://no.invalid:8265")


@pytest.mark.parametrize("status", [200, 404, 302])
def test_a_server_of_another_kind_is_recognised(status: int) -> None:
    with server(status) as other, pytest.raises(ConnectError, match="is not a Ray job server"):
        JobClient(f"http://127.0.0.1:{other.server_port}")


def test_a_missing_token_is_reported_with_the_places_for_it() -> None:
    with server(401) as other, pytest.raises(ConnectError) as refused:
        JobClient(f"http://127.0.0.1:{other.server_port}")
    assert "none is set" in str(refused.value)
    assert "RAY_AUTH_TOKEN" in str(refused.value)
    assert "~/.ray/auth_token" in str(refused.value)


def test_a_wrong_token_is_reported_with_its_source_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "hush-hush")
    with server(403) as other, pytest.raises(ConnectError) as refused:
        JobClient(f"http://127.0.0.1:{other.server_port}")
    assert "rejects the token in RAY_AUTH_TOKEN" in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_token_that_others_can_read_is_never_sent(tmp_path: Path) -> None:
    path = tmp_path / ".ray" / "auth_token"
    path.parent.mkdir()
    path.write_text("hush")
    path.chmod(0o644)
    with server(200) as other, pytest.raises(ConnectError, match=f"chmod 600 {path}"):
        JobClient(f"http://127.0.0.1:{other.server_port}")
    assert other.asked == 0


class Recorder(BaseHTTPRequestHandler):
    """Answers as a job server without jobs, and records the credentials of each request."""

    status: ClassVar[int] = 404
    credentials: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.credentials.append(self.headers["Authorization"])
        is_version = self.path == "/api/version"
        body = b'{"ray_version": "2.60.0"}' if is_version else b"no such job"
        self.send_response(200 if is_version else self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a job server for which `~/.netrc` has an account."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password hush\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.delenv("NETRC", raising=False)
    Recorder.credentials.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "is_open"), [(200, True), (302, False), (403, False)])
def test_a_redirect_to_a_login_page_is_not_an_open_server(
    recorder: str, monkeypatch: pytest.MonkeyPatch, status: int, is_open: bool
) -> None:
    monkeypatch.setattr(Recorder, "status", status)
    assert JobClient(recorder).is_open() is is_open


def test_no_account_of_netrc_is_sent(recorder: str) -> None:
    assert JobClient(recorder).find("absent") is None
    assert len(Recorder.credentials) == 2
    assert set(Recorder.credentials) == {None}


def test_each_request_sends_the_current_token(recorder: str, tmp_path: Path) -> None:
    path = tmp_path / ".ray" / "auth_token"
    path.parent.mkdir()
    path.touch(0o600)
    path.write_text("first")
    jobs = JobClient(recorder)
    path.write_text("second")
    before = list(Recorder.credentials)
    jobs.find("absent")
    assert set(before) == {"Bearer first"}
    assert Recorder.credentials[len(before) :] == ["Bearer second"]
    path.chmod(0o644)
    with pytest.raises(ConnectError, match=f"chmod 600 {path}"):
        jobs.find("absent")
    assert len(Recorder.credentials) == len(before) + 1


def test_a_malformed_proxy_is_reported_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://ann:hush@[proxy:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConnectError) as refused:
        JobClient("http://192.0.2.1:8265")
    assert "hush" not in str(refused.value)


def use_proxy(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("no_proxy", "")  # so that it is restored
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")


def test_no_proxy_sees_a_request_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(403) as head, server(403) as proxy:
        use_proxy(monkeypatch, proxy.server_port)
        with pytest.raises(ConnectError) as refused:
            JobClient(f"http://127.0.0.1:{head.server_port}")
    assert (head.asked, proxy.asked) == (1, 0)
    assert "proxy" not in str(refused.value)


def test_the_answer_of_a_proxy_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(403) as proxy:
        use_proxy(monkeypatch, proxy.server_port)
        with pytest.raises(ConnectError, match=r"NO_PROXY=head\.invalid"):
            JobClient("http://head.invalid:8265")
    assert proxy.asked == 1


def test_a_server_without_tls_is_recognised() -> None:
    with (
        server(200) as other,
        pytest.raises(ConnectError, match=r"REQUESTS_CA_BUNDLE.*http://"),
    ):
        JobClient(f"https://127.0.0.1:{other.server_port}")


def test_an_archive_holds_the_packages_their_metadata_and_the_files(tmp_path: Path) -> None:
    spec = JobSpec(
        submission_id="job", arguments=(), packages=("privnets", "cluster"),
        distribution="privnets-sweeps", files={"study.yaml": b"name: x\n"},
    )  # fmt: skip
    content = build_archive(spec)
    assert content == build_archive(spec), "equal content is uploaded once"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path)
    assert {"launch.sh", "study.yaml", "privnets/__init__.py", "cluster/jobs.py"} < set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith("sweeps/")]
    code = (
        "import privnets, importlib.metadata as m; "
        "print(privnets.__file__, m.distribution('privnets-sweeps').read_text('METADATA')[:8])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split()[0] == f"{tmp_path}/privnets/__init__.py"


@pytest.mark.parametrize("path", ["../x", "/x", "launch.sh", "privnets/x.py", "privnets.py"])
def test_a_file_of_a_job_replaces_nothing_and_stays_in_its_directory(path: str) -> None:
    spec = JobSpec(submission_id="j", arguments=(), packages=("privnets",), files={path: b""})
    with pytest.raises(ValueError, match="path of its own"):
        build_archive(spec)
