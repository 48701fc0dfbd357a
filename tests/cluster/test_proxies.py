"""What is asked of this machine goes through no proxy; of others it may, and that is told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cluster.auth import bypass_proxies_for_loopback


@contextmanager
def refusing() -> Iterator[tuple[str, list[str]]]:
    """A server that refuses everything, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(403)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: standard error is the test's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def status(address: str, proxy: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if "_proxy" not in name.lower()
    }
    own = {"http_proxy": proxy, "HOME": str(home), "RAY_AUTH_TOKEN": "0" * 64}
    return subprocess.run(
        [sys.executable, "-m", "sweeps", "status", "some", "--address", address],
        env={**environment, **own}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_no_proxy_sees_what_is_asked_of_this_machine(tmp_path: Path) -> None:
    with refusing() as (server, heard), refusing() as (proxy, overheard):
        told = status(server, proxy, tmp_path)
    assert (heard, overheard) == (["/api/version"], [])
    assert told.returncode == 2
    assert "rejects the token" in told.stderr
    assert "proxy" not in told.stderr


def test_what_a_proxy_answers_is_told_as_its_own(tmp_path: Path) -> None:
    with refusing() as (proxy, overheard):
        told = status("http://head.invalid:8265", proxy, tmp_path)
    assert overheard == ["http://head.invalid:8265/api/version"]
    assert told.returncode == 2
    assert "NO_PROXY=head.invalid" in told.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, None),
        ({"https_proxy": "http://p"}, "localhost,127.0.0.0/8,127.0.0.1,::1"),
        ({"HTTP_PROXY": "http://p", "NO_PROXY": "a, ::1"}, "a,::1,localhost,127.0.0.0/8,127.0.0.1"),
        ({"http_proxy": "http://p", "no_proxy": "*"}, "*"),
    ],
)
def test_hosts_that_are_spared_already_stay(
    before: dict[str, str], after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "")  # so that it is put back
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    bypass_proxies_for_loopback()
    assert os.environ.get("no_proxy") == after
