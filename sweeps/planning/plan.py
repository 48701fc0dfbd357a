"""Plans: the points and seeds of a sweep, derived from its study, and their manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import count
from typing import Any, Final

import privnets
from privnets.config import ExperimentConfig, nest, point_id
from privnets.contract import Direction, Experiment
from privnets.credentials import strip_credentials
from privnets.points import TradeoffPoint
from sweeps.errors import FieldError, InputError, StudyError
from sweeps.planning.costs import cost_seconds, planned_trainings
from sweeps.store.asks import AskKind, AskRecord, read_asks
from sweeps.store.codec import ReplicateKey
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import (
    Manifest,
    PlanSummary,
    SeedRule,
    git_commit,
    installed_versions,
)
from sweeps.study.search import is_adaptive
from sweeps.study.search_space import Proposal, is_in_space, keep_applicable
from sweeps.study.spec import MAX_POINTS, Study, budget_seconds
from sweeps.study.validation import configure, validate_study

MAX_TRAININGS: Final = 10_000_000
"""Limit on points times replicates; their list must fit into memory."""

MAX_REUSED: Final = 1_000
"""Most trainings of other sweeps from which an adaptive search starts."""

_CONFIRMING_SEEDS: Final = MAX_POINTS + 1
"""Distance of the first confirming seed from the base seed; a search uses fewer seeds.

It is no multiple of ten, the number of rotations among which seeds choose the blocks of a series.
"""

_MAX_ASK_SIZE: Final = 16
_MAX_SHOWN: Final = 200
_MIN_ASKS: Final = 12


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """Point to train: its id, its configuration with the base seed, and its seeds."""

    point_id: str
    config: ExperimentConfig
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlannedReplicate:
    """One training: a point with one seed.

    Attributes:
        point_id: Id of the point.
        seed: Seed of this training.
        point_config: Configuration that the point's replicates share; its own seed is ignored.
    """

    point_id: str
    seed: int
    point_config: ExperimentConfig

    @property
    def key(self) -> ReplicateKey:
        """Its `point_id` and seed."""
        return self.point_id, self.seed

    @property
    def config(self) -> ExperimentConfig:
        """Configuration with this replicate's seed, made on request to save memory."""
        return self.point_config.model_copy(update={"seed": self.seed})


