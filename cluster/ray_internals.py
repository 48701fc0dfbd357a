"""The five private parts of Ray that this project uses, each because there is no public form.

A version of Ray without one of them loses what the function says, and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final
from unittest.mock import patch

import ray

_GCS_SECONDS: Final = 5


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
        Whether this Ray can authenticate with a token, which it does since 2.52.
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


@dataclass(frozen=True)
class AutoscalerReport:
    """Report of a cluster's autoscaler.

    Attributes:
        infeasible: Demands that the newer autoscaler cannot meet; its public status omits them.
        node_types: Types of nodes that the older one knows, by its own names.
    """

    infeasible: list[dict[str, float]] = field(default_factory=list)
    node_types: tuple[str, ...] = ()


def autoscaler_report() -> AutoscalerReport:
    """Returns the report of a cluster's autoscaler; an empty one where this Ray has none.

    Raises:
        ray.exceptions.RpcError: If the head does not answer in time.
    """
    raylet, messages = _find("ray._raylet"), _find("ray.core.generated.autoscaler_pb2")
    if raylet is None or messages is None or not hasattr(raylet, "GcsClient"):
        return AutoscalerReport()
    client = raylet.GcsClient(ray.get_runtime_context().gcs_address)
    reply = messages.GetClusterStatusReply()
    reply.ParseFromString(client.get_cluster_status(timeout_s=_GCS_SECONDS))
    groups = reply.autoscaling_state.infeasible_gang_resource_requests
    infeasible = [dict(r.resources_bundle) for group in groups for r in group.requests]
    older = json.loads(client.internal_kv_get(b"__autoscaling_status", None, _GCS_SECONDS) or b"{}")
    types = (older.get("autoscaler_report") or {}).get("active_nodes") or {}
    return AutoscalerReport(infeasible, tuple(types))


def _find(module: str) -> Any:
    """A private module of Ray; None where this version has none."""
    try:
        return import_module(module)
    except ImportError:
        return None
