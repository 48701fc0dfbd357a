"""Results of a sweep, as tables."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd

import privnets
from privnets.contract import Direction
from privnets.credentials import redact
from privnets.frames import (
    ERROR_SUFFIX,
    POINT_COLUMNS,
    REPLICATE_COLUMNS,
    TableColumns,
    table_from_columns,
)
from privnets.points import TradeoffPoint
from privnets.registry import is_own_experiment
from privnets.statistics.bootstrap import PointSamples, build_samples
from privnets.statistics.intervals import Interval
from privnets.statistics.replicates import summarize_columns
from sweeps.analysis.constrained import ConstrainedBest, Constraint, best_under_constraints
from sweeps.analysis.fronts import (
    debiased_interval,
    front_probabilities,
    hypervolume_draws,
    separate_groups,
)
from sweeps.analysis.pareto import (
    Objectives,
    comparable_points,
    hypervolume,
    meets_constraints,
    pareto_front,
    split_by_problem,
    worst_values,
)
from sweeps.analysis.tables import (
    FRONT_GROUP,
    FRONT_PROBABILITY,
    INTERVAL_SUFFIXES,
    varying_fields,
)
from sweeps.analysis.text import format_setting
from sweeps.errors import InputError
from sweeps.store.asks import AskRecord, read_asks
from sweeps.store.codec import FIXED_COLUMNS, parse_object
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import Manifest, read_manifest
from sweeps.store.reader import (
    STATUS_NAMES,
    FailedPack,
    Note,
    ReplicateTable,
    counted_replicates,
    is_metric_column,
    read_failures,
    replicate_table,
)
from sweeps.store.recorded import open_ledger
from sweeps.study.spec import Study

PHASE = "phase"
SEARCHING, CONFIRMING = "searching", "confirming"
_SAMPLE_COLUMNS = ("seed", "test_set", "test_size", "test_overlap")


@dataclass(frozen=True, repr=False)
class Result:
    """A sweep's complete points and its manifest.

    Attributes:
        manifest: Recorded facts of the sweep.
        failed_packs: Failed packs by id, with the replicates that the ledger still lacks.
        unreadable: Skipped file of the ledger to its reason.
    """

    manifest: Manifest
    failed_packs: Mapping[str, FailedPack]
    unreadable: Mapping[str, str]
    _ledger: Ledger
    _packs: Sequence[str]
    _replicates: ReplicateTable
    _asks: Sequence[AskRecord] = ()

    @classmethod
    def read(cls, ledger: Ledger) -> Self:
        """Reads a sweep from its ledger; see `open_result`."""
        manifest = read_manifest(ledger)
        packs = ledger.pack_ids()
        replicates = replicate_table(ledger.read_tables(packs, is_metric_column))
        failures = read_failures(ledger, lambda: replicates.keys)
        return cls(
            manifest,
            failures,
            dict(sorted(ledger.unreadable.items())),
            ledger,
            packs,
            replicates.complete(manifest.plan.seed_rule),
            read_asks(ledger) if manifest.plan.is_adaptive else (),
        )

    def __repr__(self) -> str:
        """The sweep's name and size."""
        size = f"{len(self._replicates)} of {self.size} points, "
        size += f"{len(self.confirmed)} confirmed with " if self.confirmed else ""
        size += f"{len(self.reported_seeds)} replicates each"
        return f"Result({self.sweep!r}: {size}, in {redact(self.storage)})"

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
        """Number of points that are `finished`, `stopped` and `failed`.

        Points that lack replicates of a failed pack are failed, too.
        """
        complete = self._replicates.counts
        lost = {point for pack in self.failed_packs.values() for point, _ in pack.members}
        lost -= {*self._replicates.point_ids}
        return {**complete, "failed": complete["failed"] + len(lost)}

    @property
    def failures(self) -> Mapping[str, str]:
        """Failed pack to its reason."""
        return {pack_id: pack.reason for pack_id, pack in self.failed_packs.items()}

    @cached_property
    def confirmed(self) -> frozenset[str]:
        """Ids of complete points whose metrics rest on confirming replicates alone."""
        confirmed = self._replicates.points_with_seeds(self.manifest.plan.confirming_seeds)
        return frozenset(self._replicates.point_ids[point] for point in confirmed.tolist())

    @property
    def reported_seeds(self) -> frozenset[int]:
        """Seeds that each of the `reported_points` has when it is complete."""
        plan = self.manifest.plan
        return frozenset(plan.confirming_seeds if self.confirmed else plan.seeds)

    @property
    def size(self) -> int:
        """Number of points of the whole sweep, as far as they are known.

        An adaptive search may train a point again instead of another one.
        """
        plan = self.manifest.plan
        if not plan.is_adaptive:
            return plan.points
        if self.has_ended_search:
            return len(self._asked_points)
        return len(self._asked_points) + max((self.study.search.num_points or 0) - self.searches, 0)

    @property
    def searches(self) -> int:
        """Number of trainings by which an adaptive search has looked for the front."""
        return sum(len(ask.seeds) for ask in self._asks if ask.kind == "search")

    @property
    def has_ended_search(self) -> bool:
        """Whether an adaptive search has chosen the points that it confirms."""
        return bool(self._asks) and self._asks[-1].ends_search(self.study.search)

    @cached_property
    def _asked_points(self) -> Set[str]:
        """Ids of the points that an adaptive search has asked for."""
        return {point_id for ask in self._asks for point_id in ask.point_ids} - {""}

    @property
    def pending(self) -> int:
        """Number of points that still lack replicates, as far as they are known."""
        plan, asks = self.manifest.plan, self._asks
        if not plan.is_adaptive:
            return plan.points - len(self._replicates)
        wanted = {point_id for ask in asks if ask.kind == "confirm" for point_id in ask.point_ids}
        unconfirmed = len((wanted - self.confirmed) & {*self._replicates.point_ids})
        return self.size - len(self._asked_points & {*self._replicates.point_ids}) + unconfirmed

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row per complete point; see `privnets.points_frame`.

        An adaptive search adds the column `phase`: `confirming` for points whose metrics rest on
        fresh seeds alone, `searching` for the others.
        """
        return self._add_phase(build_points_frame(self._replicates, self.sweep))

    @cached_property
    def replicates(self) -> pd.DataFrame:
        """One row per point and replicate; see `points` and `privnets.replicates_frame`."""
        return self._add_phase(build_replicates_frame(self._replicates, self.sweep))

    def _add_phase(self, frame: pd.DataFrame) -> pd.DataFrame:
        if self.manifest.plan.is_adaptive:
            is_confirmed = frame["point_id"].isin(self.confirmed)
            frame.insert(1, PHASE, np.where(is_confirmed, CONFIRMING, SEARCHING))
        return frame

    @property
    def reported_points(self) -> pd.DataFrame:
        """Rows of `points` that a search confirmed, all of them before it confirmed any.

        A point that a search chose for its good results is on average worse than these results.
        """
        return self.points.loc[~is_only_searched(self.points)]

    @property
    def candidates(self) -> pd.DataFrame:
        """Rows of `reported_points` that meet the study's constraints: they may be on the front."""
        return meets_constraints(self.reported_points, self.study.constraints)

    @cached_property
    def tradeoff_points(self) -> Sequence[TradeoffPoint]:
        """The complete points as objects, with curves, notes and files; slow for many points."""
        return list(self.select_points().values())

    def select_points(self, ids: Collection[str] | None = None) -> Mapping[str, TradeoffPoint]:
        """Selects complete points by their ids, without reading the others; all if None."""
        rule = self.manifest.plan.seed_rule
        points = self._ledger.read_points(self._packs, ids)
        counted = (counted_replicates(point, rule) for point in points)
        return {point.point_id: point for point in counted if point is not None}

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
        tables = self._ledger.read_tables(self._packs, FIXED_COLUMNS.__contains__)
        return replicate_table(tables).complete(self.manifest.plan.seed_rule)

    def front(
        self,
        objectives: Objectives | None = None,
        *,
        include_flagged: bool = False,
        all: bool = False,
    ) -> pd.DataFrame:
        """The Pareto front, by default on the study's objectives; empty without a defined point.

        Its points are among `candidates`; each problem or data set of a sweep has a front of its
        own (see `sweeps.pareto_front`). Columns: objectives with the ends of their 95% intervals,
        the swept fields as `config/<field>`, and `point_id`; or `all` of `points`. Two are added:
        `front/probability`, of being on the front of the true means, and `front/group`, the number
        of the point's group. Intervals of differences separate no point of a group from its first.
        """
        if objectives is None and not set(self.objectives) <= set(self.points.columns):
            return self.points.iloc[:0]
        chosen = objectives or self.objectives
        front = pareto_front(self.candidates, chosen, include_flagged=include_flagged)
        rows = comparable_points(self.candidates, chosen, include_flagged=include_flagged)
        front[FRONT_PROBABILITY], front[FRONT_GROUP] = math.nan, 0
        for problem in split_by_problem(rows):
            samples = self.samples(list(chosen), rows["point_id"].iloc[problem])
            own = front["point_id"].isin(samples.point_ids)
            places = pd.Index(samples.point_ids).get_indexer(pd.Index(front["point_id"][own]))
            front.loc[own, FRONT_PROBABILITY] = front_probabilities(samples, chosen)[places]
            groups = separate_groups(samples.select(places), chosen)
            front.loc[own, FRONT_GROUP] = front[FRONT_GROUP].max() + groups
        columns = [f"{metric}{end}" for metric in chosen for end in ("", *INTERVAL_SUFFIXES)]
        columns += [f"config/{field}" for field in self.swept_fields]
        columns += [FRONT_PROBABILITY, FRONT_GROUP, "point_id"]
        return front if all else front[[column for column in columns if column in front]]

    def hypervolume(
        self,
        objectives: Objectives | None = None,
        reference: Mapping[str, float] | None = None,
        *,
        include_flagged: bool = False,
    ) -> Interval:
        """Hypervolume of the true means with its 95% interval, free of the bias of noisy fronts.

        Args:
            objectives: Metric to `min` or `max`; those of the study by default.
            reference: Metric to its value; the worst finite ones of the sweep by default.
            include_flagged: Whether points with a raised flag take part.

        Raises:
            ValueError: If the points are of several problems, which share no scale.
        """
        chosen = objectives or self.objectives
        corner = reference or worst_values(self.points, chosen, include_flagged=include_flagged)
        rows = comparable_points(self.candidates, chosen, include_flagged=include_flagged)
        estimate = hypervolume(rows, chosen, corner, include_flagged=include_flagged)
        samples = self.samples(list(chosen), rows["point_id"])
        draws = hypervolume_draws(samples, chosen, corner)
        return debiased_interval(estimate, draws, samples.typical_freedom)

    def lowest(self, metric: str, *where: str, include_flagged: bool = False) -> ConstrainedBest:
        """The point with the lowest metric that meets constraints, with its probability.

        Args:
            metric: A metric of the points.
            where: Constraints such as `utility/accuracy >= 0.95`.
            include_flagged: Whether points with a raised flag take part.

        Raises:
            InputError: If a constraint cannot be parsed.
            ValueError: If a metric is unknown.
        """
        return self._best(metric, "min", where, include_flagged)

    def highest(self, metric: str, *where: str, include_flagged: bool = False) -> ConstrainedBest:
        """The point with the highest metric that meets constraints; see `lowest`."""
        return self._best(metric, "max", where, include_flagged)

    def _best(
        self, metric: str, direction: Direction, where: Sequence[str], include_flagged: bool
    ) -> ConstrainedBest:
        constraints = [Constraint.parse(text) for text in where]
        name = self.manifest.study.experiment
        # Reading a sweep runs no code that only its storage names.
        for each in () if is_own_experiment(name) else constraints:
            if expected := privnets.experiment(name).limit_mistake(each.metric, each.limit):
                raise InputError(f"{each}: expected {expected}")
        metrics = list(dict.fromkeys([metric, *(each.metric for each in constraints)]))
        needed: Objectives = dict.fromkeys(metrics, direction)
        rows = comparable_points(self.candidates, needed, include_flagged=include_flagged)
        samples = self.samples(metrics, rows["point_id"])
        fields = [field for field in self.swept_fields if f"config/{field}" in rows]
        names = {}
        for row in rows.to_dict("records"):
            settings = (f"{field} {format_setting(row[f'config/{field}'])}" for field in fields)
            names[str(row["point_id"])] = ", ".join(settings)
        return best_under_constraints(samples, direction, constraints, names)

    def samples(self, metrics: Sequence[str], point_ids: Collection[str]) -> PointSamples:
        """Some metrics of some points, for resampling over their replicates."""
        return build_samples(self.sample_table(metrics, point_ids), metrics)

    def sample_table(self, metrics: Sequence[str], point_ids: Collection[str]) -> pd.DataFrame:
        """Input of `build_samples`: the rows of some points, and few columns, of `replicates`."""
        replicates, wanted = self._replicates, set(np.asarray(point_ids, dtype=object).tolist())
        is_wanted = np.array([point_id in wanted for point_id in replicates.point_ids], dtype=bool)
        columns: dict[str, Any] = {
            "point_id": np.array(replicates.point_ids, dtype=object)[replicates.points],
            "status": STATUS_NAMES[replicates.status],
            **{name: replicates.column(name) for name in _SAMPLE_COLUMNS},
        }
        errors = replicates.family("standard_error", metrics).add_suffix(ERROR_SUFFIX)
        parts = [pd.DataFrame(columns), replicates.family("metric", metrics), errors]
        table: pd.DataFrame = pd.concat(parts, axis=1)
        return table.loc[is_wanted[replicates.points]]


