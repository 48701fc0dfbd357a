"""Room on a cluster that has none yet: asking its autoscaler for nodes, and whether any may come.

What asks here is a placement group that waits: Ray's autoscalers, old and new, start nodes
for those as long as they wait, what several drivers ask for adds up, and a driver that dies takes
its own along. `ray.autoscaler.sdk.request_resources` has one slot for a whole cluster, which a
dead driver leaves as it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

Outlook = Literal["coming", "hopeless", "unknown"]

_GROUP: Final = "ray.io/node-group"
# Where Ray's older autoscaler says how it stands, and what it calls nodes that nobody manages.
_OLDER: Final = "__autoscaling_status"
_UNMANAGED: Final = ("node_", "local.cluster.node")
_SECONDS: Final = 5


@contextmanager
def demand(cpus: float, gpus: float) -> Iterator[None]:
    """Ask for room for a single pack, for a block, which holds what Ray finds until its end.

    Args:
        cpus: That the pack is to have.
        gpus: That it is to have.
    """
    from ray.util import placement_group, remove_placement_group

    wanted = _bundle(cpus, gpus)
    group = placement_group([wanted]) if wanted else None
    try:
        yield
    finally:
        if group is not None:
            remove_placement_group(group)


def managed() -> bool:
    """Whether someone beside the user starts nodes of this cluster, who may start more.

    Of a head that has only just begun it may not be known yet: then it is False.
    """
    import ray
    from ray.exceptions import RpcError

    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    if any(_GROUP in node["Labels"] for node in nodes):
        return True
    try:
        kinds = _older().get("active_nodes") or ()
    except RpcError:  # a head that is busy says it the next time
        return False
    return any(not kind.startswith(_UNMANAGED) for kind in kinds)


def outlook(cpus: float, gpus: float) -> Outlook:
    """What the autoscaler says of room for a pack that is asked for and is not there.

    Args:
        cpus: That it is to have.
        gpus: That it is to have.

    Returns:
        `coming` while it starts nodes, whichever; `hopeless` where it starts none and has said
        that it never could; `unknown` where there is no autoscaler, or nobody says.
    """
    from ray.exceptions import RpcError

    try:
        state, older = _newer(), _older()
    except RpcError:  # a head that is busy says it the next time
        return "unknown"
    if state.pending_instances or state.pending_instance_requests:
        return "coming"
    if older.get("pending_nodes") or older.get("pending_launches"):
        return "coming"
    refused = (
        dict(request.resources_bundle)
        for group in state.infeasible_gang_resource_requests
        for request in group.requests
    )
    return "hopeless" if _bundle(cpus, gpus) in refused else "unknown"


def _bundle(cpus: float, gpus: float) -> dict[str, float]:
    return {name: each for name, each in (("CPU", cpus), ("GPU", gpus)) if each}


def _newer() -> Any:
    """How the newer autoscaler stands; empty where there is none."""
    import ray
    from ray._raylet import GcsClient  # type: ignore[attr-defined]
    from ray.core.generated import autoscaler_pb2

    client = GcsClient(ray.get_runtime_context().gcs_address)
    reply = autoscaler_pb2.GetClusterStatusReply()  # type: ignore[attr-defined]
    reply.ParseFromString(client.get_cluster_status(timeout_s=_SECONDS))
    return reply.autoscaling_state


def _older() -> Mapping[str, Any]:
    """How the older autoscaler stands; empty where there is none, or it has only just begun."""
    from ray.experimental.internal_kv import _internal_kv_get

    told = _internal_kv_get(_OLDER)
    return (json.loads(told).get("autoscaler_report") or {}) if told else {}
