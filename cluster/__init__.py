"""Ray: start one for this machine, join a running one, or submit jobs to one.

Importing this package does not load Ray; a name's module loads when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.connection import Connection, Machine, check_address, connect
    from cluster.errors import ClusterError, ConnectError, JobError
    from cluster.submission import JobSpec, SubmitOutcome, submit

__all__ = [
    "ClusterError",
    "ConnectError",
    "Connection",
    "JobError",
    "JobSpec",
    "Machine",
    "SubmitOutcome",
    "check_address",
    "connect",
    "submit",
]

_MODULES = {
    "ClusterError": "cluster.errors",
    "ConnectError": "cluster.errors",
    "Connection": "cluster.connection",
    "JobError": "cluster.errors",
    "JobSpec": "cluster.submission",
    "Machine": "cluster.connection",
    "SubmitOutcome": "cluster.submission",
    "check_address": "cluster.connection",
    "connect": "cluster.connection",
    "submit": "cluster.submission",
}


def __getattr__(name: str) -> object:
    """Returns a public name from the module that defines it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
