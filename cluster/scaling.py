"""Room on a cluster that has none yet: asking its autoscaler for nodes, and whether any may come.

What is asked for here is a placement group that waits: Ray's autoscalers, old and new, start nodes
for those as long as they wait, what several drivers ask for adds up, and a driver that dies takes
its own along. `ray.autoscaler.sdk.request_resources` has one slot for a whole cluster, which a
dead driver leaves as it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import ray
    from ray.util.placement_group import PlacementGroup

Outlook = Literal["coming", "hopeless", "unknown"]

_GROUP: Final = "ray.io/node-group"
# Where Ray's older autoscaler says how it stands, and what it calls nodes that nobody manages.
_OLDER: Final = "__autoscaling_status"
_UNMANAGED: Final = ("node_", "local.cluster.node")
_SECONDS: Final = 5


class Demand:
    """Asks for room for packs until Ray has it, or until the end of a block."""

    def __init__(self, cpus: float, gpus: float) -> None:
        """Ask for nothing yet.

        Args:
            cpus: That each is to have.
            gpus: That each is to have.
        """
        self._each = {name: each for name, each in (("CPU", cpus), ("GPU", gpus)) if each}
        self._waiting: dict[ray.ObjectRef[Any], PlacementGroup] = {}

    def ask(self, count: int) -> None:
        """Give back what Ray has found, and ask for so much in all.

        Room that was found is held by nobody afterwards, and free for work.

        Args:
            count: For how many packs, at once and on whichever nodes.
        """
        if not self._each:
            return
        import ray
        from ray.util import placement_group, remove_placement_group

        waiting = [*self._waiting]
        found, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        for reference in (*found, *waiting[max(count, 0) :]):
            remove_placement_group(self._waiting.pop(reference))
        for _ in range(count - len(self._waiting)):
            group = placement_group([self._each])
            self._waiting[group.ready()] = group

    def __enter__(self) -> Demand:
        """Ask within a block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ask for nothing any more."""
        self.ask(0)


def managed() -> bool:
    """Whether someone beside the user starts nodes of this cluster, who may start more."""
    import ray

    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return any(_GROUP in node["Labels"] for node in nodes) or any(
        not kind.startswith(_UNMANAGED) for kind in _older().get("active_nodes") or ()
    )


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
    wanted = {name: each for name, each in (("CPU", cpus), ("GPU", gpus)) if each}
    refused = (
        dict(request.resources_bundle)
        for group in state.infeasible_gang_resource_requests
        for request in group.requests
    )
    return "hopeless" if wanted in refused else "unknown"


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
    """How the older autoscaler stands; empty where there is none."""
    from ray.experimental.internal_kv import _internal_kv_get

    told = _internal_kv_get(_OLDER)
    return json.loads(told)["autoscaler_report"] if told else {}
