"""Layout of a sweep in MLflow: one experiment per study, a parent run per sweep, a run per point.

The parent run has the tag `kind` = `sweep`, each child run a tag `point_id`. MLflow cannot reject
a second run for the same point, so two processes that record at the same time may each create
one. Tags alone decide which run stays: all processes decide alike, delete the others, and move
children to the remaining parent.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.store.entities import PagedList

from tracking.client import connect, translate_errors
from tracking.errors import TrackingError
from tracking.uris import artifact_root

T = TypeVar("T")

PARENT = "mlflow.parentRunId"
NOTE = "mlflow.note.content"
KIND = "kind"
SWEEP = "sweep"
POINT_ID = "point_id"
ATTEMPTED = "replicates_attempted"
RECORDED_AT = "recorded_at"
FINISHED_AT = "finished_at"
CONTENT = "content"
CURVES = "curve/"
ROC = "roc/"
"""Prefix of curves over false-positive rates. MLflow draws metrics over the steps of a training, so
these curves are in a file of the run."""
DETAILS = "mlflow.details."
"""Prefix of tags with the metrics that are not logged; MLflow's pages hide such tags."""
FIRST = "_"
"""Prefix of copies of objectives and swept fields, so that they lead MLflow's sorted lists."""

VIEW = "mlflow.sharedViewState."
"""Prefix of an experiment's tag that holds a view of MLflow's pages: filter, columns, charts."""

COMPLETE = ("FINISHED", "KILLED", "FAILED")
CHILD_TAGS = (PARENT, POINT_ID, CONTENT, ATTEMPTED, FINISHED_AT, RECORDED_AT)

_PAGE_SIZE = 1000
_MAX_PAGES = 4000
_MLFLOW_DEFAULT_EXPERIMENT = "Default"


@dataclass(frozen=True)
class ParentRun:
    """Parent run of a sweep, and the experiment that contains it."""

    experiment_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class ChildRun:
    """Run of a point, without its metrics.

    Attributes:
        run_id: Id of the run.
        point_id: Id of the point.
        parent_id: Id of the parent run; None without one.
        content: Digest of the record that was written; None where absent.
        attempted: Number of replicates at recording time; -1 where unknown.
        complete: Whether everything was written.
        finished_at: Unix seconds at which the point finished; 0 where unknown.
        recorded_at: Unix seconds at which the run was created; infinite where unknown.
    """

    run_id: str
    point_id: str
    parent_id: str | None
    content: str | None
    attempted: int
    complete: bool
    finished_at: float
    recorded_at: float

    @classmethod
    def from_tags(cls, run_id: str, status: str, tags: Mapping[str, str]) -> ChildRun:
        """Reads a run from its tags. They are untrusted, except that a point id is present."""
        return cls(
            run_id=run_id,
            point_id=tags[POINT_ID],
            parent_id=tags.get(PARENT),
            content=tags.get(CONTENT),
            attempted=int(_match_or(r"\d{1,9}", tags.get(ATTEMPTED), "-1")),
            complete=status in COMPLETE,
            # Other texts, such as NaN, cannot be ordered.
            finished_at=float(_match_or(r"\d{1,12}\.\d{1,20}", tags.get(FINISHED_AT), "0")),
            recorded_at=_recorded_at(tags),
        )


def child_run(run: Run) -> ChildRun:
    """Returns the `ChildRun` of an MLflow run."""
    return ChildRun.from_tags(str(run.info.run_id), run.info.status, run.data.tags)


def find_parent(client: MlflowClient, sweep: str, study: str | None) -> ParentRun | None:
    """Returns the parent run of a sweep, None where MLflow has none.

    Without a study it searches all experiments.

    Raises:
        TrackingError: If several experiments hold a sweep of that name.
    """
    parents = _search_parents(client, sweep, study)
    return _parent(parents[0]) if parents else None


def get_or_create_parent(
    client: MlflowClient, sweep: str, study: str | None, uri: str, started: float | None = None
) -> ParentRun:
    """Returns the parent run of a sweep, created where absent; of several one remains.

    Without a study it uses the experiment that holds the sweep, or else one of the sweep's name.
    A run that is created began at `started`, in Unix seconds; by default now.

    Raises:
        TrackingError: If the experiment was deleted, or several hold a sweep of that name.
    """
    parents = _search_parents(client, sweep, study)
    if not parents:
        experiment_id = _get_or_create_experiment(client, study or sweep, uri)
        _create_parent(client, experiment_id, sweep, study or sweep, started)
        parents = _search_parents(client, sweep, study or sweep)
    if not parents:
        raise TrackingError(f"the sweep {sweep!r} was deleted while it was being recorded.")
    parent = _parent(parents[0])
    for duplicate in parents[1:]:
        condition = f"tags.`{PARENT}` = '{duplicate.info.run_id}'"
        for child in search_runs(client, [parent.experiment_id], condition):
            client.set_tag(child.info.run_id, PARENT, parent.run_id)
        delete_run(client, duplicate.info.run_id)
    return parent