@dataclass(frozen=True)
class Plan:
    """Trainings of a sweep. The plan of an adaptive search has no points at first, and grows.

    Attributes:
        study: The study, with its objectives filled in.
        objectives: Metrics with their direction.
        points: Each point once, in the order of the search.
        seeds: Seeds that every point has: the base seed and those that follow it. An adaptive
            search has the base seed alone.
        samples: Configurations of the points, or examples of those that a search may propose.
        log_fields: Swept fields that plots show on a logarithmic scale.
        notes: Remarks for the author, for example on merged points.
        confirming_seeds: Seeds of the points that an adaptive search confirms.
        asks: Recorded asks of an adaptive search, which gave the points.
    """

    study: Study
    objectives: Mapping[str, Direction]
    points: tuple[PlannedPoint, ...]
    seeds: tuple[int, ...]
    samples: tuple[ExperimentConfig, ...]
    log_fields: frozenset[str]
    notes: tuple[str, ...] = ()
    confirming_seeds: tuple[int, ...] = ()
    asks: tuple[AskRecord, ...] = ()

    @property
    def is_adaptive(self) -> bool:
        """Whether later points depend on the results of earlier ones."""
        return is_adaptive(self.study)

    @property
    def is_complete(self) -> bool:
        """Whether it grows no more."""
        has_ended = bool(self.asks) and self.asks[-1].ends(self.study.search)
        return has_ended or not self.is_adaptive

    @property
    def trainings(self) -> int:
        """Number of trainings; the largest that it may be, for an adaptive search."""
        planned = sum(len(point.seeds) for point in self.points)
        if self.is_complete:
            return planned
        confirming = self.study.search.confirmed_points * self.study.replicates
        return planned + self._later_searches + confirming

    @property
    def size(self) -> int:
        """Number of points; the largest that it may be, for an adaptive search."""
        return len(self.points) + self._later_searches

    @property
    def _later_searches(self) -> int:
        """Number of trainings by which an adaptive search may still look for the front."""
        if self.asks and self.asks[-1].ends_search(self.study.search):
            return 0
        return max(self.searches - self.searched, 0)

    @property
    def searches(self) -> int:
        """Number of trainings by which an adaptive search looks for the front; 0 for others."""
        return (self.study.search.num_points or 0) if self.is_adaptive else 0

    @property
    def searched(self) -> int:
        """Number of trainings by which an adaptive search has looked for the front so far."""
        return sum(len(ask.seeds) for ask in self.asks if ask.kind == "search")

    @cached_property
    def data(self) -> Mapping[str, str]:
        """Each data set with the fingerprint of its files here."""
        return data_fingerprints(self.study.experiment, self.samples)

    @property
    def seed_rule(self) -> SeedRule:
        """Rule by which points are complete."""
        return SeedRule(frozenset(self.seeds), frozenset(self.confirming_seeds), self.is_adaptive)

    def replicates(self) -> list[PlannedReplicate]:
        """Lists every training, point by point."""
        return [
            PlannedReplicate(point.point_id, seed, point.config)
            for point in self.points
            for seed in point.seeds
        ]

    def propose(self, kind: AskKind, proposals: Sequence[Proposal], told: int) -> AskRecord:
        """Makes the record of an ask: a proposed point gets the first seed that it lacks.

        Args:
            kind: Purpose of the ask.
            proposals: Points, of which some may be in the plan already.
            told: Number of asks whose results the search has received.
        """
        planned = self._plan_proposals(proposals)
        used = {point.point_id: {*point.seeds} for point in self.points}
        seeds = []
        for point in planned if kind == "search" else ():
            own = set() if isinstance(point, str) else used.setdefault(point.point_id, set())
            seeds.append(next(seed for seed in count(self.seeds[0]) if seed not in own))
            own.add(seeds[-1])
        return AskRecord(
            kind=kind,
            told=told,
            proposals=tuple(proposals),
            point_ids=tuple(map(_identity, planned)),
            seeds=tuple(seeds),
            refusals={i: point for i, point in enumerate(planned) if isinstance(point, str)},
            goal=self.study.search.goal if kind == "confirm" else {},
        )

    def grow(self, ask: AskRecord) -> Plan:
        """Adds the trainings of an ask.

        Raises:
            InputError: If a proposal is not in the study's space, or if points have other ids now,
                for example by changed data.
        """
        space, first = self.study.space, self.study.search.enqueue
        for proposal in ask.proposals:
            if proposal not in first and not is_in_space(space, proposal):
                raise InputError(
                    f"a recorded proposal must have a value of the search space for each of "
                    f"{', '.join(space)}; got {json.dumps(proposal)[:_MAX_SHOWN]}"
                )
        points = {point.point_id: point for point in self.points}
        new_seeds: Sequence[tuple[int, ...]] = [(seed,) for seed in ask.seeds]
        new_seeds = new_seeds or [self.confirming_seeds] * len(ask.proposals)
        planned = self._plan_proposals(ask.proposals)
        if tuple(map(_identity, planned)) != ask.point_ids:
            raise InputError(
                "the points that the search proposed have other ids now: the experiment's version "
                "or its data has changed"
            )
        for point, seeds in zip(planned, new_seeds, strict=True):
            if not isinstance(point, str):
                known = points.get(point.point_id, replace(point, seeds=()))
                own = tuple(dict.fromkeys((*known.seeds, *seeds)))
                points[point.point_id] = replace(known, seeds=own)
        return replace(self, points=tuple(points.values()), asks=(*self.asks, ask))

    def reuse(self, points: Iterable[TradeoffPoint]) -> AskRecord:
        """Makes the record of trainings of other sweeps, from which an adaptive search starts.

        Args:
            points: Points of other sweeps. Those outside the study's space, or without the first
                seed, are left out, and so are replicates with confirming seeds.
        """
        seeds: dict[str, tuple[int, ...]] = {}
        proposals: dict[str, Proposal] = {}
        for point in points:
            axes = self.study.space.items()
            values = {n: a.equal_value(point.config[n]) for n, a in axes if n in point.config}
            own = {r.seed for r in point.replicates if r.seed < self.seeds[0] + _CONFIRMING_SEEDS}
            values = keep_applicable(self.study.space, values)
            if self.seeds[0] in own and is_in_space(self.study.space, values):
                proposals[point.point_id] = values
                seeds[point.point_id] = tuple(sorted(own | {*seeds.get(point.point_id, ())}))
        planned = self._plan_proposals([*proposals.values()])
        known = [i for i, p in zip(proposals, planned, strict=True) if _identity(p) == i]
        chosen = [(i, seed) for i in known for seed in seeds[i]][:MAX_REUSED]
        return AskRecord(
            kind="reuse",
            told=0,
            proposals=tuple(proposals[i] for i, _ in chosen),
            point_ids=tuple(i for i, _ in chosen),
            seeds=tuple(seed for _, seed in chosen),
        )

    def _plan_proposals(self, proposals: Sequence[Proposal]) -> list[PlannedPoint | str]:
        """Returns the point of each proposal, or the reason why the experiment refuses it."""
        experiment = privnets.experiment(self.study.experiment)
        values = [nest({**self.study.constants, **proposal}) for proposal in proposals]
        configs = [configure(experiment, each) for each in values]
        valid = [config for config in configs if not isinstance(config, str)]
        by_structure = {config.structure(): config for config in valid}
        of_data = {text: experiment.fingerprint(config) for text, config in by_structure.items()}
        fingerprints = [of_data[config.structure()] for config in valid]
        points = iter(_points(experiment, valid, fingerprints, self.seeds))
        return [config if isinstance(config, str) else next(points) for config in configs]

    def cost_seconds(self) -> float:
        """Estimates the seconds that one core takes for all trainings."""
        configs = self.samples if self.is_adaptive else [point.config for point in self.points]
        return cost_seconds(self.study, configs)

    @cached_property
    def digest(self) -> str:
        """Hash of all point ids and seeds; of the settings instead, if the search is adaptive."""
        ids = sorted(point.point_id for point in self.points)
        if self.is_adaptive:
            version = privnets.experiment(self.study.experiment).version
            data, settings = sorted(self.data.items()), self.study.settings()
            ids = [json.dumps([version, data, settings], sort_keys=True)]
        return hashlib.sha256("\n".join([*ids, *map(str, self.seeds)]).encode()).hexdigest()


