"""Data sets on all nodes of a cluster; each node gets its own, and none pass through the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from sweeps.engine import node_data
from sweeps.engine.handing_over import (
    check_place,
    check_public,
    is_job_server,
    run_on_cluster,
)
from sweeps.engine.node_data import OnNode
from sweeps.errors import InputError

if TYPE_CHECKING:
    from cluster.nodes import NoAnswer
    from sweeps.planning.plan import Plan

Nodes: TypeAlias = dict[str, OnNode]
"""Node to what it has or got."""

LIST_SECONDS: Final = 120.0
FETCH_SECONDS: Final = 3600.0
"""That all nodes have to fetch a data set."""

_VARIABLE = "PRIVNETS_DATA"
_NODES = TypeAdapter(Nodes)
# For a job to start, and to be forgotten.
_MORE_SECONDS = 120.0
_REMEDY = (
    "`sweeps data fetch NAME --address ADDRESS` fetches a data set on every node, with --from DIR "
    "from a directory that all nodes see"
)


def environment(directory: str | None) -> dict[str, str]:
    """The variables by which nodes find a data directory other than their own."""
    return {} if directory is None else {_VARIABLE: directory}


def states(address: str, directory: str | None = None) -> Nodes:
    """What every node has.

    Args:
        address: Of a Ray to join, or of its job server.
        directory: The data directory on nodes; their own if None.

    Raises:
        ConnectError: If there is no Ray at the address, or it does not let us in.
        InputError: If the directory means something else over there.
        JobError: If the cluster cannot tell; the message is its own.
    """
    if is_job_server(address):
        return _through_jobs(address, ["list"], directory, LIST_SECONDS)
    return _joined(address, directory, LIST_SECONDS, node_data.states)


def get(name: str, source: str | None, address: str, directory: str | None = None) -> Nodes:
    """Have every node fetch a data set.

    Args:
        name: The data set.
        source: A directory or URI that every node can read; None for the public source.
        address: Of a Ray to join, or of its job server.
        directory: The data directory on nodes; their own if None.

    Raises:
        DataError: If there is no such data set.
        ConnectError: If there is no Ray at the address, or it does not let us in.
        InputError: If a path means something else over there, or holds a secret.
        JobError: If the cluster cannot be asked; the message is its own.
    """
    from privnets import data

    data.info(name)
    if not is_job_server(address):
        return _joined(address, directory, FETCH_SECONDS, node_data.get, name, source)
    check_public("--from", source, "put them into the environment of the cluster's nodes")
    check_place("--from", source)
    words = ["fetch", name, *(["--from", source] if source is not None else [])]
    return _through_jobs(address, words, directory, FETCH_SECONDS)


def as_json(nodes: Nodes) -> str:
    """What nodes have or got, for a machine that asked for it through a job server."""
    return _NODES.dump_json(nodes).decode()


def require(plan: Plan) -> None:
    """Refuse a sweep of which a node lacks the data, before anything starts.

    A node that is lost while it is asked, or does not answer in time, is no reason to refuse: it
    gets no pack, or tells in time what it lacks. Needs a connection to Ray.

    Args:
        plan: What the sweep trains.

    Raises:
        InputError: If a node has not the data that the plan was made from.
    """
    from cluster.nodes import node_names, on_every_node
    from sweeps.planning import plan as planning

    wanted = planning.data_fingerprints(
        plan.study.experiment, (point.config for point in plan.points)
    )
    told = on_every_node(node_data.fingerprints, plan.study.to_dict(), seconds=LIST_SECONDS)
    called = node_names(told)
    lacks = {called[machine]: _lack(wanted, found) for machine, found in told.items()}
    if wrong := [f"node {node}: {lack}" for node, lack in lacks.items() if lack is not None]:
        raise InputError(f"{'; '.join(wrong)}. {_REMEDY}")


def _lack(wanted: Mapping[str, str], found: Mapping[str, str] | NoAnswer) -> str | None:
    """What a node lacks of the data that are wanted, in words; None if nothing."""
    from cluster.nodes import NoAnswer

    if isinstance(found, NoAnswer):
        return None if found.is_lost else found.reason.removeprefix("DataError: ").rstrip(".")
    others = sorted(name for name in wanted if found.get(name) != wanted[name])
    return f"other data than the driver's go by the name {', '.join(others)}" if others else None


def _joined(
    address: str,
    directory: str | None,
    seconds: float,
    function: Callable[..., OnNode],
    *args: object,
) -> Nodes:
    from cluster.connection import connect
    from cluster.nodes import NoAnswer, node_names, on_every_node

    with connect(address):
        told = on_every_node(function, *args, seconds=seconds, environment=environment(directory))
    called = node_names(told)
    return {
        called[machine]: OnNode(problem=found.reason.removeprefix("DataError: "))
        if isinstance(found, NoAnswer)
        else found
        for machine, found in told.items()
    }


def _through_jobs(
    address: str, words: Sequence[str], directory: str | None, seconds: float
) -> Nodes:
    check_place("--data", directory)
    said = run_on_cluster(
        address,
        ["data", *words, "--address", "auto", "--json"],
        environment=environment(directory),
        timeout=seconds + _MORE_SECONDS,
    )
    try:
        return _NODES.validate_json(said)
    except ValidationError as error:
        raise InputError(
            f"the cluster's answer is none of `sweeps data` ({error.errors()[0]['msg']}): "
            f"{said[:200]!r}"
        ) from error
