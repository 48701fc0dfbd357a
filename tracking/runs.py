"""How a sweep lies in MLflow, and how to find it there.

One experiment per study, in it one parent run per sweep (tag `kind` = `sweep`), under that one
child run per point (tag `point_id`). MLflow cannot refuse a second run for the same point, so two
processes that record at once may each create one. Which of them stays follows from tags alone:
every process decides alike, deletes the others, and moves children to the parent that stayed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracking.errors import TrackingError
from tracking.store import artifact_root

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

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
COMPLETE = ("FINISHED", "KILLED", "FAILED")
TAGS_OF_CHILD = (PARENT, POINT_ID, CONTENT, ATTEMPTED, FINISHED_AT, RECORDED_AT)

_PAGE = 1000
_ONE_BY_ONE = 100
_MOST_PAGES = 4000


@dataclass(frozen=True)
class Home:
    """Where a sweep's points are: its experiment and its parent run."""

    experiment_id: str
    parent_id: str


@dataclass(frozen=True, slots=True)
class Child:
    """What is known of a point's run, without its many values.

    Attributes:
        run_id: MLflow's.
        point_id: The point's.
        parent_id: The run above it; None without any.
        content: Its `content` tag, a digest of what it says; None without any.
        attempted: How many replicates the point had when it was recorded; -1 when unknown.
        complete: Whether all was written.
        finished_at: When the point finished, Unix seconds; 0 when unknown.
        recorded_at: When the run was created, Unix seconds; infinite when unknown.
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
    def of(cls, run_id: str, status: str, tags: Mapping[str, str]) -> Child:
        """What a point's run says; anybody may have written its tags, but for the point's id."""
        return cls(
            run_id=run_id,
            point_id=tags[POINT_ID],
            parent_id=tags.get(PARENT),
            content=tags.get(CONTENT),
            attempted=int(_matching(r"\d{1,9}", tags.get(ATTEMPTED), "-1")),
            complete=status in COMPLETE,
            # As `repr` writes a Unix time; anything else, NaN above all, has no place in an order.
            finished_at=float(_matching(r"\d{1,12}\.\d{1,20}", tags.get(FINISHED_AT), "0")),
            recorded_at=_recorded_at(tags),
        )


def child(run: Run) -> Child:
    """What is known of a point's run."""
    return Child.of(str(run.info.run_id), run.info.status, run.data.tags)


def find_home(client: MlflowClient, sweep: str, study: str | None) -> Home | None:
    """The sweep's home, or None when MLflow has none.

    Args:
        client: Of the store.
        sweep: The sweep's name.
        study: The experiment's name; None to look in all.

    Raises:
        TrackingError: If several experiments hold a sweep of that name.
    """
    parents = _parents(client, sweep, study)
    return _home(parents[0]) if parents else None


def make_home(client: MlflowClient, sweep: str, study: str | None, uri: str) -> Home:
    """The sweep's home, created where MLflow has none; of several parents one is left.

    Args:
        client: Of the store.
        sweep: The sweep's name.
        study: The experiment's name; None for the one that holds the sweep, or else `sweep`.
        uri: The store's resolved URI.

    Raises:
        TrackingError: If the experiment was deleted, or several hold a sweep of that name.
    """
    parents = _parents(client, sweep, study)
    if not parents:
        experiment_id = _make_experiment(client, study or sweep, uri)
        _make_parent(client, experiment_id, sweep, study or sweep)
        parents = _parents(client, sweep, study or sweep)
    if not parents:
        raise TrackingError(f"the sweep {sweep!r} was deleted while it was being recorded.")
    home = _home(parents[0])
    for parent in parents[1:]:
        _dissolve(client, parent, home)
    return home


def children(client: MlflowClient, home: Home, sweep: str) -> Iterator[Run]:
    """Every child run of the sweep, complete or not, in a stable order."""
    runs = search(client, [home.experiment_id], f"tags.{SWEEP} = {_quoted(sweep)}")
    return (run for run in runs if POINT_ID in run.data.tags)


def children_of(client: MlflowClient, home: Home, sweep: str, ids: Sequence[str]) -> Iterator[Run]:
    """The child runs of the points in `ids`: a search each when they are few, else one for all."""
    if len(ids) > _ONE_BY_ONE:
        asked = set(ids)
        return (r for r in children(client, home, sweep) if r.data.tags[POINT_ID] in asked)
    in_sweep = f"tags.{SWEEP} = {_quoted(sweep)}"
    return (
        run
        for point_id in ids
        for run in search(
            client, [home.experiment_id], f"tags.{POINT_ID} = {_quoted(point_id)} and {in_sweep}"
        )
    )


def settle(
    client: MlflowClient, home: Home, children: Iterable[Child], wanted: Mapping[str, str]
) -> dict[str, Child]:
    """Leave one run per point, under the parent: the first in the order of `grouped`.

    Args:
        client: Of the store.
        home: The sweep's home.
        children: Child runs of the sweep.
        wanted: Point id to the `content` tag that its run should have, where that is known; of
            runs with as many replicates, the one that has it comes first.

    Returns:
        Point id to the run that stayed.
    """
    groups: dict[str, list[Child]] = {}
    for one in children:
        groups.setdefault(one.point_id, []).append(one)
    kept: dict[str, Child] = {}
    for point_id, group in groups.items():
        kept[point_id], *others = sorted(group, key=lambda c: _rank(c, wanted.get(point_id)))
        for other in others:
            delete(client, other.run_id)
        if kept[point_id].parent_id != home.parent_id:
            client.set_tag(kept[point_id].run_id, PARENT, home.parent_id)
    return kept


