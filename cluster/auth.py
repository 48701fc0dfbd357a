"""Ray's token, from places that only this user can read, and which hosts are this machine.

Importing this module loads neither Ray nor gRPC.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path
from typing import Final

from cluster.errors import ConnectError, SecretError

MODE: Final = "RAY_AUTH_MODE"
TOKEN: Final = "RAY_AUTH_TOKEN"
TOKEN_PATH: Final = "RAY_AUTH_TOKEN_PATH"
WITH_TOKEN: Final = "token"
WITHOUT_TOKEN: Final = "disabled"

_MAX_BYTES = 64 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_NO_PROXY: Final = "no_proxy"  # libraries read it before NO_PROXY
_THIS_MACHINE: Final = ("localhost", "127.0.0.0/8", "127.0.0.1", "::1")


def read_token() -> str | None:
    """Returns the token for Ray clusters, from where Ray itself reads it; None without one.

    The places are RAY_AUTH_TOKEN, the file named by RAY_AUTH_TOKEN_PATH, and `~/.ray/auth_token`.

    Raises:
        SecretError: If other users can read the file, or RAY_AUTH_TOKEN_PATH names no file.
    """
    if token := os.environ.get(TOKEN, "").strip():
        return token
    if path := os.environ.get(TOKEN_PATH):
        return read_private_file(Path(path).expanduser())
    default = Path.home() / ".ray" / "auth_token"
    return read_private_file(default) if default.exists() else None


def uses_token() -> bool:
    """Returns whether Ray in this process authenticates with a token.

    Raises:
        ConnectError: If RAY_AUTH_MODE has an unknown value, which Ray takes for "disabled".
    """
    mode = os.environ.get(MODE, "")
    if mode.lower() not in ("", WITH_TOKEN, WITHOUT_TOKEN):
        raise ConnectError(f"{MODE} must be {WITH_TOKEN} or {WITHOUT_TOKEN}; got {mode!r}")
    return mode.lower() != WITHOUT_TOKEN


def read_private_file(path: Path) -> str:
    """Returns the secret in a file of one line that only this user can read.

    Raises:
        SecretError: If it is not a plain file, others can read or write it, or it does not hold one
            line.
    """
    try:
        secret = read_private(path).decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise SecretError(f"{path} is not a text file") from error
    if not secret or "\n" in secret:
        raise SecretError(f"{path} must hold one line, the secret, and nothing else")
    return secret


def read_private(path: Path) -> bytes:
    """Returns the content of a file of secrets after checks of the opened file.

    Raises:
        SecretError: If it cannot be read, or users other than this one and root can access it.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecretError(f"{path} cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise SecretError(f"{path} is not a plain file")
        if status.st_uid not in (os.geteuid(), 0):
            raise SecretError(
                f"{path} belongs to user {status.st_uid}, not to this user ({os.geteuid()})",
                f"make a copy: (umask 077; cp {path} COPY)",
            )
        if status.st_mode & _OTHERS:
            mode = stat.S_IMODE(status.st_mode)
            raise SecretError(
                f"{path} holds a secret and other users can access it (mode {mode:04o})",
                f"chmod 600 {path}",
            )
        content = os.read(handle, _MAX_BYTES + 1)
    finally:
        os.close(handle)
    if len(content) > _MAX_BYTES:
        raise SecretError(f"{path} is too large for a secret")
    return content


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach a server at a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bypass_proxies_for_loopback() -> None:
    """Adds this machine to `no_proxy`, in this process, if the environment names a proxy.

    A proxy for the web cannot reach a server or an SSH tunnel here, and would see the token.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return
    hosts = os.environ.get(_NO_PROXY) or os.environ.get(_NO_PROXY.upper(), "")
    if hosts.strip() == "*":
        return
    listed = [host.strip() for host in hosts.split(",") if host.strip()]
    missing = [host for host in _THIS_MACHINE if host not in listed]
    os.environ[_NO_PROXY] = ",".join([*listed, *missing])
