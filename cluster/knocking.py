"""Whether the head of a Ray lets a caller in, asked by one call that takes milliseconds.

Ray's own client asks again and again for half a minute and then says no more than that it could not
connect; it also takes how to authenticate from settings of the whole process.
"""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from cluster.errors import ConnectionFailed

if TYPE_CHECKING:
    import grpc

Reaction = Literal["answered", "refused", "foreign", "silent", "unknown"]

_CALL: Final = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
_SECONDS: Final = 10.0
_REACTIONS: Final[dict[str, Reaction]] = {
    "UNAUTHENTICATED": "refused",
    "UNAVAILABLE": "foreign",
    "UNIMPLEMENTED": "foreign",
}
# Ray's own names for what it needs where it speaks TLS.
_TLS: Final = "RAY_USE_TLS"
TLS_FILES: Final = ("RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY")
# A proxy of the environment is for the web: Ray's own calls pass it by, unless told otherwise.
_PROXY: Final = "RAY_grpc_enable_http_proxy"


def knock(address: str, token: str | None, seconds: float = _SECONDS) -> Reaction:
    """How a head reacts to a call.

    Args:
        address: Its `host:port`.
        token: To call with; None for a call without.
        seconds: That the answer may take; below 20, after which gRPC gives up by itself.

    Returns:
        `foreign` where what listens there does not understand a call, nor this side it: it is no
        Ray, or only one of the two uses TLS. `silent` where it does not answer in time.

    Raises:
        ConnectionFailed: If Ray is to use TLS, and a file that it needs cannot be read.
    """
    import grpc

    metadata = [("authorization", f"Bearer {token}")] if token else []
    with _channel(address) as channel:
        # Waited for here: a deadline of gRPC's is a time of day, and clocks may jump.
        call = channel.unary_unary(_CALL).future(b"", metadata=metadata)
        try:
            call.result(seconds)
        except grpc.FutureTimeoutError:
            call.cancel()
            return "silent"
        except grpc.RpcError as error:
            return _REACTIONS.get(error.code().name, "unknown")
    return "answered"


def uses_tls() -> bool:
    """Whether Ray in this process uses TLS."""
    return os.environ.get(_TLS, "0").lower() in ("1", "true")


def speaks_tls(address: str, seconds: float = _SECONDS) -> bool | None:
    """Whether what listens at an address uses TLS, whoever it is; None where it does not say."""
    host, _, port = address.rpartition(":")
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE  # nothing is sent to it
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as there:
            asking.wrap_socket(there).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError as error:
        return False if isinstance(error, ConnectionResetError) else None
    return True


def _channel(address: str) -> grpc.Channel:
    import grpc

    options = [("grpc.enable_http_proxy", int(os.environ.get(_PROXY, "0") in ("1", "true")))]
    if not uses_tls():
        return grpc.insecure_channel(address, options)
    authority, certificate, key = map(_content, TLS_FILES)
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    return grpc.secure_channel(address, credentials, options)


def _content(variable: str) -> bytes:
    path = os.environ.get(variable)
    if not path:
        raise ConnectionFailed(f"{_TLS} is set, and {variable} is not: Ray needs all three files")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConnectionFailed(f"{variable}={path}: {error.strerror}") from error
