"""Data sets on the nodes of a cluster: one Ray task per node lists or fetches them.

Each node reads and writes its own data directory; no data pass through the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pydantic import BaseModel, ConfigDict

from cluster.connection import connect
from cluster.nodes import NoAnswer, node_names, on_every_node
from privnets import data
from privnets.data.bundled import BundledSource
from sweeps.planning.node_data import no_data_reason
from sweeps.remote.commands import check_remote_path, parse_reply, run_remotely
from sweeps.remote.environment import is_job_server

FETCH_SECONDS: Final = 3600.0

_JOB_SECONDS: Final = 120.0  # Ray needs them to start a job.


class NodeData(BaseModel):
    """State and place of each data set of one node, or the files it fetched, or its failure."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sets: dict[str, tuple[str, str]] = {}
    files: tuple[str, ...] = ()
    problem: str | None = None


def data_variables(directory: str | None) -> dict[str, str]:
    """Returns the environment variables that select a data directory."""
    return {} if directory is None else {"PRIVNETS_DATA": directory}


def ask_nodes(
    address: str,
    words: list[str],
    directory: str | None,
    seconds: float,
    function: Callable[..., NodeData],
    *arguments: object,
) -> dict[str, NodeData]:
    """Calls `local_data` or `fetch_local` on every node, within `seconds` each.

    A job server runs `sweeps data` with `words` for it.

    Returns:
        Results by node name.
    """
    if is_job_server(address):
        check_remote_path("--data", directory)
        words = ["data", *words, "--address", "auto", "--json"]
        reply = run_remotely(address, words, data=directory, timeout=seconds + _JOB_SECONDS)
        return parse_reply(dict[str, NodeData], reply)
    variables = data_variables(directory)
    with connect(address):
        answers = on_every_node(function, *arguments, seconds=seconds, environment=variables)
    names = node_names(answers)
    return {
        names[node]: NodeData(problem=no_data_reason(a)) if isinstance(a, NoAnswer) else a
        for node, a in answers.items()
    }


def local_data() -> NodeData:
    """Returns the data sets of this machine."""
    return NodeData(sets={name: (data.status(name), place_of(name)) for name in data.names()})


def fetch_local(name: str, source: str | None) -> NodeData:
    """Fetches a data set to this machine, once for all processes that ask at the same time."""
    paths = data.fetch(name) if source is None else data.copy(name, source)
    return NodeData(files=tuple(map(str, paths)))


def place_of(name: str) -> str:
    """Returns the directory of a data set, or the package that ships it."""
    source = data.DATASETS.get(name)
    if source.info.files or source.info.lists:
        return str(source.info.folder)
    is_bundled = isinstance(source, BundledSource)
    return "scikit-learn" if is_bundled else type(source).__module__.partition(".")[0]
