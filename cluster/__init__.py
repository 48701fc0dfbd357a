"""Ray: start one for this machine alone, or join one that runs.

Importing this package does not load Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.connection import (
        Connection,
        ConnectionFailed,
        Machine,
        check,
        connect,
        this_machine,
    )

__all__ = ["Connection", "ConnectionFailed", "Machine", "check", "connect", "this_machine"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cluster import connection

    return getattr(connection, name)
