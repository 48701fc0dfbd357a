"""Whether the head of a Ray lets a caller in, asked by one call that takes milliseconds.

Ray's own client asks again and again for half a minute and then says no more than that it could not
connect; it also takes how to authenticate from settings of the whole process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import grpc

Reaction = Literal["answered", "refused", "unknown"]

_CALL: Final = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
_SECONDS: Final = 10.0
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
        `unknown` where nothing that speaks as Ray does answers in time.
    """
    import grpc

    metadata = [("authorization", f"Bearer {token}")] if token else []
    with _channel(address) as channel:
        try:
            channel.unary_unary(_CALL)(b"", timeout=seconds, metadata=metadata)
        except grpc.RpcError as error:
            refused = error.code() is grpc.StatusCode.UNAUTHENTICATED
            return "refused" if refused else "unknown"
    return "answered"


def _channel(address: str) -> grpc.Channel:
    import grpc

    if os.environ.get(_TLS, "0") not in ("1", "true"):
        return grpc.insecure_channel(address)
    authority, key, certificate = (
        Path(path).read_bytes() if (path := os.environ.get(name)) else None
        for name in (_AUTHORITY, _KEY, _CERTIFICATE)
    )
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, key, certificate))
