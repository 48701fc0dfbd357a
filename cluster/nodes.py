"""Nodes of a cluster: calls of a function on every one, and demand for one more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.connection import Machine, alive_nodes

T = TypeVar("T")

SECONDS: Final = 60.0
"""Default time limit of a node's answer, including the start of a process on it."""

_FETCH_SECONDS = 5.0
_NAME_LENGTH = 8


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Result of a node on which the call failed.

    Attributes:
        reason: Description of the failure.
        is_lost: Whether the node was lost or took too long; False if the function raised.
    """

    reason: str
    is_lost: bool = False


def on_every_node(
    function: Callable[..., T],
    *args: object,
    seconds: float = SECONDS,
    environment: Mapping[str, str] | None = None,
) -> dict[Machine, T | NoAnswer]:
    """Calls a function on all nodes that are alive at the same time; reserves no CPU.

    Needs a connection to Ray. Every node must have the module of the function, and those of its
    arguments and result.

    Args:
        function: Function of a module.
        args: Its arguments.
        seconds: Time limit of each node.
        environment: Variables to set for the call, beside those of the node.
    """
    machines = [Machine.from_node(node) for node in alive_nodes()]
    options: dict[str, Any] = {"num_cpus": 0, "max_retries": 0}
    if environment:
        options["runtime_env"] = {"env_vars": dict(environment)}
    remote = ray.remote(**options)(_call)
    tasks = {
        machine: remote.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine.node, soft=False)
        ).remote(function, *args)
        for machine in machines
    }
    _, late = ray.wait(list(tasks.values()), num_returns=len(tasks), timeout=seconds)
    for task in late:
        ray.cancel(task, force=True)
    answers: dict[Machine, T | NoAnswer] = {}
    for machine, task in tasks.items():
        if task in late:
            answers[machine] = NoAnswer(f"no answer within {seconds:g} s", True)
            continue
        try:
            answers[machine] = ray.get(task, timeout=_FETCH_SECONDS)
        except RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = lines[-1] if lines else "it failed without a reason"
            answers[machine] = NoAnswer(reason, is_lost=not isinstance(error, RayTaskError))
    return answers


def node_names(machines: Iterable[Machine]) -> dict[Machine, str]:
    """Returns a name for each machine: host and IP, with Ray's node id where these are equal."""
    listed = list(machines)
    names = Counter(machine.name for machine in listed)
    return {
        machine: machine.name
        if names[machine.name] == 1
        else f"{machine.name}, {machine.node[:_NAME_LENGTH]}"
        for machine in listed
    }


@contextmanager
def demand_node(bundle: Mapping[str, float]) -> Iterator[None]:
    """Demands room for one pack while the block runs, and holds that room if there is some.

    Ray's autoscalers start nodes for placement groups that wait, as Tune's pending trials do. A
    driver that dies takes its demand along, unlike with `ray.autoscaler.sdk.request_resources`.

    Args:
        bundle: Amounts of Ray's resources, as `{"CPU": 1}`.
    """
    group = placement_group([dict(bundle)]) if bundle else None
    try:
        yield
    finally:
        if group is not None:
            remove_placement_group(group)


def _call(function: Callable[..., T], *args: object) -> T | NoAnswer:
    """Runs on the node. An exception travels as text: its class may not exist elsewhere."""
    try:
        return function(*args)
    except Exception as error:  # one node's failure must not hide the answers of others
        return NoAnswer(f"{type(error).__name__}: {error}")
