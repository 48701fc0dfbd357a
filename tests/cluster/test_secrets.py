"""A secret is taken only from where nobody else can read it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import cluster
from cluster.secrets import (
    SecretRefused,
    kept_secret,
    ray_token,
    read_secret,
    secret_from,
    write_secret,
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".ray").mkdir()
    return tmp_path


def test_what_is_written_is_ours_alone_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    before = os.umask(0)
    try:
        write_secret(path, "quite secret")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_secret(path) == "quite secret"


def test_a_secret_is_never_written_over_another(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secret(path, "first")
    with pytest.raises(SecretRefused, match="cannot be written: File exists"):
        write_secret(path, "second")
    assert read_secret(path) == "first"


def test_a_link_does_not_lead_a_new_secret_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret").symlink_to(tmp_path / "published")
    with pytest.raises(SecretRefused):
        write_secret(tmp_path / "secret", "s")
    assert not (tmp_path / "published").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o602, 0o777])
def test_a_file_that_others_may_use_is_refused_with_its_remedy(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    write_secret(path, "s")
    path.chmod(mode)
    with pytest.raises(SecretRefused, match=f"chmod 600 {path}"):
        read_secret(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secret(path, "s")
    os.chown(path, 65534, 65534)
    with pytest.raises(SecretRefused, match="belongs to user 65534"):
        read_secret(path)


def test_a_file_that_others_could_replace_is_refused_with_its_remedy() -> None:
    with tempfile.TemporaryDirectory() as made:  # below a folder that all may enter
        folder = Path(made, "open")
        inner = folder / "closed"
        inner.mkdir(parents=True, mode=0o700)
        write_secret(inner / "secret", "s")
        Path(made, "link").symlink_to(inner / "secret")
        cases = ((0o755, 0o775, True), (0o755, 0o703, True), (0o755, 0o1777, False))
        for outside, mode, refused in (*cases, (0o755, 0o755, False), (0o700, 0o775, False)):
            Path(made).chmod(outside)
            folder.chmod(mode)
            for path in (inner / "secret", Path(made, "link")):
                if refused:
                    with pytest.raises(SecretRefused, match=f"chmod go-w {folder}$"):
                        read_secret(path)
                else:
                    assert read_secret(path) == "s"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
def test_a_file_in_another_user_s_directory_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    write_secret(folder / "secret", "s")
    os.chown(folder, 65534, 65534)
    with pytest.raises(SecretRefused, match="which belongs to user 65534: move it"):
        read_secret(folder / "secret")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
def test_a_directory_of_one_s_own_may_be_in_another_user_s() -> None:
    """As in a group's, which all may enter and only its head may write to."""
    with tempfile.TemporaryDirectory() as made:
        group, own = Path(made), Path(made, "group", "own")
        own.mkdir(parents=True, mode=0o700)
        write_secret(own / "secret", "s")
        for folder in (group, own.parent):
            folder.chmod(0o755)
            os.chown(folder, 65534, 65534)
        assert read_secret(own / "secret") == "s"
        own.parent.chmod(0o775)
        with pytest.raises(SecretRefused, match=r"to which others may write: .*RAY_AUTH_TOKEN"):
            read_secret(own / "secret")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes what its own namespace disowns")
def test_a_container_does_not_know_all_users_outside_it() -> None:
    """Whose directories it shows as nobody's, root's among them; a secret must be its user's."""
    script = """
import sys, pathlib, cluster.secrets
print(cluster.secrets.read_secret(pathlib.Path(sys.argv[1])))
"""
    with tempfile.TemporaryDirectory() as made:
        secret = Path(made, "secret")
        write_secret(secret, "s")
        Path(made).chmod(0o755)
        os.chown(made, 4711, 4711)
        command = ["unshare", "-U", "--map-user=1000", sys.executable, "-c", script, str(secret)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare failed" in ran.stderr:
        pytest.skip("no user namespaces here")
    assert ran.stdout == "s\n", ran.stderr


@pytest.mark.parametrize("content", [b"", b" \n", b"one\ntwo\n", b"\xff\xfe", b"x" * 100_000])
def test_a_file_that_is_not_one_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(SecretRefused, match=r"must hold one line|holds no text"):
        read_secret(path)


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe"])
def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir(mode=0o700)
    elif kind == "pipe":
        os.mkfifo(path, 0o600)  # to open it plainly would wait for ever
    with pytest.raises(SecretRefused, match=r"cannot be read|no plain file"):
        read_secret(path)


def test_the_environment_goes_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    monkeypatch.delenv("SOME_SECRET", raising=False)
    assert secret_from("SOME_SECRET", path) is None
    write_secret(path, "of the file")
    assert secret_from("SOME_SECRET", path) == "of the file"
    monkeypatch.setenv("SOME_SECRET", "of the environment")
    assert secret_from("SOME_SECRET", path) == "of the environment"


def test_a_kept_secret_is_random_at_first_and_then_the_same(tmp_path: Path) -> None:
    first, second = (kept_secret(tmp_path / name) for name in ("first", "second"))
    assert len(first) >= 32
    assert first != second
    assert kept_secret(tmp_path / "first") == first


def test_a_ray_token_is_looked_for_where_ray_looks(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ray_token() is None
    write_secret(home / ".ray" / "auth_token", "of home")
    assert ray_token() == "of home"
    write_secret(home / "named", "named")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "named"))
    assert ray_token() == "named"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "given")
    assert ray_token() == "given"


def test_a_loose_ray_token_is_refused_and_a_missing_one_is_not_overlooked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / ".ray" / "auth_token"
    path.write_text("for all to read")
    path.chmod(0o644)
    with pytest.raises(SecretRefused, match="chmod 600"):
        ray_token()
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "nowhere"))
    with pytest.raises(SecretRefused, match="nowhere cannot be read"):
        ray_token()


BEYOND = "192.0.2.1:6379"  # of a network that is kept for examples


def test_a_ray_beyond_this_machine_is_not_joined_without_a_token(home: Path) -> None:
    """It is not even knocked at."""
    began = time.monotonic()
    with pytest.raises(cluster.ConnectionFailed, match=r"no token for it: .*auth_token"):
        cluster.check(BEYOND)
    assert time.monotonic() - began < 2
    with pytest.raises(cluster.ConnectionFailed, match="no Ray answers"):
        cluster.check("127.0.0.1:1")


def test_a_loose_token_joins_nothing(home: Path) -> None:
    token = home / ".ray" / "auth_token"
    token.write_text("for all to read")
    token.chmod(0o644)
    for address in (BEYOND, "127.0.0.1:1", "auto"):
        with pytest.raises(cluster.ConnectionFailed, match=f"chmod 600 {token}"):
            cluster.check(address)


def test_who_says_so_goes_without_a_token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(cluster.ConnectionFailed, match="no Ray answers"):
        cluster.check(BEYOND)
