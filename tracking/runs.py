"""Child runs of a sweep: one per point, found by its tags.

MLflow cannot reject a second run for the same point, so two processes that record at the same time
may each create one. Tags alone decide which run stays: all processes decide alike, delete the
others, and move children to the remaining parent.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.store.entities import PagedList

from tracking.errors import TrackingError

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

COMPLETE = ("FINISHED", "KILLED", "FAILED")

_PAGE_SIZE = 1000
_MAX_PAGES = 4000


@dataclass(frozen=True, slots=True)
class ChildRun:
    """Run of a point, without its values.

    Attributes:
        run_id: Id of the run.
        point_id: Id of the point.
        parent_id: Id of the parent run; None without one.
        content: Digest of the record that was written; None where absent.
        attempted: Number of replicates at recording time; -1 where unknown.
        complete: Whether everything was written.
        finished_at: Unix seconds at which the point finished; 0 where unknown.
        recorded_at: Unix seconds at which the run was created; infinite where unknown.
        keys: Names of its metrics, without curves.
    """

    run_id: str
    point_id: str
    parent_id: str | None
    content: str | None
    attempted: int
    complete: bool
    finished_at: float
    recorded_at: float
    keys: frozenset[str]

    @classmethod
    def from_tags(
        cls, run_id: str, status: str, tags: Mapping[str, str], keys: frozenset[str]
    ) -> ChildRun:
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
            recorded_at=recorded_at(tags),
            keys=keys,
        )


def point_runs(client: MlflowClient, experiment_id: str, sweep: str) -> Iterator[Run]:
    """Yields the run of every point of a sweep, complete or not, in a stable order."""
    runs = search_runs(client, [experiment_id], f"tags.{SWEEP} = {quoted(sweep)}")
    return (run for run in runs if POINT_ID in run.data.tags)


def children(client: MlflowClient, experiment_id: str, sweep: str) -> Iterator[ChildRun]:
    """Yields what `point_runs` yields as `ChildRun`s; equal sets of keys are one object."""
    shared: dict[frozenset[str], frozenset[str]] = {}
    for run in point_runs(client, experiment_id, sweep):
        child = _child_run(run)
        yield replace(child, keys=shared.setdefault(child.keys, child.keys))


def resolve_duplicates(
    client: MlflowClient, parent_id: str, children: Iterable[ChildRun]
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
        if first.parent_id != parent_id:
            client.set_tag(first.run_id, PARENT, parent_id)
    return {point_id: group[0] for point_id, group in groups.items()}


def group_by_point(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Groups runs by point id, each group in order of preference.

    Complete runs come first; among them the one with the most replicates, then the one whose point
    finished last, then the one created first.
    """
    return _group(runs, _child_run)


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
    return all_pages(search, lambda run: run.info.run_id)


def all_pages(search: Callable[..., PagedList[T]], identify: Callable[[T], str]) -> Iterator[T]:
    """Yields the items of every page of a search, each once.

    Raises:
        TrackingError: If the pages do not end.
    """
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


def quoted(text: str) -> str:
    """Returns a text as it stands in a filter of MLflow's search."""
    mark = '"' if "'" in text else "'"
    if mark in text or "\\" in text:
        raise TrackingError(f"MLflow cannot search for a name with quotes or backslashes: {text!r}")
    return f"{mark}{text}{mark}"


def creation_timestamp() -> str:
    """Returns the current time as a `recorded_at` tag, which orders runs by their creation."""
    return f"{time.time():.6f}"


def recorded_at(tags: Mapping[str, str]) -> float:
    """Reads a `recorded_at` tag; infinite where it is absent or damaged."""
    return float(_match_or(r"\d{1,12}\.\d{6}", tags.get(RECORDED_AT), "inf"))


def _child_run(run: Run) -> ChildRun:
    keys = frozenset(key for key in run.data.metrics if not key.startswith(CURVES))
    return ChildRun.from_tags(str(run.info.run_id), run.info.status, run.data.tags, keys)


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


def _match_or(pattern: str, text: str | None, default: str) -> str:
    return text if text is not None and re.fullmatch(pattern, text) else default
