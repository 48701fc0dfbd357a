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

if TYPE_CHECKING:
    import grpc

Reaction = Literal["answered", "refused", "foreign", "silent", "unknown"]

_CALL: Final = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
_SECONDS: Final = 10.0
_REACTIONS: Final[dict[str, Reaction]] = {
    "UNAUTHENTICATED": "refused",
    "UNAVAILABLE": "foreign",
    "DEADLINE_EXCEEDED": "silent",
}
# Ray's own names for what it needs where it speaks TLS.
_TLS, _AUTHORITY = "RAY_USE_TLS", "RAY_TLS_CA_CERT"
_KEY, _CERTIFICATE = "RAY_TLS_SERVER_KEY", "RAY_TLS_SERVER_CERT"


def knock(address: str, token: str | None, seconds: float = _SECONDS) -> Reaction:
    """How a head reacts to a call.

    Args:
        address: Its `host:port`.
        token: To call with; None for a call without.
        seconds: That the answer may take.

    Returns:
        `foreign` where what listens there does not understand a call, nor this side it: it is no
        Ray, or only one of the two uses TLS. `silent` where it does not answer in time.
    """
    import grpc

    metadata = [("authorization", f"Bearer {token}")] if token else []
    with _channel(address) as channel:
        try:
            channel.unary_unary(_CALL)(b"", timeout=seconds, metadata=metadata)
        except grpc.RpcError as error:
            return _REACTIONS.get(error.code().name, "unknown")
    return "answered"


def uses_tls() -> bool:
    """Whether Ray in this process uses TLS."""
    return os.environ.get(_TLS, "0").lower() in ("1", "true")


def speaks_tls(address: str, seconds: float = _SECONDS) -> bool:
    """Whether what listens at an address uses TLS, whoever it is."""
    host, _, port = address.rpartition(":")
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE  # nothing is sent to it
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as there:
            asking.wrap_socket(there).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def _channel(address: str) -> grpc.Channel:
    import grpc

    if not uses_tls():
        return grpc.insecure_channel(address)
    authority, key, certificate = (
        Path(path).read_bytes() if (path := os.environ.get(name)) else None
        for name in (_AUTHORITY, _KEY, _CERTIFICATE)
    )
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, key, certificate))