def children(client: MlflowClient, parent: ParentRun, sweep: str) -> Iterator[Run]:
    """Yields every child run of a sweep, complete or not, in a stable order."""
    runs = search_runs(client, [parent.experiment_id], f"tags.{SWEEP} = {_quote(sweep)}")
    return (run for run in runs if POINT_ID in run.data.tags)


def resolve_duplicates(
    client: MlflowClient,
    parent: ParentRun,
    children: Iterable[ChildRun],
) -> dict[str, ChildRun]:
    """Deletes all but one run per point, in the order of `group_by_point`.

    The remaining runs are moved below the parent.

    Returns:
        Point id to the remaining run.
    """
    groups = _group(children, lambda child: child)
    for first, *others in groups.values():
        for other in others:
            delete_run(client, other.run_id)
        if first.parent_id != parent.run_id:
            client.set_tag(first.run_id, PARENT, parent.run_id)
    return {point_id: group[0] for point_id, group in groups.items()}


def group_by_point(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Groups runs by point id, each group in order of preference.

    Complete runs come first; among them the one with the most replicates, then the one whose point
    finished last, then the one created first.
    """
    return _group(runs, child_run)


def delete_run(client: MlflowClient, run_id: str) -> None:
    """Deletes a run unless another process has just deleted it."""
    try:
        client.delete_run(run_id)
    except MlflowException:
        if not is_deleted(client, run_id):
            raise


def is_deleted(client: MlflowClient, run_id: str) -> bool:
    """Whether a run was deleted."""
    return str(client.get_run(run_id).info.lifecycle_stage) == "deleted"


def search_runs(
    client: MlflowClient, experiment_ids: list[str], filter_string: str
) -> Iterator[Run]:
    """Yields every matching run; a single search of MLflow stops at a thousand."""
    order = ["attributes.run_id ASC"]
    search = partial(client.search_runs, experiment_ids, filter_string, order_by=order)
    return _all_pages(search, lambda run: run.info.run_id)


def creation_timestamp() -> str:
    """Returns the current time as a `recorded_at` tag, which orders runs by their creation."""
    return f"{time.time():.6f}"


def study_pages(uri: str, limit: int) -> dict[str, str]:
    """Returns the MLflow pages of at most `limit` studies, those that changed last first.

    Returns:
        Study to the path of its page below the server's address.

    Raises:
        TrackingError: If the store fails or does not exist.
    """
    client = connect(uri)
    with translate_errors(uri):
        # One more, because MLflow's own empty experiment is left out.
        experiments = client.search_experiments(
            max_results=limit + 1, order_by=["last_update_time DESC"]
        )
    ids = {e.name: e.experiment_id for e in experiments if e.name != _MLFLOW_DEFAULT_EXPERIMENT}
    return {name: runs_page(number) for name, number in list(ids.items())[:limit]}


def sweep_pages(uri: str, limit: int) -> dict[str, str]:
    """Returns the pages that compare the points of at most `limit` sweeps, the latest first.

    Returns:
        `SWEEP of STUDY` to the path of its page below the server's address. The page shows the
        sweep's points with the objectives as columns, or as axes of charts.

    Raises:
        TrackingError: If the store fails or does not exist.
    """
    client = connect(uri)
    with translate_errors(uri):
        experiments = {
            e.experiment_id: e for e in client.search_experiments(max_results=_PAGE_SIZE)
        }
        parents = client.search_runs(
            list(experiments),
            f"tags.{KIND} = 'sweep'",
            max_results=limit,
            order_by=["attributes.start_time DESC"],
        )
    pages = {}
    for parent in parents:
        sweep, experiment = parent.data.tags[SWEEP], experiments[parent.info.experiment_id]
        page = runs_page(experiment.experiment_id)
        if f"{VIEW}{sweep}" in experiment.tags:
            page += f"&compareRunsMode=CHART&viewStateShareKey={quote(sweep)}"
        pages[f"{sweep} of {experiment.name}"] = page
    return pages


def study_page(uri: str, study: str) -> str | None:
    """Returns the MLflow page of a study, None where the store does not hold it.

    Raises:
        TrackingError: If the store fails or does not exist.
    """
    client = connect(uri)
    with translate_errors(uri):
        experiment = client.get_experiment_by_name(study)
    return None if experiment is None else runs_page(experiment.experiment_id)


def runs_page(experiment_id: str) -> str:
    """Returns the path of an experiment's page, in the mode that shows runs."""
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning"


def _group(runs: Iterable[T], read: Callable[[T], ChildRun]) -> dict[str, list[T]]:
    groups: dict[str, list[tuple[ChildRun, T]]] = {}
    for run in runs:
        child = read(run)
        groups.setdefault(child.point_id, []).append((child, run))

    def rank(pair: tuple[ChildRun, T]) -> tuple[bool, int, float, float, str]:
        child, _ = pair
        newest = (-child.attempted, -child.finished_at)
        return (not child.complete, *newest, child.recorded_at, child.run_id)

    return {i: [run for _, run in sorted(group, key=rank)] for i, group in groups.items()}


def _recorded_at(tags: Mapping[str, str]) -> float:
    return float(_match_or(r"\d{1,12}\.\d{6}", tags.get(RECORDED_AT), "inf"))


def _match_or(pattern: str, text: str | None, default: str) -> str:
    return text if text is not None and re.fullmatch(pattern, text) else default


def _experiment_ids(client: MlflowClient, study: str | None) -> list[str]:
    if study is not None:
        experiment = client.get_experiment_by_name(study)
        if experiment is None or experiment.lifecycle_stage != "active":
            return []
        return [experiment.experiment_id]
    experiments = _all_pages(client.search_experiments, lambda found: found.experiment_id)
    return [experiment.experiment_id for experiment in experiments]


def _all_pages(search: Callable[..., PagedList[T]], identify: Callable[[T], str]) -> Iterator[T]:
    token: str | None = None
    seen: set[str] = set()
    for _ in range(_MAX_PAGES):
        page = search(max_results=_PAGE_SIZE, page_token=token)
        # Pages count from the start, so an item created meanwhile may shift one to the next page.
        new = {identify(item): item for item in page if identify(item) not in seen}
        seen.update(new)
        yield from new.values()
        token = page.token
        if not token:
            return
        if not new:
            break
    raise TrackingError("the tracking server's search does not end.")


def _search_parents(client: MlflowClient, sweep: str, study: str | None) -> list[Run]:
    condition = f"tags.{KIND} = 'sweep' and tags.{SWEEP} = {_quote(sweep)}"
    ids = _experiment_ids(client, study)
    found = search_runs(client, ids, condition) if ids else ()
    parents = sorted(found, key=lambda run: (_recorded_at(run.data.tags), run.info.run_id))
    if len({run.info.experiment_id for run in parents}) > 1:
        raise TrackingError(f"several studies hold a sweep named {sweep!r}: name the study.")
    return parents


def _parent(run: Run) -> ParentRun:
    return ParentRun(str(run.info.experiment_id), str(run.info.run_id))


def _get_or_create_experiment(client: MlflowClient, name: str, uri: str) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        root = artifact_root(uri)
        folder = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
        try:
            return client.create_experiment(name, root and f"{root}/{folder}")
        except MlflowException:
            # Another process may have created it meanwhile.
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage != "active":
        raise TrackingError(
            f"the experiment {name!r} was deleted in MLflow; restore it with "
            f"`mlflow experiments restore -x {experiment.experiment_id}`, or choose another name."
        )
    return str(experiment.experiment_id)


def _create_parent(
    client: MlflowClient, experiment_id: str, sweep: str, study: str, started: float | None
) -> None:
    note = sweep_note(sweep, study)
    tags = {KIND: "sweep", SWEEP: sweep, RECORDED_AT: creation_timestamp(), NOTE: note}
    moment = None if started is None else max(1, round(started * 1000))
    client.create_run(experiment_id, moment, tags=tags, run_name=sweep)


def sweep_note(sweep: str, study: str, headline: str = "") -> str:
    """Returns the description of a sweep's parent run, which leads with the headline."""
    return f"{headline}\n\n".lstrip() + (
        f"Sweep **{sweep}** of the study **{study}**. Each child run is a trade-off point: one "
        "configuration. Every metric is a mean over replicates. To compare points, select them in "
        "the table. For a knob on a logarithmic scale choose its `log10_` parameter. The artifacts "
        "of this run are the specification, all points, the Pareto front and the report.\n\n"
        f"`sweeps points {sweep}` and `sweeps pareto {sweep}` print the same tables."
    )


def _quote(text: str) -> str:
    mark = '"' if "'" in text else "'"
    if mark in text or "\\" in text:
        raise TrackingError(f"MLflow cannot search for a name with quotes or backslashes: {text!r}")
    return f"{mark}{text}{mark}"
