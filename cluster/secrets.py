"""Passwords and tokens: read only from where nobody else can read them, written the same way."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

RAY_MODE, RAY_TOKEN, RAY_TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"

_LARGEST = 64 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_ENTERED = stat.S_IXGRP | stat.S_IXOTH
_USERS, _OVERFLOW = Path("/proc/self/uid_map"), Path("/proc/sys/kernel/overflowuid")
_ALL_USERS = 2**32 - 1
_ELSE = f"; a token of Ray's may also be in {RAY_TOKEN}"


class SecretRefused(ValueError):
    """A secret cannot be had, or others could read it.

    Attributes:
        found: What is wrong.
        remedy: What to do about it; empty where the former says it.
    """

    def __init__(self, found: str, remedy: str = "") -> None:
        """Say so."""
        self.found, self.remedy = found, remedy
        super().__init__(f"{found}: {remedy}" if remedy else found)


def read_secret(path: Path) -> str:
    """What a file that is ours alone holds.

    Args:
        path: A file of one secret; white space around it is no part of it.

    Raises:
        SecretRefused: If it is absent, empty or no plain file, is not this user's or root's, or may
            be read, changed or replaced by others.
    """
    return _decoded(path, _content(path))


def check_private(path: Path) -> None:
    """Make sure that a file of secrets is ours alone, whatever its form.

    Raises:
        SecretRefused: If it is absent or no plain file, is not this user's or root's, or may be
            read, changed or replaced by others.
    """
    _content(path)


def write_secret(path: Path, secret: str) -> None:
    """Write a new file that nobody else can read.

    Args:
        path: A file that does not exist yet.
        secret: Its content.

    Raises:
        SecretRefused: If there is such a file already, or none can be written there.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f"{secret}\n")
    except OSError as error:
        raise SecretRefused(f"{path} cannot be written: {error.strerror}") from error


def secret_from(variable: str, path: Path | None = None) -> str | None:
    """A secret from the environment, or else from a file.

    Args:
        variable: That may hold it.
        path: That may hold it where the variable is unset or empty.

    Returns:
        The secret; None if neither is there.

    Raises:
        SecretRefused: If the file is there and cannot be trusted.
    """
    value = os.environ.get(variable, "").strip()
    if value:
        return value
    return read_secret(path) if path is not None and _exists(path) else None


def kept_secret(path: Path) -> str:
    """The secret in a file, made up at random when it is first asked for.

    Raises:
        SecretRefused: As `read_secret` and `write_secret` do.
    """
    if not _exists(path):
        write_secret(path, secrets.token_urlsafe(32))
    return read_secret(path)


def ray_token() -> str | None:
    """The token with which this user joins Ray clusters, found where Ray itself looks for it.

    Returns:
        What RAY_AUTH_TOKEN holds, or else the file that RAY_AUTH_TOKEN_PATH names, or else
        `~/.ray/auth_token`; None if there is none of these.

    Raises:
        SecretRefused: If the file cannot be trusted, or RAY_AUTH_TOKEN_PATH names none.
    """
    named = os.environ.get(RAY_TOKEN_PATH, "")
    if named and not os.environ.get(RAY_TOKEN):
        return read_secret(Path(named).expanduser())
    return secret_from(RAY_TOKEN, Path.home() / ".ray" / "auth_token")


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _content(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecretRefused(f"{path} cannot be read: {error.strerror}") from error
    try:
        # Of what was opened, not of what the path may name by now.
        _check(path, os.fstat(handle))
        return os.read(handle, _LARGEST + 1)
    finally:
        os.close(handle)


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SecretRefused(f"{path} is no plain file; a secret must be in one")
    if not _trusted(found):
        raise SecretRefused(
            f"{path} belongs to user {found.st_uid} and not to this one ({os.geteuid()}), who "
            "could change it",
            f"make a copy of your own: (umask 077; cp {path} COPY)",
        )
    if found.st_mode & _OTHERS:
        raise SecretRefused(
            f"{path} holds a secret and has mode {stat.S_IMODE(found.st_mode):04o}, so that others "
            "can use it",
            f"chmod 600 {path}",
        )
    closed, real = False, Path(os.path.realpath(path))
    if not (_trusted(own := real.parent.stat()) or _is_of_a_host(own)):
        raise SecretRefused(
            f"{path} holds a secret and lies in {real.parent}, which belongs to user {own.st_uid}",
            f"move it to a directory of your own{_ELSE}",
        )
    for folder in reversed(real.parents):
        status = folder.stat()
        _check_folder(path, folder, status, closed)
        closed = closed or not status.st_mode & _ENTERED


def _check_folder(path: Path, folder: Path, found: os.stat_result, closed: bool) -> None:
    """Whether not everybody could put another file in a secret's place.

    Whom a folder further up belongs to can: an administrator or a group's head, who has the homes
    below it in hand anyway. Even so he could only put there what this user or root has written.

    Args:
        path: Of the secret.
        folder: One that it lies in.
        found: What is known of the folder.
        closed: Whether nobody else can enter one that this lies in.
    """
    # In a sticky one, as /tmp is, each may move his own files alone.
    if not closed and found.st_mode & _WRITABLE and not found.st_mode & stat.S_ISVTX:
        remedy = f"chmod go-w {folder}"
        raise SecretRefused(
            f"{path} holds a secret and lies in {folder}, to which others may write",
            remedy if _trusted(found) else f"move it to where only you may write{_ELSE}",
        )


def _trusted(found: os.stat_result) -> bool:
    return found.st_uid in (os.geteuid(), 0)


def _is_of_a_host(found: os.stat_result) -> bool:
    """Whether it belongs to somebody whom this process's user namespace has no number for.

    So are the directories of root's outside a container that runs as a user. Elsewhere the same
    number is a user's like any other.
    """
    if not _USERS.exists():
        return False
    known = sum(int(line.split()[2]) for line in _USERS.read_text().splitlines())
    return known < _ALL_USERS and found.st_uid == int(_OVERFLOW.read_text())


def _decoded(path: Path, content: bytes) -> str:
    try:
        secret = content.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise SecretRefused(f"{path} holds no text") from error
    if not secret or len(content) > _LARGEST or "\n" in secret:
        raise SecretRefused(f"{path} must hold one line, the secret, and nothing else")
    return secret
