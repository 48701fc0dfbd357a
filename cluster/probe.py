"""Tests whether the head of a Ray accepts this process.

Ray's own client tries for minutes and then reports neither the cause nor a remedy. Each check here
is for a mistake that users make: a wrong address, a missing token, TLS on one side only.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final, Literal

from cluster.auth import MODE, WITH_TOKEN, WITHOUT_TOKEN, is_loopback, read_token, uses_token
from cluster.errors import ConnectError, UnreachableError

ProbeResult = Literal["accepted", "rejected", "foreign", "silent", "unknown"]

AUTO: Final = "auto"
"""Address of the Ray that this machine is part of."""

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 15.0
_METHOD: Final = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_RESULTS: Final[dict[str, ProbeResult]] = {
    "UNAUTHENTICATED": "rejected",
    "UNAVAILABLE": "foreign",
    "UNIMPLEMENTED": "foreign",
}
_TLS: Final = "RAY_USE_TLS"
_TLS_FILES: Final = ("RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY")
# Ray's own calls ignore the environment's proxies unless this is set.
_USE_PROXY: Final = "RAY_grpc_enable_http_proxy"


def check_head(address: str, is_own: bool = False) -> None:
    """Checks that a Ray head listens at an address and accepts this process.

    Args:
        address: `HOST:PORT` of the head.
        is_own: Whether this machine is part of that Ray, which then may work without a token.

    Raises:
        ConnectError: If the address has another form, nothing or something else listens there, it
            does not answer in time, only one side uses TLS, or the token is missing or wrong.
    """
    if "://" in address:
        raise ConnectError(
            f"{address.partition('://')[0]}:// is the address of another server of the cluster. On "
            f"a machine of the cluster give the head's HOST:6379 or {AUTO}; from elsewhere submit "
            "a job to the job server at http://HEAD:8265"
        )
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not (host and port.isascii() and port.isdigit()):
        raise ConnectError(f"an address must be HOST:PORT or {AUTO}; got {address!r}")
    if ":" in host and not address.startswith("["):
        raise ConnectError(f"an address of IPv6 must be [HOST]:PORT; got {address!r}")
    token = read_token() if uses_token() else None
    if uses_token() and token is None and is_remote(address) and not is_own:
        raise ConnectError(
            f"{address} is another machine, and no token is set for it: put the cluster's token "
            "into ~/.ray/auth_token (chmod 600) or RAY_AUTH_TOKEN. For a cluster without one, "
            "create it with `(umask 077; ray get-auth-token --generate > /dev/null)` and start all "
            f"nodes with it and {MODE}={WITH_TOKEN}; or set {MODE}={WITHOUT_TOKEN} on a network "
            "that only trusted users can reach"
        )
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:  # ValueError: a malformed host name
        raise UnreachableError(f"no Ray answers at {address}: {error}") from error
    result = probe(address, token, _ANSWER_SECONDS)
    if result == "silent":
        raise UnreachableError(
            f"the server at {address} does not answer: look at the head's processes and its log "
            "(gcs_server.out), and try again"
        )
    if result == "foreign":
        raise ConnectError(
            f"the server at {address} is not the head of a Ray, whose address is HOST:6379 by "
            f"default, or one side alone uses TLS: set {_TLS} and {', '.join(_TLS_FILES)} here as "
            "on the cluster's nodes"
        )
    if result == "rejected":
        fault = "rejects this token" if token else "requires a token, and none is set"
        raise ConnectError(
            f"the Ray at {address} {fault}: put the cluster's token into ~/.ray/auth_token "
            f"(chmod 600) or RAY_AUTH_TOKEN, and leave {MODE} unset or set it to {WITH_TOKEN}"
        )


def probe(address: str, token: str | None, seconds: float) -> ProbeResult:
    """Sends one small request to the head of a Ray.

    The time limit must be below 20 seconds, after which gRPC gives up by itself.

    Returns:
        `foreign` if the server is not a Ray, or only one side uses TLS; `silent` if no answer came
        in time.

    Raises:
        ConnectError: If Ray is to use TLS and its files cannot be read.
    """
    import grpc  # only commands that join a cluster need it

    options = [("grpc.enable_http_proxy", int(os.environ.get(_USE_PROXY, "0") in ("1", "true")))]
    metadata = [("authorization", f"Bearer {token}")] if token else []
    channel = grpc.insecure_channel(address, options)
    if os.environ.get(_TLS, "0").lower() in ("1", "true"):
        try:
            files = [Path(os.environ[name]).read_bytes() for name in _TLS_FILES]
        except (KeyError, OSError) as error:
            names = ", ".join(_TLS_FILES)
            raise ConnectError(
                f"{_TLS} is set, and {names} must name its files: {error}"
            ) from error
        credentials = grpc.ssl_channel_credentials(files[0], files[2], files[1])
        channel = grpc.secure_channel(address, credentials, options)
    with channel:
        # A gRPC deadline is a time of day, and clocks may jump.
        call = channel.unary_unary(_METHOD).future(b"", metadata=metadata)
        try:
            call.result(seconds)
        except grpc.FutureTimeoutError:
            call.cancel()
            return "silent"
        except grpc.RpcError as error:
            return _RESULTS.get(error.code().name, "unknown")
    return "accepted"


def is_remote(address: str) -> bool:
    """Returns whether an address is not on this machine's loopback interface."""
    return not is_loopback(address.rpartition(":")[0])
