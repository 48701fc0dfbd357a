"""Differential privacy of a search as a whole, where trainings record their noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

import pandas as pd

from privnets.differential_privacy.accounting import (
    Neighbours,
    PrivateTraining,
    composed_epsilon,
    selected_epsilon,
)
from sweeps.analysis.results import Result
from sweeps.analysis.text import format_count
from sweeps.study.search import SEARCHES

EPSILON: Final = "privacy/epsilon"
_NONE: Final = "The search as a whole has no epsilon"
_NUMBERS: Final[Mapping[str, float]] = {"Poisson": math.inf, "geometric": 1.0}


def search_privacy(result: Result) -> list[str]:
    """Sentences on the epsilon of all trainings together, and of a point chosen by their results.

    Empty unless a point has an epsilon. Every training counts as one on the same records.
    """
    points = result.points.loc[result.points["status"] != "failed"]
    if EPSILON not in points or points[EPSILON].isna().all():
        return []
    if count := int(points[EPSILON].isna().sum()):
        return [
            f"{_NONE}: {count} of {format_count(len(points), 'point')} "
            f"{'was' if count == 1 else 'were'} trained without differential privacy."
        ]
    if len(terms := points[["config/delta", "config/neighbours"]].drop_duplicates()) > 1:
        return [f"{_NONE}: its points differ in delta or neighbours."]
    (delta,), (neighbours,) = terms["config/delta"], terms["config/neighbours"]
    trained = result.replicates.groupby("point_id").size()
    settings = Counter(_training(row) for _, row in points.iterrows())
    trainings: Counter[PrivateTraining] = Counter()
    for _, row in points.iterrows():
        trainings[_training(row)] += int(trained[row["point_id"]])
    algorithm = SEARCHES.get(result.study.search.algorithm)
    if algorithm.is_adaptive and len(settings) > 1:
        return [
            f"{_NONE}: it chose the noise of trainings by results of others, and "
            "composition needs noise that is fixed in advance."
        ]
    return _sentences(
        settings, trainings, delta, neighbours, result.study.search.algorithm == "random"
    )


def _sentences(
    settings: Counter[PrivateTraining],
    trainings: Counter[PrivateTraining],
    delta: float,
    neighbours: Neighbours,
    is_random: bool,
) -> list[str]:
    count = settings.total()
    single, every = (composed_epsilon(each, delta, neighbours) for each in (settings, trainings))
    terms = f"delta {delta:g}, neighbours: {neighbours.replace('_', ' ')} record"
    sentences = [
        f"Epsilon of having searched ({terms}): {single:.4g} for one training of each of "
        f"{format_count(count, 'setting')} on the same records, whether all are published or only "
        f"one chosen by results; {every:.4g} for all {trainings.total()} trainings (by composition "
        "of privacy loss distributions, settings fixed in advance). The sweep itself draws "
        "training sets for each replicate from one data set, and has further models as attackers' "
        "references, which count as never released."
    ]
    if is_random and count > 1:
        try:
            bounds = [
                f"{selected_epsilon(settings, count, shape, delta, neighbours):.4g} ({name})"
                for name, shape in _NUMBERS.items()
            ]
        except ValueError:
            return sentences
        sentences.append(
            f"If the number of trainings was itself drawn beforehand, with mean {count}, and only "
            f"the best one is released: {' or '.join(bounds)}, by repeat-and-select (arXiv "
            "2110.03620). A fixed number has no better bound than composition."
        )
    return sentences


def _training(row: pd.Series) -> PrivateTraining:
    noise, rate, steps = (
        row[f"mechanism/{name}"] for name in ("noise_multiplier", "sample_rate", "steps")
    )
    # Replicates have equal settings; their mean may differ from each by rounding.
    return PrivateTraining(float(f"{noise:.12g}"), float(f"{rate:.12g}"), round(steps))
