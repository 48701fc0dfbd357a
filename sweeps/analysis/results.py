"""Results of a sweep, as tables."""

from __future__ import annotations

import html
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pydantic import BaseModel

from privnets.contract import Direction
from privnets.points import TradeoffPoint
from sweeps.analysis.pareto import pareto_front
from sweeps.analysis.statistics import summarize_replicates
from sweeps.analysis.tables import INTERVAL_SUFFIXES, varying_fields
from sweeps.store.codec import parse_object
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import Manifest, read_manifest
from sweeps.store.reader import (
    STATUS_NAMES,
    Note,
    ReplicateTable,
    is_complete,
    is_fixed_column,
    is_metric_column,
    replicate_table,
)
from sweeps.study.spec import Study
from tracking.frame import POINT_COLUMNS, REPLICATE_COLUMNS, TableColumns, table_from_columns
from tracking.redaction import redact

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

DEFAULT_STORAGE = "./sweep-results"
_MAX_FAILURE_BYTES = 16 * 2**20


class _FailureRecord(BaseModel):
    members: tuple[tuple[str, int], ...]
    reason: str


@dataclass(frozen=True, repr=False)
class Result:
    """A sweep's complete points and its manifest.

    Attributes:
        manifest: Recorded facts of the sweep.
        failures: Failed pack to its reason.
        unreadable: Skipped file of the ledger to its reason.
    """

    manifest: Manifest
    failures: Mapping[str, str]
    unreadable: Mapping[str, str]
    _ledger: Ledger
    _packs: Sequence[str]
    _replicates: ReplicateTable

    def __repr__(self) -> str:
        """The sweep's name and size."""
        plan, done = self.manifest.plan, len(self._replicates)
        size = f"{done} of {plan.points} points, {len(plan.seeds)} replicates each"
        return f"Result({self.sweep!r}: {size}, in {redact(self.storage)})"

    def _repr_html_(self) -> str:
        """The sweep's size and its Pareto front, for notebooks."""
        columns = [f"config/{field}" for field in self.swept_fields]
        columns += [m + suffix for m in self.objectives for suffix in ("", *INTERVAL_SUFFIXES)]
        front = self.front()
        table = front[[column for column in columns if column in front]].to_html(index=False)
        return f"<p>{html.escape(repr(self))}</p><p>Pareto front:</p>{table}"

    @property
    def sweep(self) -> str:
        """Name of the sweep."""
        return self.manifest.sweep

    @property
    def storage(self) -> str:
        """Absolute storage directory or URI, with credentials if it was given any."""
        return self._ledger.storage

    @property
    def study(self) -> Study:
        """Study of the sweep."""
        return self.manifest.study

    @property
    def objectives(self) -> Mapping[str, Direction]:
        """Metric to `min` or `max`."""
        return self.manifest.plan.objectives

    @property
    def log_fields(self) -> frozenset[str]:
        """Swept fields on a logarithmic scale."""
        return frozenset(self.manifest.plan.log_fields)

    @property
    def swept_fields(self) -> list[str]:
        """Fields that identify a point: those of the search space, and others that differ."""
        return list(dict.fromkeys([*self.study.space, *varying_fields(self.points)]))

    @property
    def spec(self) -> Mapping[str, Any]:
        """Content of `spec.yaml`."""
        return self.manifest.model_dump(mode="json")

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of complete points that are `finished`, `stopped` and `failed`."""
        return self._replicates.counts

    @property
    def pending(self) -> int:
        """Number of points that still lack replicates."""
        return self.manifest.plan.points - len(self._replicates)

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row per complete point; see `tracking.points_frame`."""
        return build_points_frame(self._replicates, self.sweep)

    @cached_property
    def replicates(self) -> pd.DataFrame:
        """One row per complete point and replicate; see `tracking.replicates_frame`."""
        return build_replicates_frame(self._replicates, self.sweep)

    @cached_property
    def tradeoff_points(self) -> Sequence[TradeoffPoint]:
        """The complete points as objects, with curves, notes and files; slow for many points."""
        return list(self.select_points().values())

    def select_points(self, ids: Collection[str] | None = None) -> Mapping[str, TradeoffPoint]:
        """Selects complete points by their ids, without reading the others; all if None."""
        seeds = frozenset(self.manifest.plan.seeds)
        points = self._ledger.read_points(self._packs, ids)
        return {point.point_id: point for point in points if is_complete(point, seeds)}

    @property
    def notes(self) -> Sequence[Note]:
        """Reasons of undefined metrics and raised flags of complete points."""
        return self._details.notes()

    @cached_property
    def files(self) -> Collection[str]:
        """Names of the files that finished points stored."""
        return self._details.artifact_names()

    @cached_property
    def _details(self) -> ReplicateTable:
        tables = self._ledger.read_tables(self._packs, is_fixed_column)
        return replicate_table(tables).complete(self.manifest.plan.seeds)

    def front(self) -> pd.DataFrame:
        """The Pareto front on the study's objectives; empty if no finished point has them all."""
        if not set(self.objectives) <= set(self.points.columns):
            return self.points.iloc[:0]
        return pareto_front(self.points, self.objectives)

    def plot_front(self, x: str | None = None, y: str | None = None) -> Figure:
        """Plots two metrics of finished points, by default the first and the last objective."""
        import plotly.express as px

        metrics = [x or next(iter(self.objectives)), y or list(self.objectives)[-1]]
        points = self.points.loc[self.points["status"] == "finished"]
        on_front = points["point_id"].isin(self.front()["point_id"])
        errors = {
            f"error_{axis}": points.get(f"{metric}.ci_high", points[metric]) - points[metric]
            for axis, metric in zip("xy", metrics, strict=True)
        }
        return px.scatter(
            points,
            x=metrics[0],
            y=metrics[1],
            color=on_front.map({True: "Pareto front", False: "dominated"}).rename("points"),
            hover_data=[f"config/{field}" for field in self.swept_fields],
            **errors,
        )


