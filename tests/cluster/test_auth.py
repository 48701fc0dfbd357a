"""Ray's token is read only from places that other users cannot read."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import cluster
from cluster.auth import bypass_proxies_for_loopback, read_private, read_private_file, read_token
from cluster.errors import SecretError

REMOTE = "192.0.2.1:6379"  # of a network that is reserved for examples


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".ray").mkdir()
    return tmp_path


def write(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o602, 0o777])
def test_a_file_that_others_can_access_is_refused_with_the_remedy(
    tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "secret"
    write(path, "s", mode)
    for use in (read_private_file, read_private):
        with pytest.raises(SecretError, match=f"chmod 600 {path}"):
            use(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write(path, "s")
    os.chown(path, 65534, 65534)
    with pytest.raises(SecretError, match="belongs to user 65534"):
        read_private_file(path)


@pytest.mark.parametrize("content", [b"", b" \n", b"one\ntwo\n", b"\xff\xfe", b"x" * 100_000])
def test_a_file_that_is_not_one_line_of_text_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    write(path, content)
    with pytest.raises(SecretError, match=r"must hold one line|not a text file|too large"):
        read_private_file(path)


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe"])
def test_a_path_without_a_plain_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir(mode=0o700)
    elif kind == "pipe":
        os.mkfifo(path, 0o600)  # opening it in blocking mode would never return
    with pytest.raises(SecretError, match=r"cannot be read|not a plain file"):
        read_private_file(path)


def test_the_token_is_read_from_where_ray_reads_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_token() is None
    write(home / ".ray" / "auth_token", "of home\n")
    assert read_token() == "of home"
    write(home / "named", "named")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "named"))
    assert read_token() == "named"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "given")
    assert read_token() == "given"


def test_a_named_token_file_must_exist(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "nowhere"))
    with pytest.raises(SecretError, match="nowhere cannot be read"):
        read_token()


def test_a_remote_ray_is_not_contacted_without_a_token(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(cluster.ConnectError, match="no Ray answers"):
        cluster.check_address("127.0.0.1:1")
    monkeypatch.delattr(socket, "create_connection")
    with pytest.raises(cluster.ConnectError, match=r"no token is set for it: .*auth_token"):
        cluster.check_address(REMOTE)


def test_a_token_that_others_can_read_is_not_used(home: Path) -> None:
    token = home / ".ray" / "auth_token"
    write(token, "public", 0o644)
    for address in (REMOTE, "127.0.0.1:1"):
        with pytest.raises(cluster.ConnectError, match=f"chmod 600 {token}"):
            cluster.check_address(address)


def test_authentication_can_be_turned_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(cluster.ConnectError, match="no Ray answers"):
        cluster.check_address(REMOTE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, None),
        ({"https_proxy": "http://p"}, "localhost,127.0.0.0/8,127.0.0.1,::1"),
        ({"HTTP_PROXY": "http://p", "NO_PROXY": "a, ::1"}, "a,::1,localhost,127.0.0.0/8,127.0.0.1"),
        ({"http_proxy": "http://p", "no_proxy": "*"}, "*"),
    ],
)
def test_this_machine_is_added_to_the_hosts_without_proxy(
    before: dict[str, str], after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "")  # so that it is restored
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    bypass_proxies_for_loopback()
    assert os.environ.get("no_proxy") == after
