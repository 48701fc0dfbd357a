"""Whether the Ray at an address lets this process in, told within seconds.

Ray itself would try for minutes, and end with words that name no remedy.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from cluster.errors import ConnectionFailed
from cluster.knocking import TLS_FILES, knock, speaks_tls, uses_tls
from cluster.ports import is_loopback
from cluster.secrets import RAY_MODE, SecretRefused, ray_token

UNPROTECTED: Final = "disabled"
"""The mode of a Ray that wants no token."""

_AUTO = "auto"
_TOKEN = "token"
_LOOK_SECONDS = 5.0
_ANSWER_SECONDS = 15.0


def check(address: str | None) -> None:
    """Fail where no Ray can be, or none that lets this process in.

    Args:
        address: As `connect` takes it.

    Raises:
        ConnectionFailed: If it is no address, nothing listens there, or what does is no Ray or
            does not answer, only one of the two sides uses TLS, others could read the token, there
            is none for an address beyond loopback, or it is not the one that is wanted.
    """
    if address is None:
        return
    if address != _AUTO:
        _check_form(address)
    _check_token(address)
    where = located(address)
    host, port = parts(where)
    try:
        socket.create_connection((host, int(port)), _LOOK_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:  # Unicode errors of impossible names
        found = f", which is what {_AUTO} found on this machine" if address == _AUTO else ""
        raise ConnectionFailed(f"no Ray answers at {where}{found}: {error}") from error
    _check_welcome(where)


def located(address: str) -> str:
    """The `host:port` of an address, which for `auto` is that of this machine's Ray.

    Raises:
        ConnectionFailed: If this machine has none.
    """
    if address != _AUTO:
        return address
    from ray._private import services

    services.find_gcs_addresses.cache_clear()  # type: ignore[attr-defined]  # those of before
    try:
        found = str(services.get_ray_address_from_environment(_AUTO, None))
    except ConnectionError as error:
        raise ConnectionFailed(f"no Ray answers at {_AUTO}: {error}") from error
    try:
        _check_form(found)
    except ConnectionFailed as error:
        raise ConnectionFailed(f"{_AUTO} is {found} here, by RAY_ADDRESS: {error}") from error
    return found


def parts(address: str) -> tuple[str, str]:
    """Host and port of an address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


def is_beyond(address: str) -> bool:
    """Whether others may reach it; `auto` is this machine's own, or what it is a part of."""
    return address != _AUTO and not is_loopback(parts(address)[0])


def is_protected() -> bool:
    """Whether Ray in this process calls with a token.

    Raises:
        ConnectionFailed: If its mode is one that Ray does not know, and takes for none.
    """
    mode = os.environ.get(RAY_MODE, "")
    if mode.lower() not in ("", _TOKEN, UNPROTECTED):
        raise ConnectionFailed(f"{RAY_MODE} must be {_TOKEN} or {UNPROTECTED}; it is {mode!r}")
    return mode.lower() != UNPROTECTED


def _check_form(address: str) -> None:
    host, port = parts(address)
    if address.startswith(("ray://", "http://", "https://")):
        kind = "Ray's client" if address.startswith("ray://") else "a job server"
        raise ConnectionFailed(
            f"{address.partition('://')[0]}:// leads to {kind}, through which no sweep runs: on a "
            "machine of the cluster give the head's HOST:6379 or auto; from elsewhere use `sweeps "
            "submit` with the job server's http://HEAD:8265"
        )
    if not (host and port.isascii() and port.isdigit()):
        raise ConnectionFailed(f"an address must be HOST:PORT or auto; got {address!r}")
    if ":" in host and not address.startswith("["):
        raise ConnectionFailed(f"an address of IPv6 must be [HOST]:PORT; got {address!r}")


def _check_token(address: str) -> None:
    if not is_protected():
        return
    try:
        token = ray_token()
    except SecretRefused as error:
        raise ConnectionFailed(f"Ray's token: {error}") from error
    if token is None and is_beyond(address):
        raise ConnectionFailed(
            f"{address} is beyond this machine, and there is no token for it: put the cluster's "
            "into ~/.ray/auth_token (chmod 600) or RAY_AUTH_TOKEN. A cluster without one: `(umask "
            "077; ray get-auth-token --generate > /dev/null)` makes it, and all nodes start with "
            f"it and {RAY_MODE}={_TOKEN}; or set {RAY_MODE}={UNPROTECTED}, where nobody else "
            "reaches it"
        )


def _check_welcome(address: str) -> None:
    token = ray_token() if is_protected() else None
    reaction = knock(address, token, _ANSWER_SECONDS)
    if reaction == "silent":
        raise ConnectionFailed(_silent(address))
    if reaction == "foreign":
        raise ConnectionFailed(_foreign(address))
    if reaction == "refused":
        found = "refuses this token, which is not its own" if token else "wants a token, got none"
        raise ConnectionFailed(
            f"the Ray at {address} {found}: put the cluster's into ~/.ray/auth_token (chmod 600) "
            f"or RAY_AUTH_TOKEN, and leave {RAY_MODE} unset or set it to {_TOKEN}"
        )


def _silent(address: str) -> str:
    return (
        f"what listens at {address} does not answer: look at the head's processes and its log "
        "(gcs_server.out), and try again"
    )


def _foreign(address: str) -> str:
    """Why a call was not understood, in words."""
    files = ", ".join(TLS_FILES)
    match uses_tls(), speaks_tls(address):
        case _, None:
            return _silent(address)
        case False, True:
            return (
                f"what listens at {address} uses TLS, and this command does not: set "
                f"RAY_USE_TLS=1 and {files} as on the cluster's nodes"
            )
        case True, False:
            return (
                f"RAY_USE_TLS is set, and what listens at {address} uses no TLS: unset it, or "
                "give the address of the cluster that does"
            )
        case True, True:
            return (
                f"this command and what listens at {address} do not accept each other's "
                f"certificates: those of {files} must be of the cluster's own authority and valid "
                f"today, and the head's must list {parts(address)[0]}"
            )
    return (
        f"what listens at {address} is no head of a Ray; a head's address is HOST:6379 unless it "
        "was started with another --port"
    )
