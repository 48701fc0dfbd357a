"""Each reason why a Ray cannot be joined is reported within seconds, with its remedy."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

import cluster

CERTIFICATES = Path(cluster.__file__).parent / "deploy" / "tls" / "certificates.sh"


@pytest.fixture(autouse=True)
def _no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run([CERTIFICATES, folder, "127.0.0.1"], check=True, capture_output=True)
    return folder / "127.0.0.1"


@contextmanager
def listening(context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that accepts a connection and closes it, as one of another protocol does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer, args=(listener, context))
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _answer(listener: socket.socket, context: ssl.SSLContext | None) -> None:
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        try:
            if context is None:
                with caller:
                    caller.recv(1)
                    caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            else:
                with context.wrap_socket(caller, server_side=True) as spoken:
                    spoken.recv(1)
        except OSError:
            caller.close()


class Head:
    """A server that answers a probe as the head of a Ray does."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        calls = {"CheckAlive": grpc.unary_unary_rpc_method_handler(self._answer)}
        self._server = grpc.server(ThreadPoolExecutor(1))
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("ray.rpc.NodeInfoGcsService", calls)]
        )
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def _answer(self, request: bytes, context: object) -> bytes:
        self.asked.set()
        return b""

    def stop(self) -> None:
        self._server.stop(0.5).wait()


@contextmanager
def answering() -> Iterator[tuple[str, Head]]:
    head = Head()
    try:
        yield f"127.0.0.1:{head.port}", head
    finally:
        head.stop()


def tls(folder: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return made


def refusal(address: str) -> str:
    began = time.monotonic()
    with pytest.raises(cluster.ConnectError) as refused:
        cluster.check_address(address)
    assert time.monotonic() - began < 120
    return str(refused.value)


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with answering() as (address, _):
        cluster.check_address(address)


@pytest.mark.parametrize("address", ["http://127.0.0.1:8265", "ray://192.0.2.1:10001"])
def test_an_address_of_another_server_of_the_cluster_is_refused(address: str) -> None:
    assert "the job server at" in refusal(address)


def test_an_address_of_ipv6_needs_brackets() -> None:
    assert "must be [HOST]:PORT" in refusal("::1:6379")


@pytest.mark.parametrize("mode", ["off", "k8s", " token"])
def test_an_unknown_mode_is_refused(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would turn authentication off."""
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    assert f"got {mode!r}" in refusal("127.0.0.1:1")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "host:port", "127.0.0.1:99999"])
def test_an_address_without_a_ray_fails_within_seconds(address: str) -> None:
    assert address in refusal(address)


@pytest.mark.parametrize("server_uses_tls", [False, True])
def test_a_server_of_another_kind_or_with_tls_is_recognised(
    server_uses_tls: bool, certificates: Path
) -> None:
    with listening(tls(certificates) if server_uses_tls else None) as address:
        message = refusal(address)
    assert "is not the head of a Ray" in message
    assert "set RAY_USE_TLS" in message


def test_the_files_of_tls_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with listening() as address:
        assert "RAY_TLS_CA_CERT" in refusal(address)


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(cluster.ConnectError, match="does not answer"):
            cluster.check_address(address)


_JOIN = """
import sys
import cluster
try:
    cluster.connect(sys.argv[1])
except cluster.ConnectError as error:
    print("failed:", error, file=sys.stderr)
"""


@contextmanager
def joining_a_head_that_ends() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A head that accepts the probe of a driver, and ends before Ray connects."""
    with answering() as (address, head):
        command = [sys.executable, "-c", _JOIN, address]
        joining = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert head.asked.wait(60)
            head.stop()
            yield address, joining
        finally:
            joining.kill()
            joining.communicate()


@pytest.mark.slow
def test_joining_a_head_that_ended_fails() -> None:
    with joining_a_head_that_ends() as (address, joining):
        _, said = joining.communicate(timeout=300)
    assert f"failed: cannot join the Ray at {address}" in said
