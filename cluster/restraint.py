"""Keeping Ray from what it does unasked and has no option for.

Each block replaces a part of Ray that is not meant for others to change, and puts it back at its
end; Ray is loaded when the block is entered.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


@contextmanager
def loopback_only() -> Iterator[None]:
    """Have Ray take 127.0.0.1 for its node's address, and so listen nowhere else.

    `ray.init` turns a loopback address that it is given into the machine's own; this is the
    switch by which Ray itself stays on loopback on desktop systems.
    """
    from ray._private import ray_constants

    with _replaced(ray_constants, ENABLE_RAY_CLUSTER=False):
        yield


@contextmanager
def bare() -> Iterator[None]:
    """Have Ray start no process that a Ray for one driver has no use for.

    These are the autoscaler, the collector of logs for a terminal, and the dashboard's server,
    which comes without a dashboard too: almost two seconds of a core, and `ray.init` waits for the
    last of them.
    """
    from ray._private import node, parameter

    leaner: Any = {"no_monitor": True, "include_log_monitor": False}
    with (
        _replaced(parameter, RayParams=partial(parameter.RayParams, **leaner)),
        _replaced(node.Node, start_api_server=lambda self, **options: None),
    ):
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Ray's remarks on dead workers off standard output: who uses Ray sees their failures."""
    from ray._private import worker

    with _replaced(worker, _worker_logs_enabled=False):
        yield


@contextmanager
def signals_kept() -> Iterator[None]:
    """Keep how this process ends its own business, while and after Ray would change it.

    `ray.init` takes SIGTERM for itself, and `ray.shutdown` resets it behind Python's back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    from ray._private import utils

    try:
        # Ray's own handler ends the process in the middle of a start.
        with _replaced(utils, set_sigterm_handler=lambda sigterm_handler: None):
            yield
    finally:
        if before is not None:  # None: another library's, which Python cannot put back
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _replaced(owner: object, **values: Any) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
