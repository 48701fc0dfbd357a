"""Plans: the points and seeds of a sweep, derived from its study, and their record in a manifest.

A sweep that resumes compares its plan with the recorded one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

import privnets
from privnets.config import ExperimentConfig, point_id
from privnets.contract import Direction
from sweeps.errors import FieldError, InputError, StudyError
from sweeps.store.manifest import Manifest, PlanSummary, git_commit, installed_versions
from sweeps.study.search import Proposal
from sweeps.study.spec import MAX_POINTS, Study
from sweeps.study.validation import ValidationResult, validate_study
from tracking.redaction import strip_credentials

CONFIRM_ABOVE_POINTS: Final = 10_000
"""Larger plans run only after the user has confirmed them."""

MAX_TRAININGS: Final = 10_000_000
"""Limit on points times replicates; their list must fit into memory."""


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """Point to train: its id, and its configuration with the base seed."""

    point_id: str
    config: ExperimentConfig


@dataclass(frozen=True, slots=True)
class PlannedReplicate:
    """One training: a point's configuration with one seed."""

    point_id: str
    seed: int
    config: ExperimentConfig


@dataclass(frozen=True)
class Plan:
    """Trainings of a sweep.

    Attributes:
        study: The study, with its objectives filled in.
        objectives: Metrics with their direction.
        points: Each point once, in the order of the search.
        seeds: Seeds of the replicates of every point: the base seed and those that follow it.
        log_fields: Swept fields that plots show on a logarithmic scale.
        notes: Remarks for the author, for example on merged points.
        asks: Number of points that each `Search.ask` proposed; one entry unless the search is
            adaptive. Replaying the asks, and telling the results between them, gives this plan.
    """

    study: Study
    objectives: Mapping[str, Direction]
    points: tuple[PlannedPoint, ...]
    seeds: tuple[int, ...]
    log_fields: frozenset[str]
    notes: tuple[str, ...] = ()
    asks: tuple[int, ...] = ()

    def replicates(self) -> list[PlannedReplicate]:
        """Lists every training, point by point."""
        return [
            PlannedReplicate(p.point_id, seed, p.config.model_copy(update={"seed": seed}))
            for p in self.points
            for seed in self.seeds
        ]

    def grow(self, proposals: Sequence[Proposal]) -> Plan:
        """Adds the points of a later ask; points that the plan already has are skipped."""
        experiment = privnets.experiment(self.study.experiment)
        configs = [
            experiment.Config.model_validate({**self.study.fixed, **proposal}, strict=True)
            for proposal in proposals
        ]
        points = {point.point_id: point for point in self.points}
        for point in _unique_points(self.study.experiment, configs):
            points.setdefault(point.point_id, point)
        return replace(self, points=tuple(points.values()), asks=(*self.asks, len(proposals)))

    def cost_seconds(self) -> float:
        """Estimates the seconds that one core takes for all trainings."""
        return cost_seconds(self.study, (point.config for point in self.points))

    @cached_property
    def digest(self) -> str:
        """Hash of all point ids and seeds; equal plans have equal digests."""
        ids = sorted(point.point_id for point in self.points)
        return hashlib.sha256("\n".join([*ids, *map(str, self.seeds)]).encode()).hexdigest()


def make_plan(study: Study, num_points: int | None = None) -> Plan:
    """Plans a sweep.

    Args:
        study: The study.
        num_points: Number of points, in place of the study's own.

    Raises:
        StudyError: With every mistake of the study.
        InputError: If `num_points` is out of range.
    """
    study = set_num_points(study, num_points)
    result = validate_study(study)
    if result.errors:
        raise StudyError(result.errors)
    configs = result.configs
    if (trainings := len(configs) * study.replicates) > MAX_TRAININGS:
        given, expected = f"{trainings:,} trainings", f"at most {MAX_TRAININGS:,} in all"
        raise StudyError([study.source.locate(FieldError(("replicates",), given, expected))])
    points = _unique_points(study.experiment, configs)
    experiment = privnets.experiment(study.experiment)
    objectives = dict(study.objectives or experiment.default_objectives(configs[0]))
    base = configs[0].seed
    return Plan(
        study=study.model_copy(update={"objectives": objectives}),
        objectives=objectives,
        points=points,
        seeds=tuple(range(base, base + study.replicates)),
        log_fields=frozenset(name for name, axis in study.space.items() if axis.is_log_scaled),
        notes=(*result.notes, *_merge_notes(study, result, len(points))),
        asks=(len(configs),),
    )


def create_manifest(plan: Plan, sweep: str, *, command: str, tracking_uri: str) -> Manifest:
    """Creates the manifest of a new sweep; leaves the credentials of the tracking URI out."""
    return Manifest(
        sweep=sweep,
        command=command,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        study=plan.study,
        plan=_summarize(plan),
        data=_plan_fingerprints(plan),
        tracking_uri=strip_credentials(tracking_uri),
        versions=installed_versions(),
        git_commit=git_commit(),
    )