def open_result(sweep: str, storage: str | None = None) -> Result:
    """Reads a sweep, running or ended, from a storage directory or URI.

    `recorded:NAME` reads a finished sweep that comes with the project.

    Raises:
        InputError: If there is no such sweep, or its `spec.yaml` is damaged.
    """
    return Result.read(open_ledger(sweep, storage))


def is_only_searched(points: pd.DataFrame) -> pd.Series[bool]:
    """Whether a search tried a point and confirmed others; False before it confirmed any."""
    phases = points.get(PHASE, pd.Series(SEARCHING, index=points.index))
    has_confirmed = bool((phases == CONFIRMING).any())
    searching: pd.Series[bool] = (phases == SEARCHING) & has_confirmed
    return searching


def build_points_frame(replicates: ReplicateTable, sweep: str) -> pd.DataFrame:
    """One row per point, with means over its finished replicates; see `privnets.points_frame`.

    A metric is undefined for a point if one of its replicates lacks it.
    """
    finished, count = replicates.select_finished(), len(replicates)
    values = finished.family("metric")
    keys = [str(key) for key in values.columns]
    errors = finished.family("standard_error").reindex(columns=keys)
    summary = summarize_columns(
        keys,
        values.to_numpy(),
        errors.to_numpy(dtype=np.float64),
        finished.points,
        len(finished),
        finished.scored,
    )
    low, high = summary.interval()
    parts = {"": summary.mean, ".std": summary.std, ".ci_low": low, ".ci_high": high}
    metrics = {
        key + suffix: ends[:, place]
        for place, key in enumerate(keys)
        for suffix, ends in parts.items()
    }
    return _build_frame(
        replicates,
        sweep,
        POINT_COLUMNS,
        points=np.arange(count),
        status=STATUS_NAMES[replicates.point_status],
        finished_at=replicates.largest_of_point(replicates.column("finished_at").to_numpy()),
        own={"replicates": np.bincount(finished.points, minlength=count)},
        metrics=metrics,
    )


def build_replicates_frame(replicates: ReplicateTable, sweep: str) -> pd.DataFrame:
    """One row per point and replicate; see `privnets.replicates_frame`."""
    errors = replicates.family("standard_error").add_suffix(ERROR_SUFFIX)
    metrics = replicates.family("metric").join(errors)
    return _build_frame(
        replicates,
        sweep,
        REPLICATE_COLUMNS,
        points=replicates.points,
        status=STATUS_NAMES[replicates.status],
        finished_at=replicates.column("finished_at").to_numpy(),
        own={name: replicates.column(name) for name in REPLICATE_COLUMNS},
        metrics={str(name): column.to_numpy() for name, column in metrics.items()},
    )


def _build_frame(
    replicates: ReplicateTable,
    sweep: str,
    own_columns: Mapping[str, str],
    **columns: Any,
) -> pd.DataFrame:
    first = replicates.table.select(["experiment", "config"]).take(replicates.first_rows)
    named = TableColumns(
        point_ids=replicates.point_ids,
        experiments=first["experiment"].to_pylist(),
        configs=[parse_object(config) for config in first["config"].to_pylist()],
        **columns,
    )
    return table_from_columns(named, own_columns, sweep)