def open_result(sweep: str, storage: str | None = None) -> Result:
    """Reads a sweep, running or ended, from a storage directory or URI.

    Raises:
        InputError: If there is no such sweep, or its `spec.yaml` is damaged.
    """
    return read_result(Ledger(storage or DEFAULT_STORAGE, sweep))


def read_result(ledger: Ledger) -> Result:
    """Reads a sweep from its ledger; see `open_result`."""
    manifest = read_manifest(ledger)
    packs = ledger.pack_ids()
    replicates = replicate_table(ledger.read_tables(packs, is_metric_column))
    failures = read_failures(ledger, lambda: replicates.keys)
    return Result(
        manifest,
        failures,
        dict(sorted(ledger.unreadable.items())),
        ledger,
        packs,
        replicates.complete(manifest.plan.seeds),
    )


def build_points_frame(replicates: ReplicateTable, sweep: str) -> pd.DataFrame:
    """One row per point, with means over its finished replicates; see `tracking.points_frame`."""
    finished, count = replicates.select_finished(), len(replicates)
    metrics, errors = finished.family("metric"), finished.family("standard_error")
    return _build_frame(
        replicates,
        sweep,
        POINT_COLUMNS,
        points=np.arange(count),
        status=STATUS_NAMES[replicates.point_status],
        finished_at=replicates.largest_of_point(replicates.column("finished_at").to_numpy()),
        own={"replicates": np.bincount(finished.points, minlength=count)},
        metrics=summarize_replicates(metrics, errors, finished.points, count),
    )


def build_replicates_frame(replicates: ReplicateTable, sweep: str) -> pd.DataFrame:
    """One row per point and replicate; see `tracking.replicates_frame`."""
    return _build_frame(
        replicates,
        sweep,
        REPLICATE_COLUMNS,
        points=replicates.points,
        status=STATUS_NAMES[replicates.status],
        finished_at=replicates.column("finished_at").to_numpy(),
        own={name: replicates.column(name) for name in REPLICATE_COLUMNS},
        metrics=replicates.family("metric"),
    )


def _build_frame(
    replicates: ReplicateTable,
    sweep: str,
    own_columns: Mapping[str, str],
    metrics: pd.DataFrame,
    **columns: Any,
) -> pd.DataFrame:
    first = replicates.table.select(["experiment", "config"]).take(replicates.first_rows)
    named = TableColumns(
        point_ids=replicates.point_ids,
        experiments=first["experiment"].to_pylist(),
        configs=[parse_object(config) for config in first["config"].to_pylist()],
        metrics={str(name): values.to_numpy() for name, values in metrics.items()},
        **columns,
    )
    return table_from_columns(named, own_columns, sweep)


def read_failures(ledger: Ledger, finished: Callable[[], Set[tuple[str, int]]]) -> dict[str, str]:
    """Reads the reasons of failed packs, except packs that a later attempt finished.

    `finished` returns every (point_id, seed) in the ledger; only a failure calls it.
    """
    directory = ledger.directory / "failures"
    reasons: dict[str, str] = {}
    for name in directory.files(".json"):
        try:
            content = directory.read(name, _MAX_FAILURE_BYTES)
            failure = _FailureRecord.model_validate_json(content)
        except (OSError, ValueError):
            ledger.unreadable[f"failures/{name}"] = "not a valid failure record"
            continue
        if not set(failure.members) <= finished():
            reasons[name.removesuffix(".json")] = failure.reason
    return reasons