def make_plan(study: Study, num_points: int | None = None, *, data: bool = True) -> Plan:
    """Plans a sweep; an adaptive search starts without points.

    Args:
        study: The study.
        num_points: Number of points, in place of the study's own.
        data: Whether its data must be present. Ids of points depend on the data: in a plan without
            them they are not those of a run.

    Raises:
        StudyError: With every mistake of the study.
        InputError: If `num_points` is out of range.
    """
    study = set_num_points(study, num_points)
    result = validate_study(study, data=data)
    if result.errors:
        raise StudyError(result.errors)
    configs = result.configs
    fingerprints = result.fingerprints if data else [""] * len(configs)
    if (trainings := planned_trainings(study, len(configs))) > MAX_TRAININGS:
        given, expected = f"{trainings:,} trainings", f"at most {MAX_TRAININGS:,} in all"
        raise StudyError([study.source.locate(FieldError(("replicates",), given, expected))])
    objectives = dict(
        study.objectives or privnets.experiment(study.experiment).default_objectives(configs[0])
    )
    plan = Plan(
        study=study.model_copy(update={"objectives": objectives}),
        objectives=objectives,
        points=(),
        seeds=(),
        samples=configs,
        log_fields=frozenset(name for name, axis in study.space.items() if axis.is_log_scaled),
        notes=result.notes,
    )
    base = configs[0].seed
    if is_adaptive(study):
        first = base + _CONFIRMING_SEEDS
        confirming = range(first, first + study.replicates) if study.search.confirmed_points else ()
        size, at_once = ask_size(study), study.search.asks_in_flight
        note = (
            f"The search proposes {size} point{'s' * (size > 1)} at a time; {at_once} such "
            f"{'group trains' if at_once == 1 else 'groups train'} at once."
        )
        if confirming:
            note += (
                f" Then up to {study.search.confirmed_points} points of the front are trained with "
                f"{study.replicates} fresh seeds each."
            )
        notes = (*result.notes, note)
        return replace(plan, seeds=(base,), confirming_seeds=tuple(confirming), notes=notes)
    seeds = tuple(range(base, base + study.replicates))
    experiment = privnets.experiment(study.experiment)
    planned = _points(experiment, configs, fingerprints, seeds)
    points = tuple({point.point_id: point for point in planned}.values())
    notes = result.notes
    if merged := len(configs) - len(points):
        redundant = {name for config in configs for name in config.redundant_fields()}
        swept = sorted(redundant & study.space.keys())
        reason = f", as not every point uses {' and '.join(swept)}" if swept else ""
        note = f"{merged:,} of {len(configs):,} points are the same as others{reason}: merged."
        notes = (*notes, note)
    return replace(plan, points=points, seeds=seeds, notes=notes)