def grouped(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs by point id, in each group the one that is to stay first.

    That is the one with the most replicates; of those the one whose point finished last, then the
    one created first.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.data.tags[POINT_ID], []).append(run)
    return {
        point_id: sorted(group, key=lambda run: _rank(child(run), None))
        for point_id, group in groups.items()
    }


def delete(client: MlflowClient, run_id: str) -> None:
    """Delete a run, unless another process has just done so."""
    from mlflow.exceptions import MlflowException

    try:
        client.delete_run(run_id)
    except MlflowException:
        if not deleted(client, run_id):
            raise


def deleted(client: MlflowClient, run_id: str) -> bool:
    """Whether a run is gone."""
    return str(client.get_run(run_id).info.lifecycle_stage) == "deleted"


def search(client: MlflowClient, experiment_ids: list[str], filter_string: str) -> Iterator[Run]:
    """Every run that matches, however many: MLflow's own search stops at a thousand."""
    token: str | None = None
    seen: set[str] = set()
    for _ in range(_MOST_PAGES):
        page = client.search_runs(
            experiment_ids,
            filter_string,
            max_results=_PAGE,
            order_by=["attributes.run_id ASC"],
            page_token=token,
        )
        # Pages count from the start, so runs created meanwhile may push one onto two pages.
        fresh = [run for run in page if run.info.run_id not in seen]
        seen.update(run.info.run_id for run in fresh)
        yield from fresh
        token = page.token
        if not token:
            return
        if not fresh:
            break
    raise TrackingError("the tracking server's search for runs does not come to an end.")


def now() -> str:
    """The present moment as the `recorded_at` tag, which orders runs by their creation."""
    return f"{time.time():.6f}"


def _rank(child: Child, wanted: str | None) -> tuple[int, bool, float, float, str]:
    other = wanted is not None and child.content != wanted
    seniority = (child.recorded_at, child.run_id)
    return (-child.attempted, other, -child.finished_at, *seniority)


def _seniority(run: Run) -> tuple[float, str]:
    return (_recorded_at(run.data.tags), run.info.run_id)


def _recorded_at(tags: Mapping[str, str]) -> float:
    return float(_matching(r"\d{1,12}\.\d{6}", tags.get(RECORDED_AT), "inf"))


def _matching(pattern: str, text: str | None, otherwise: str) -> str:
    return text if text is not None and re.fullmatch(pattern, text) else otherwise


def _experiment_ids(client: MlflowClient, study: str | None) -> list[str]:
    if study is not None:
        found = client.get_experiment_by_name(study)
        return [found.experiment_id] if found and found.lifecycle_stage == "active" else []
    ids: dict[str, None] = {}
    token: str | None = None
    for _ in range(_MOST_PAGES):
        before = len(ids)
        page = client.search_experiments(max_results=_PAGE, page_token=token)
        ids.update(dict.fromkeys(experiment.experiment_id for experiment in page))
        token = page.token
        if not token:
            return list(ids)
        if len(ids) == before:
            break
    raise TrackingError("the tracking server's list of studies does not come to an end.")


def _parents(client: MlflowClient, sweep: str, study: str | None) -> list[Run]:
    chosen = f"tags.{KIND} = 'sweep' and tags.{SWEEP} = {_quoted(sweep)}"
    ids = _experiment_ids(client, study)
    found = sorted(search(client, ids, chosen), key=_seniority) if ids else []
    if len({run.info.experiment_id for run in found}) > 1:
        raise TrackingError(f"several studies hold a sweep named {sweep!r}: say which study.")
    return found


def _home(parent: Run) -> Home:
    return Home(str(parent.info.experiment_id), str(parent.info.run_id))


def _dissolve(client: MlflowClient, parent: Run, home: Home) -> None:
    of_parent = f"tags.`{PARENT}` = '{parent.info.run_id}'"
    for child in search(client, [home.experiment_id], of_parent):
        client.set_tag(child.info.run_id, PARENT, home.parent_id)
    delete(client, parent.info.run_id)


def _make_experiment(client: MlflowClient, name: str, uri: str) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        root = artifact_root(uri)
        folder = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
        try:
            return client.create_experiment(name, root and f"{root}/{folder}")
        except MlflowException:
            # Another process may have created it since.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise TrackingError(
            f"the experiment {name!r} was deleted in MLflow; restore it with "
            f"`mlflow experiments restore -x {found.experiment_id}`, or choose another name."
        )
    return str(found.experiment_id)


def _make_parent(client: MlflowClient, experiment_id: str, sweep: str, study: str) -> None:
    tags = {KIND: "sweep", SWEEP: sweep, RECORDED_AT: now(), NOTE: _description(sweep, study)}
    client.create_run(experiment_id, tags=tags, run_name=sweep)


def _description(sweep: str, study: str) -> str:
    return (
        f"The sweep **{sweep}** of the study **{study}**. Each run under this one is a trade-off "
        "point: one configuration, with every metric its mean over replicates and beside it "
        "`.std`, `.ci_low` and `.ci_high` (95%). To compare points, select them in the table; for "
        "a knob on a logarithmic scale choose its `log10_` parameter. This run's artifacts hold "
        "the specification, all points, the Pareto front and the report.\n\n"
        f"`sweeps points {sweep}` and `sweeps pareto {sweep}` give the same as tables."
    )


def _quoted(text: str) -> str:
    quote = '"' if "'" in text else "'"
    if quote in text or "\\" in text:
        raise TrackingError(f"MLflow cannot search for a name with quotes or backslashes: {text!r}")
    return f"{quote}{text}{quote}"
