"""Asking every node of a cluster the same thing, within a bounded time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from cluster.connection import Machine

T = TypeVar("T")

SECONDS: Final = 60.0
"""That a node has to answer, the start of a process on it included."""

_FETCH_SECONDS = 5.0
_NAME_LENGTH = 8


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A node that did not do what it was asked.

    Attributes:
        reason: In words.
        silent: Whether nothing came back at all, as the node was lost or took too long; else it
            failed at what it was asked.
    """

    reason: str
    silent: bool = False


def on_every_node(
    function: Callable[..., T],
    *args: object,
    seconds: float = SECONDS,
    environment: Mapping[str, str] | None = None,
) -> dict[Machine, T | NoAnswer]:
    """Call a function on every node that is alive, on all at once; each takes no CPU from others.

    Needs a connection of Ray's own, as `connect` makes one. The function and the classes of what
    it takes and returns travel by name, so every node must have their modules.

    Args:
        function: What to call, one of a module's own.
        args: Its arguments.
        seconds: A node that has not answered by then is not waited for.
        environment: Variables to set for it, beside those that the node was started with.

    Returns:
        Node to what the function returned there, or why it did not.
    """
    import ray

    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    machines = [Machine.of(node) for node in nodes if node["Alive"]]
    options: dict[str, Any] = {"num_cpus": 0, "max_retries": 0}
    if environment:
        options["runtime_env"] = {"env_vars": dict(environment)}
    remote = ray.remote(**options)(_call)
    tasks = {
        machine: remote.options(scheduling_strategy=_pinned(machine)).remote(function, *args)
        for machine in machines
    }
    _, late = ray.wait(list(tasks.values()), num_returns=len(tasks), timeout=seconds)
    for task in late:
        ray.cancel(task, force=True)
    return {
        machine: NoAnswer(f"no answer within {seconds:g} s", True)
        if task in late
        else _answer(task)
        for machine, task in tasks.items()
    }


def names(machines: Iterable[Machine]) -> dict[Machine, str]:
    """What to call each: its host, with the begin of Ray's own name where a host has several."""
    known = list(machines)
    hosts = Counter(machine.host for machine in known)
    return {
        machine: machine.host
        if hosts[machine.host] == 1
        else f"{machine.host} ({machine.node[:_NAME_LENGTH]})"
        for machine in known
    }


def _pinned(machine: Machine) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(machine.node, soft=False)


def _call(function: Callable[..., T], *args: object) -> T | NoAnswer:
    """On the node. What is raised there travels as text: its class may be unknown elsewhere."""
    try:
        return function(*args)
    except Exception as error:  # whatever it is, others are asked too
        return NoAnswer(f"{type(error).__name__}: {error}")


def _answer(task: Any) -> Any:
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(task, timeout=_FETCH_SECONDS)
    except RayError as error:
        return NoAnswer(_last_line(str(error)), silent=not isinstance(error, RayTaskError))


def _last_line(text: str) -> str:
    """What a traceback ends in, or the only thing that is said."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it failed without a reason"
