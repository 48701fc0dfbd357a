"""A Ray that does not let somebody in is told from one that does, within seconds and with words."""

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
def _nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At home the owner's token may be readable by others."""
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
    """Something that takes a call and ends it, as a server does that understands no word of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer, args=(listener, context))
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
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


def tls(folder: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return made


def use_tls(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    for name, file in (
        ("SERVER_CERT", "tls.crt"),
        ("SERVER_KEY", "tls.key"),
        ("CA_CERT", "ca.crt"),
    ):
        monkeypatch.setenv(f"RAY_TLS_{name}", str(folder / file))


def refusal(address: str) -> str:
    began = time.monotonic()
    with pytest.raises(cluster.ConnectionFailed) as refused:
        cluster.check(address)
    assert time.monotonic() - began < 15
    return str(refused.value)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "host:port", "127.0.0.1:99999"])
def test_an_address_where_no_ray_is_fails_within_seconds(address: str) -> None:
    assert address in refusal(address)


def test_the_client_of_ray_is_refused_at_once_with_what_to_use() -> None:
    """The head's own address, which is watched, need not be one that the client can reach."""
    assert "http://HEAD:8265" in refusal("ray://192.0.2.1:10001")


def test_who_lacks_tls_is_told_so(certificates: Path) -> None:
    with listening(tls(certificates)) as address:
        assert "set RAY_USE_TLS=1" in refusal(address)


def test_who_uses_tls_where_there_is_none_is_told_so(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_tls(monkeypatch, certificates)
    with listening() as address:
        assert "uses no TLS" in refusal(address)


def test_certificates_of_another_authority_are_told(
    certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([CERTIFICATES, tmp_path / "o", "127.0.0.1"], check=True, capture_output=True)
    use_tls(monkeypatch, tmp_path / "o" / "127.0.0.1")
    with listening(tls(certificates)) as address:
        assert "do not accept each other's certificate" in refusal(address)


def test_what_is_no_ray_is_told_so() -> None:
    with listening() as address:
        assert "is no head of a Ray" in refusal(address)


@pytest.mark.slow
def test_what_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(cluster.ConnectionFailed, match="has not answered within 20 seconds"):
            cluster.check(address)


_JOIN = """
import sys
import cluster
try:
    cluster.connect(sys.argv[1], remedy="Do this.")
except cluster.ConnectionFailed as error:
    print("failed:", error, file=sys.stderr)
"""


@contextmanager
def joining_a_head_that_goes() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """One that lets a driver in, and is no more when Ray calls."""
    asked = threading.Event()

    def answer(request: bytes, context: object) -> bytes:
        asked.set()
        return b""

    calls = {"GetAllNodeInfo": grpc.unary_unary_rpc_method_handler(answer)}
    head = grpc.server(ThreadPoolExecutor(1))
    head.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("ray.rpc.NodeInfoGcsService", calls)]
    )
    address = f"127.0.0.1:{head.add_insecure_port('127.0.0.1:0')}"
    head.start()
    command = [sys.executable, "-c", _JOIN, address]
    joining = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert asked.wait(60)
        head.stop(0.5).wait()
        yield address, joining
    finally:
        joining.kill()
        joining.communicate()


def test_a_head_that_goes_while_it_is_joined_is_told_of() -> None:
    with joining_a_head_that_goes() as (address, joining):
        assert joining.stderr is not None
        wanted = f"Warning: the head of Ray at {address} has not answered for"
        assert any(wanted in line and "Do this." in line for line in joining.stderr)


@pytest.mark.slow
def test_a_head_that_went_while_it_was_joined_is_given_up_within_a_minute() -> None:
    with joining_a_head_that_goes() as (address, joining):
        _, said = joining.communicate(timeout=60)
    assert f"failed: no Ray answers at {address}" in said
