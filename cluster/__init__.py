"""Ray: start one for this machine alone, join one that runs, or have one run a sweep.

Importing this package does not load Ray; a name's module loads when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.admission import check
    from cluster.connection import Connection, Machine, connect, this_machine
    from cluster.errors import ConnectionFailed
    from cluster.jobs import JobFailed
    from cluster.serving import serve
    from cluster.submission import SubmissionRefused, submit

__all__ = [
    "Connection",
    "ConnectionFailed",
    "JobFailed",
    "Machine",
    "SubmissionRefused",
    "check",
    "connect",
    "serve",
    "submit",
    "this_machine",
]

_DEFINED_IN = {
    "Connection": "cluster.connection",
    "ConnectionFailed": "cluster.errors",
    "JobFailed": "cluster.jobs",
    "Machine": "cluster.connection",
    "SubmissionRefused": "cluster.submission",
    "check": "cluster.admission",
    "connect": "cluster.connection",
    "serve": "cluster.serving",
    "submit": "cluster.submission",
    "this_machine": "cluster.connection",
}


def __getattr__(name: str) -> object:
    """A public name, from the module that defines it."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_DEFINED_IN[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