def replan(manifest: Manifest) -> Plan:
    """Plans a recorded sweep again.

    Raises:
        InputError: If the plan differs from the recorded one, for example by changed data.
        StudyError: If its study is invalid in this version.
    """
    # A study of another version may not even be valid now, which would hide the reason.
    reasons = _version_differences(manifest)
    plan = None if reasons else make_plan(manifest.study)
    if plan is None or (reasons := plan_differences(manifest, plan)):
        raise InputError(
            f"the sweep {manifest.sweep!r} cannot be continued, as its points would differ: "
            f"{'; '.join(reasons)}"
        )
    return plan


def plan_differences(manifest: Manifest, plan: Plan) -> list[str]:
    """Differences between a recorded plan and another one, in words; empty if they are equal."""
    recorded, current = manifest.plan, _summarize(plan)
    reasons = []
    if manifest.study.early_stopping != plan.study.early_stopping:
        before, now = (
            json.dumps(study.to_dict()["early_stopping"] or False)
            for study in (manifest.study, plan.study)
        )
        reasons.append(f"its early stopping was {before} and is now {now}")
    if (recorded.digest, recorded.objectives) == (current.digest, current.objectives):
        return reasons
    if manifest.study.name != plan.study.name:
        reasons.append(f"it is of study {manifest.study.name!r}, not {plan.study.name!r}")
    reasons += _version_differences(manifest)
    for name, fingerprint in _plan_fingerprints(plan).items():
        if manifest.data.get(name, fingerprint) != fingerprint:
            reasons.append(f"data set {name!r} has changed since")
    return reasons or [
        f"it has {recorded.points} points of {len(recorded.seeds)} replicates, this has "
        f"{current.points} of {len(current.seeds)}, with other configurations or objectives"
    ]


def _version_differences(manifest: Manifest) -> list[str]:
    """Difference between the recorded and the present version of an experiment, in words."""
    name, before = manifest.study.experiment, manifest.plan.experiment_version
    now = privnets.experiment(name).version
    return [] if now == before else [f"{name} had version {before} and now has {now}"]


def data_fingerprints(experiment: str, configs: Iterable[ExperimentConfig]) -> dict[str, str]:
    """Returns each data set that configurations use, with the fingerprint of its files here.

    Raises:
        DataError: If a data set is absent or altered.
    """
    implementation = privnets.experiment(experiment)
    fingerprints: dict[str, str] = {}
    for config in configs:
        name = str(getattr(config, implementation.data_field, implementation.name))
        if name not in fingerprints:
            fingerprints[name] = implementation.fingerprint(config)
    return fingerprints


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


def check_confirmed(study: Study, configs: Sequence[ExperimentConfig], is_confirmed: bool) -> None:
    """Raises `InputError` for a plan above `CONFIRM_ABOVE_POINTS` that is not confirmed."""
    if len(configs) > CONFIRM_ABOVE_POINTS and not is_confirmed:
        cost = format_duration(cost_seconds(study, configs))
        raise InputError(
            f"the plan has {len(configs):,} points of {study.replicates} replicates, about {cost} "
            "of one core; pass --yes to accept it"
        )


def format_duration(seconds: float) -> str:
    """Formats a duration with one unit."""
    if seconds < 1.5:
        return "1 second"
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} minutes"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} hours"
    return f"{timedelta(seconds=seconds).days:,} days"


def cost_seconds(study: Study, configs: Iterable[ExperimentConfig]) -> float:
    """Estimates the seconds that one core takes to train all replicates of configurations."""
    experiment = privnets.experiment(study.experiment)
    return math.fsum(experiment.cost(config).seconds for config in configs) * study.replicates


def _unique_points(name: str, configs: Iterable[ExperimentConfig]) -> tuple[PlannedPoint, ...]:
    """Returns each point once; configurations that differ in unused fields alone are merged."""
    experiment = privnets.experiment(name)
    fingerprints: dict[str, str] = {}  # configurations of equal structure share their data
    points: dict[str, PlannedPoint] = {}
    for config in (config.canonical() for config in configs):
        structure = config.structure()
        if structure not in fingerprints:
            fingerprints[structure] = experiment.fingerprint(config)
        identity = point_id(name, experiment.version, config, fingerprints[structure])
        points.setdefault(identity, PlannedPoint(identity, config))
    return tuple(points.values())


def _merge_notes(study: Study, result: ValidationResult, kept: int) -> list[str]:
    merged, proposed = len(result.configs) - kept, len(result.configs)
    if not merged:
        return []
    redundant = {name for config in result.configs for name in config.redundant_fields()}
    swept = sorted(redundant & study.space.keys())
    reason = f", as not every point uses {' and '.join(swept)}" if swept else ""
    return [f"{merged:,} of {proposed:,} points are the same as others{reason}: merged."]


def _plan_fingerprints(plan: Plan) -> dict[str, str]:
    return data_fingerprints(plan.study.experiment, (point.config for point in plan.points))


def _summarize(plan: Plan) -> PlanSummary:
    experiment = privnets.experiment(plan.study.experiment)
    return PlanSummary(
        points=len(plan.points),
        replicates=len(plan.points) * len(plan.seeds),
        seeds=plan.seeds,
        digest=plan.digest,
        experiment_version=experiment.version,
        objectives=dict(plan.objectives),
        log_fields=tuple(sorted(plan.log_fields)),
        metrics=tuple(sorted({k for p in plan.points for k in experiment.metric_keys(p.config)})),
        asks=plan.asks,
    )
