"""Autoscaling of a cluster: demanding a node, and whether the autoscaler may bring one.

Ray's autoscalers, old and new, start nodes for placement groups that wait, as Tune's pending trials
do. Before there are trials, `demand_node` lets one wait. A driver that dies takes its demand along,
unlike with `ray.autoscaler.sdk.request_resources`, which has one slot for a whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import ray
from ray.exceptions import RpcError
from ray.util import placement_group, remove_placement_group

from cluster.ray_internals import AutoscalerReport, autoscaler_report

Outlook = Literal["none", "possible", "refused"]


@contextmanager
def demand_node(bundle: Mapping[str, float]) -> Iterator[None]:
    """Demands room for one pack while the block runs, and holds that room if there is some.

    Args:
        bundle: Amounts of Ray's resources, as `{"CPU": 1}`.
    """
    group = placement_group([dict(bundle)]) if bundle else None
    try:
        yield
    finally:
        if group is not None:
            remove_placement_group(group)


def autoscaler_outlook(bundle: Mapping[str, float]) -> Outlook:
    """Whether an autoscaler may bring a node with room for a pack that is in demand.

    Returns:
        `none` without an autoscaler, `refused` if it reports that no type of node has such
        room, `possible` otherwise.
    """
    try:
        report = autoscaler_report()
    except RpcError:  # a busy head answers the next call
        return "possible"
    if not _has_autoscaler(report):
        return "none"
    return "refused" if dict(bundle) in report.infeasible else "possible"


def _has_autoscaler(report: AutoscalerReport) -> bool:
    """Whether nodes are managed; shortly after a head's start this may not be known yet."""
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    if any("ray.io/node-group" in node["Labels"] for node in nodes):
        return True
    # The older autoscaler counts nodes that it does not manage by these names.
    return any(not kind.startswith(("node_", "local.cluster.node")) for kind in report.node_types)