def add_recorded_asks(plan: Plan, ledger: Ledger) -> Plan:
    """Adds the asks of a sweep that its plan does not have yet.

    Raises:
        InputError: If one cannot be read or does not fit; see `Plan.grow`.
    """
    for ask in read_asks(ledger)[len(plan.asks) :] if plan.is_adaptive else ():
        plan = plan.grow(ask)
    return plan


def ask_size(study: Study) -> int:
    """Number of points that an adaptive search proposes at once."""
    asks = (study.search.num_points or 0) // _MIN_ASKS
    return study.search.ask_size or max(1, min(_MAX_ASK_SIZE, asks))


def create_manifest(plan: Plan, sweep: str, *, command: str, tracking_uri: str) -> Manifest:
    """Creates the manifest of a new sweep; leaves the credentials of the tracking URI out."""
    return Manifest(
        sweep=sweep,
        command=command,
        created_at=datetime.now(UTC).replace(microsecond=0),
        study=plan.study,
        plan=summarize_plan(plan),
        data=dict(plan.data),
        tracking_uri=strip_credentials(tracking_uri),
        versions=installed_versions(),
        git_commit=git_commit(),
    )


def data_fingerprints(experiment: str, configs: Iterable[ExperimentConfig]) -> dict[str, str]:
    """Returns each data set that configurations use, with the fingerprint of its files here.

    Raises:
        DataError: If a data set is absent or altered.
    """
    implementation = privnets.experiment(experiment)
    fingerprints: dict[str, set[str]] = {}
    for config in {config.structure(): config for config in configs}.values():
        name = str(getattr(config, implementation.data_field, implementation.name))
        fingerprints.setdefault(name, set()).add(implementation.fingerprint(config))
    return {name: "; ".join(sorted(each)) for name, each in fingerprints.items()}


def set_num_points(study: Study, num_points: int | None) -> Study:
    """Returns the study with another number of points; unchanged for None.

    Raises:
        InputError: If the number is out of range.
    """
    if num_points is None:
        return study
    if not 1 <= num_points <= MAX_POINTS:
        raise InputError(f"num_points must be from 1 to {MAX_POINTS:,}; got {num_points}.")
    search = study.search.model_copy(update={"num_points": num_points})
    return study.model_copy(update={"search": search})


def set_budget(study: Study, budget: int | str | None) -> Study:
    """Returns the study with another budget of a run; see `SearchSpec.budget`.

    Raises:
        InputError: If the budget is neither a number of trainings nor a time.
    """
    try:
        if budget is not None:
            budget_seconds(budget)
    except ValueError as error:
        raise InputError(f"budget must be {error}; got {budget!r}.") from error
    search = study.search.model_copy(update={"budget": budget})
    return study.model_copy(update={"search": search})


def summarize_plan(plan: Plan) -> PlanSummary:
    """Summarises a plan for the manifest."""
    experiment = privnets.experiment(plan.study.experiment)
    return PlanSummary(
        points=plan.size,
        replicates=plan.trainings,
        seeds=plan.seeds,
        confirming_seeds=plan.confirming_seeds,
        is_adaptive=plan.is_adaptive,
        digest=plan.digest,
        experiment_version=experiment.version,
        objectives=dict(plan.objectives),
        log_fields=tuple(sorted(plan.log_fields)),
        metrics=tuple(sorted({k for c in plan.samples for k in experiment.metric_keys(c)})),
    )


def _points(
    experiment: Experiment[Any],
    configs: Sequence[ExperimentConfig],
    fingerprints: Sequence[str],
    seeds: tuple[int, ...],
) -> Iterator[PlannedPoint]:
    """Yields a point per configuration; equal ids differ in unused fields alone."""
    for config, fingerprint in zip(configs, fingerprints, strict=True):
        canonical = config.canonical()
        identity = point_id(experiment.name, experiment.version, canonical, fingerprint)
        yield PlannedPoint(identity, canonical, seeds)


def _identity(point: PlannedPoint | str) -> str:
    return "" if isinstance(point, str) else point.point_id
