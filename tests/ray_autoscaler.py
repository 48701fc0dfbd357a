"""A Ray cluster whose autoscaler brings real nodes, all of them processes of this machine's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ray_head import Head, ray_head

_OBJECT_STORE_BYTES = 100_000_000
# What nodes that are reached over SSH would need.
_UNUSED: dict[str, Any] = {
    **{name: {} for name in ("auth", "docker", "file_mounts")},
    **{name: [] for name in ("initialization_commands", "cluster_synced_files")},
    **{f"{whose}setup_commands": [] for whose in ("", "head_", "worker_")},
    **{f"{whose}_start_ray_commands": [] for whose in ("head", "worker")},
}
_HEAD = "ray.head.default"  # as the provider calls it


@contextmanager
def scaling_head(
    nodes: Mapping[str, float], most: int, version: int = 2, **environment: str
) -> Iterator[Head]:
    """A head without CPUs, and an autoscaler that starts nodes on demand.

    Args:
        nodes: Resources of each node, by Ray's names.
        most: How many of them there may be.
        version: Of Ray's autoscaler, 1 or 2.
        environment: Variables that all nodes have beside this process's.
    """
    worker = {"resources": {**nodes, "object_store_memory": _OBJECT_STORE_BYTES}}
    kinds = {
        _HEAD: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "worker": {**worker, "node_config": {}, "min_workers": 0, "max_workers": most},
    }
    scaling = {
        **_UNUSED,
        "cluster_name": "scaling",
        "max_workers": most,
        "provider": {
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "use_node_id_as_ip": True,
            "launch_multiple": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "available_node_types": kinds,
        "head_node_type": _HEAD,
        "idle_timeout_minutes": 0.1,
    }
    with ray_head(0, scaling, **_environment(version), **environment) as head:
        yield head


def _environment(version: int) -> dict[str, str]:
    """By which a head is the one that the fake provider takes it for."""
    from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID

    own = {"RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID, "RAY_NODE_TYPE_NAME": _HEAD}
    return {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": str(version - 1),
        **own,
    }
