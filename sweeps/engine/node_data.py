"""Data sets on the nodes of a cluster: one Ray task per node lists, fetches or checks them.

Each node reads and writes its own data directory; no data pass through the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from cluster.connection import connect
from cluster.nodes import NoAnswer, node_names, on_every_node
from privnets import data
from privnets.data import user_files
from privnets.data.bundled import BundledSource
from privnets.data.user_files import portable_folder, set_portable_folder
from sweeps.errors import InputError, StudyError
from sweeps.planning.continuation import names_user_files
from sweeps.planning.plan import Plan, data_fingerprints
from sweeps.study.loader import read_study
from sweeps.study.spec import StudySource
from sweeps.study.validation import validate_study

LIST_SECONDS: Final = 120.0
FETCH_SECONDS: Final = 3600.0

_FETCH_ADVICE = (
    "`sweeps data fetch NAME --address ADDRESS` fetches a data set on every node; add --from DIR "
    "to copy it from a directory that all nodes see. A file of your own must have the same path "
    "on every node; `sweeps submit` ships those beside the study"
)


class NodeData(BaseModel):
    """State and place of each data set of one node, or the files it fetched, or its failure."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sets: dict[str, tuple[str, str]] = {}
    files: tuple[str, ...] = ()
    problem: str | None = None


def data_variables(directory: str | None) -> dict[str, str]:
    """Returns the environment variables that select a data directory."""
    return {} if directory is None else {"PRIVNETS_DATA": directory}


def run_on_nodes(
    address: str,
    directory: str | None,
    seconds: float,
    function: Callable[..., NodeData],
    *arguments: object,
) -> dict[str, NodeData]:
    """Joins a Ray, and calls `local_data` or `fetch_local` on every node within `seconds` each.

    Returns:
        Results by node name.
    """
    variables = data_variables(directory)
    with connect(address):
        answers = on_every_node(function, *arguments, seconds=seconds, environment=variables)
    names = node_names(answers)
    return {
        names[node]: NodeData(problem=_reason(a)) if isinstance(a, NoAnswer) else a
        for node, a in answers.items()
    }


def check_data_on_nodes(plan: Plan) -> None:
    """Checks that every node has the data that a plan was made from; needs a connection to Ray.

    A node that does not answer is skipped: it fails its packs, with the reason, if data are absent.

    Raises:
        InputError: If a node lacks data, or has others under the same name.
    """
    expected = data_fingerprints(plan.study.experiment, plan.samples)
    study, source = plan.study.to_dict(), plan.study.source
    folder = portable_folder(source.folder)
    answers = on_every_node(local_fingerprints, study, folder, source.file, seconds=LIST_SECONDS)
    names = node_names(answers)
    problems = {names[node]: _data_problem(expected, answer) for node, answer in answers.items()}
    if lines := [f"node {name}: {problem}" for name, problem in problems.items() if problem]:
        raise InputError(f"{'; '.join(lines)}. {_FETCH_ADVICE}")


def local_data() -> NodeData:
    """Returns the data sets of this machine."""
    return NodeData(sets={name: (data.status(name), place_of(name)) for name in data.names()})


def fetch_local(name: str, source: str | None) -> NodeData:
    """Fetches a data set to this machine, once for all processes that ask at the same time."""
    paths = data.fetch(name) if source is None else data.copy(name, source)
    return NodeData(files=tuple(map(str, paths)))


def local_fingerprints(
    study: Mapping[str, Any], folder: str = ".", file: str = "study"
) -> dict[str, str]:
    """Returns the fingerprint of each data set of a study; `DataError` if one is not intact.

    Args:
        study: The study as plain values.
        folder: Its folder, as `portable_folder` describes it.
        file: Its file, for error messages.
    """
    set_portable_folder(folder)
    loaded = read_study(study, StudySource(file, folder=user_files.folder()))
    validated = validate_study(loaded, data=names_user_files(loaded))
    if validated.errors:
        raise StudyError(validated.errors)
    return data_fingerprints(str(study["experiment"]), validated.configs)


def place_of(name: str) -> str:
    """Returns the directory of a data set, or the package that ships it."""
    source = data.DATASETS.get(name)
    if source.info.files or source.info.lists:
        return str(source.info.folder)
    is_bundled = isinstance(source, BundledSource)
    return "scikit-learn" if is_bundled else type(source).__module__.partition(".")[0]


def _data_problem(expected: Mapping[str, str], answer: Mapping[str, str] | NoAnswer) -> str | None:
    if isinstance(answer, NoAnswer):
        return None if answer.is_lost else _reason(answer).rstrip(".")
    others = sorted(name for name in expected if answer.get(name) != expected[name])
    return f"its {', '.join(others)} differs from the driver's" if others else None


def _reason(answer: NoAnswer) -> str:
    return answer.reason.removeprefix("DataError: ").removeprefix("StudyError: ")
