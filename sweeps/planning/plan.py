"""Plans: the points and seeds that a study comes to, checked against its experiment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import privnets
from privnets.config import ExperimentConfig, point_id
from privnets.contract import Direction, Experiment
from sweeps.errors import InputError, StudyError
from sweeps.planning.search import grid_size
from sweeps.study.spec import MAX_POINTS, Study
from sweeps.study.validation import validate_study

CONFIRM_ABOVE_POINTS: Final = 10_000
"""A plan of more points than this is not run without being asked for twice."""

MAX_TRAININGS: Final = 10_000_000
"""Beyond, the list of them alone would take a machine's memory."""


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """A point to be trained: its identity, and its configuration with the base seed."""

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
    """What a sweep trains.

    Attributes:
        study: The study, its objectives filled in.
        objectives: Metric to direction.
        points: Each once, in the order of the search.
        seeds: Of every point's replicates: the base seed and those that follow it.
        log_fields: Swept fields that read better on a logarithmic scale.
        notes: What the author should know, such as points that were the same.
    """

    study: Study
    objectives: Mapping[str, Direction]
    points: tuple[PlannedPoint, ...]
    seeds: tuple[int, ...]
    log_fields: frozenset[str]
    notes: tuple[str, ...] = ()

    def replicates(self) -> list[PlannedReplicate]:
        """Every training, point by point."""
        return [
            PlannedReplicate(p.point_id, seed, p.config.model_copy(update={"seed": seed}))
            for p in self.points
            for seed in self.seeds
        ]

    def cost_seconds(self) -> float:
        """Roughly the seconds that one core takes for all of it."""
        return _seconds(self.study, (point.config for point in self.points))


def make_plan(study: Study, num_points: int | None = None) -> Plan:
    """Work out what a study comes to.

    Args:
        study: The study.
        num_points: How many points the search draws, in place of the study's own number.

    Raises:
        StudyError: With everything that is wrong with the study.
        InputError: If `num_points` is no number of points.
    """
    study = set_num_points(study, num_points)
    checked = validate_study(study)
    if checked.errors:
        raise StudyError(checked.errors)
    if (trainings := len(checked.configs) * study.replicates) > MAX_TRAININGS:
        found, allowed = f"{trainings:,} trainings", f"at most {MAX_TRAININGS:,} in all"
        raise StudyError([study.source.problem(("replicates",), found, allowed)])
    experiment = privnets.experiment(study.experiment)
    configs = _identified(experiment, checked.configs)
    objectives = study.objectives or experiment.default_objectives(checked.configs[0])
    base = checked.configs[0].seed
    return Plan(
        study=study.model_copy(update={"objectives": dict(objectives)}),
        objectives=dict(objectives),
        points=tuple(PlannedPoint(name, config) for name, config in configs.items()),
        seeds=tuple(range(base, base + study.replicates)),
        log_fields=frozenset(name for name, axis in study.space.items() if axis.log_scaled),
        notes=(*checked.notes, *_notes(study, len(checked.configs), len(configs))),
    )


def data_fingerprints(experiment: str, configs: Iterable[ExperimentConfig]) -> dict[str, str]:
    """Data set to the fingerprint of its files here.

    Args:
        experiment: That the configurations are of.
        configs: Which say what data they use.

    Raises:
        DataError: If a data set is absent or altered.
    """
    runs = privnets.experiment(experiment)
    found: dict[str, str] = {}
    for config in configs:
        name = str(getattr(config, runs.data_field, runs.name))
        if name not in found:
            found[name] = runs.fingerprint(config)
    return found


def set_num_points(study: Study, num_points: int | None) -> Study:
    """A study whose search draws another number of points; the same where that is None.

    Raises:
        InputError: If it is no number of points.
    """
    if num_points is None:
        return study
    if not 1 <= num_points <= MAX_POINTS:
        raise InputError(f"num_points must be from 1 to {MAX_POINTS:,}; got {num_points}.")
    search = study.search.model_copy(update={"num_points": num_points})
    return study.model_copy(update={"search": search})


def confirmation_question(plan: Plan) -> str | None:
    """What to ask before so large a plan is run; None when it is not large."""
    if len(plan.points) <= CONFIRM_ABOVE_POINTS:
        return None
    return (
        f"The plan has {len(plan.points):,} points of {len(plan.seeds)} replicates, about "
        f"{format_duration(plan.cost_seconds())} of one core. Pass --yes to run it."
    )


def estimate_cost(study: Study) -> float | None:
    """A plan's `cost`, told without a look at its data; None if the study cannot be planned."""
    checked = validate_study(study, data=False)
    return None if checked.errors else _seconds(study, checked.configs)


def format_duration(seconds: float) -> str:
    """Seconds in words that one can read at a glance."""
    if seconds < 1.5:
        return "1 second"
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} minutes"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} hours"
    return f"{timedelta(seconds=seconds).days:,} days"


def _seconds(study: Study, configs: Iterable[ExperimentConfig]) -> float:
    experiment = privnets.experiment(study.experiment)
    return math.fsum(experiment.cost(config).seconds for config in configs) * study.replicates


def _identified(
    experiment: Experiment, configs: Iterable[ExperimentConfig]
) -> dict[str, ExperimentConfig]:
    """Each point once, by its identity; configurations of one structure share their data."""
    fingerprints: dict[str, str] = {}
    points: dict[str, ExperimentConfig] = {}
    for config in configs:
        structure = config.structure()
        if structure not in fingerprints:
            fingerprints[structure] = experiment.fingerprint(config)
        fingerprint = fingerprints[structure]
        identity = point_id(experiment.name, experiment.version, config, fingerprint)
        points.setdefault(identity, config)
    return points


def _notes(study: Study, proposed: int, kept: int) -> list[str]:
    notes = []
    if study.search.algorithm == "grid" and proposed < grid_size(study.space):
        total, seed = grid_size(study.space), study.search.seed
        notes.append(f"{proposed:,} of the grid's {total:,} combinations, drawn by seed {seed}.")
    if kept < proposed:
        notes.append(f"{proposed - kept:,} of {proposed:,} points are the same as others: merged.")
    return notes
