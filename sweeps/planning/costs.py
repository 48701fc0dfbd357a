"""Number and cost of a study's trainings, estimated before they run."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

import privnets
from privnets.config import ExperimentConfig
from sweeps.errors import InputError
from sweeps.study.search import is_adaptive
from sweeps.study.spec import Study

CONFIRM_ABOVE_POINTS: Final = 10_000
"""Larger plans run only after the user has confirmed them."""


def planned_trainings(study: Study, points: int) -> int:
    """Number of trainings of a study, of which an algorithm that is not adaptive has `points`."""
    if not is_adaptive(study):
        return points * study.replicates
    return (study.search.num_points or 0) + study.search.confirmed_points * study.replicates


def check_confirmed(study: Study, configs: Sequence[ExperimentConfig], is_confirmed: bool) -> None:
    """Raises `InputError` for a plan above `CONFIRM_ABOVE_POINTS` that is not confirmed."""
    points = (study.search.num_points or 0) if is_adaptive(study) else len(configs)
    if points > CONFIRM_ABOVE_POINTS and not is_confirmed:
        trainings = planned_trainings(study, points)
        cost = format_duration(cost_seconds(study, configs))
        raise InputError(
            f"the plan has {points:,} points, {trainings:,} trainings in all, about {cost} of one "
            "core; pass --yes to accept it"
        )


def cost_seconds(study: Study, configs: Collection[ExperimentConfig]) -> float:
    """Estimates the seconds that one core takes for a study, from the costs of configurations."""
    if not configs:
        return 0.0
    experiment = privnets.experiment(study.experiment)
    mean = math.fsum(experiment.cost(config).seconds for config in configs) / len(configs)
    return mean * planned_trainings(study, len(configs))


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
