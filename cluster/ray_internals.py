"""The four private parts of Ray that this project uses, each because there is no public form.

A version of Ray without one of them loses what the function says, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch


@contextmanager
def loopback_only() -> Iterator[None]:
    """Makes Ray use 127.0.0.1 as its node's address in the block, so that it listens nowhere else.

    `ray.init` replaces a loopback address by the machine's own. `RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER`
    is the documented form of this constant; Ray reads it once, when it is imported. Without it
    Ray listens on the machine's own address, which `connect` warns of.
    """
    constants = _find("ray._private.ray_constants")
    if not hasattr(constants, "ENABLE_RAY_CLUSTER"):
        yield
        return
    with patch.object(constants, "ENABLE_RAY_CLUSTER", False):
        yield


def reload_authentication() -> bool:
    """Makes Ray read its variables for authentication again, as it keeps what it read first.

    Returns:
        Whether this Ray does so; otherwise it may require no token.
    """
    raylet = _find("ray._raylet")
    loader = getattr(raylet, "AuthenticationTokenLoader", None)
    config = getattr(raylet, "Config", None)
    if loader is None or config is None:
        return False
    config.initialize("")
    loader.instance().reset_cache()
    return True


@contextmanager
def without_messages() -> Iterator[None]:
    """Keeps Ray's messages about lost workers off standard output, where results are printed.

    `log_to_driver=False` leaves them, and callers report failures in their own words.
    """
    worker = _find("ray._private.worker")
    if not hasattr(worker, "_worker_logs_enabled"):
        yield
        return
    with patch.object(worker, "_worker_logs_enabled", False):
        yield


def count_local_resources(object_store_bytes: int) -> Mapping[str, float]:
    """Returns the resources that Ray would detect on this machine, without starting it.

    Without this part of Ray, they are the CPUs alone: GPUs are then used on clusters only.
    """
    specification = _find("ray._private.resource_and_label_spec")
    if not hasattr(specification, "ResourceAndLabelSpec"):
        return {"CPU": os.cpu_count() or 1}
    spec = specification.ResourceAndLabelSpec(object_store_memory=object_store_bytes)
    spec.resolve(is_head=True, node_ip_address="127.0.0.1")
    resources: Mapping[str, float] = spec.to_resource_dict()
    return resources


def _find(module: str) -> Any:
    """A private module of Ray; None where this version has none."""
    try:
        return import_module(module)
    except ImportError:
        return None
