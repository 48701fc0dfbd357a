"""Sentences on a front: why it is empty, what its points rest on, what it may lack, and its cost.

The cost is the differential privacy of the search as a whole, where trainings record their noise.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

import numpy as np
import pandas as pd

from privnets.differential_privacy.accounting import (
    PrivateTraining,
    composed_epsilon,
    selected_epsilon,
)
from sweeps.analysis.flags import FLAG_TEXTS, is_flagged, raised_flags
from sweeps.analysis.pareto import Objectives, meets_constraints
from sweeps.analysis.results import (
    CONFIRMING,
    PHASE,
    Result,
    is_only_searched,
)
from sweeps.analysis.tables import floor_of
from sweeps.analysis.text import format_count, format_number, metric_label, metric_name
from sweeps.study.search import SEARCHES, has_model

UNCONFIRMED: Final = "searched but not confirmed"
UNFIT: Final = "outside the study's constraints"
UNDEFINED: Final = "with an undefined objective"
FLAGGED: Final = "with a raised flag"
_NOT_BEATEN: Final = (
    "No point of the front is shown to be better than the trivial model, which always gives the "
    "most frequent class or the mean"
)
_SHOWN_FLAGS: Final = 3
_EPSILON: Final = "privacy/epsilon"
_NO_EPSILON: Final = "The search as a whole has no epsilon"


def front_remarks(
    result: Result,
    front: pd.DataFrame,
    objectives: Objectives | None = None,
    *,
    include_flagged: bool = False,
) -> list[str]:
    """Sentences that belong beside a front; none before any point has finished.

    Args:
        result: A sweep.
        front: Its front, as `Result.front` returns it.
        objectives: Those of the front; the study's by default.
        include_flagged: Whether points with a raised flag take part in it.
    """
    if not result.counts["finished"]:
        return []
    private = search_privacy(result)
    if front.empty:
        empty = explain_empty_front(result, objectives, include_flagged=include_flagged)
        return [empty, *private]
    sentences = note_trivial_model(front, objectives or result.objectives)
    fewest, search = front["replicates"].min(), result.study.search
    if unconfirmed := note_unconfirmed(result):
        sentences.append(unconfirmed)
    elif fewest == 1:
        sentences.append("One replicate does not show the spread of training; take at least three.")
    elif fewest == 2:  # nominal 95% intervals of two hold 83% to 92%
        sentences.append(
            "Two replicates are too few for intervals that mean something; take at least three."
        )
    planned, tolerance = search.num_points or 0, search.front_tolerance
    if tolerance is not None and result.has_ended_search and result.searches < planned:
        sentences.append(
            f"The search ended after {result.searches} of {planned} trainings: its front was known "
            f"to ± {tolerance:g} of its hypervolume (front_tolerance)."
        )
    # A search without a model confirms both ends of the front of its means. If fewer points are
    # confirmed than the study allows, they are the whole front.
    count = len(result.confirmed)
    is_cut = count >= max(1, search.confirmed_points)
    if is_cut and has_model(type(SEARCHES.get(search.algorithm))):
        sentences.append(
            f"The front is that of the {format_count(count, 'confirmed point')}. Its ends may be "
            "missing: the search chose the points that cover most hypervolume; a larger "
            "search.confirm adds others."
        )
    return [*sentences, *private]


def note_trivial_model(front: pd.DataFrame, objectives: Objectives) -> list[str]:
    """Value of the trivial model in each utility of a front, and how many points beat it.

    A point beats it if its whole interval lies beyond the value.
    """
    sentences = []
    for metric in objectives:
        if not (value := trivial_value(front, metric)):
            continue
        value = f"{metric_name(metric)} is {value}"
        count = count_better_than_trivial(front, metric, objectives[metric])
        beating = f"{count} of {format_count(len(front), 'point')} on the front"
        sentences.append(
            f"{beating} {'is' if count == 1 else 'are'} shown to be better than the trivial model, "
            f"whose {value}."
            if count
            else f"{_NOT_BEATEN}; its {value}."
        )
    return sentences


def trivial_value(front: pd.DataFrame, metric: str) -> str:
    """Value of the trivial model in a utility, or its range over a front; empty if unknown."""
    column = floor_of(metric) if metric.startswith("utility/") else ""
    values = front[column].dropna() if column in front else front.index[:0]
    ends = (f"{value:.3g}" for value in (values.min(), values.max())) if len(values) else ()
    return " to ".join(dict.fromkeys(ends))


def count_better_than_trivial(front: pd.DataFrame, metric: str, direction: str) -> int:
    """Number of points whose whole interval of a metric lies beyond the trivial model's value."""
    if floor_of(metric) not in front:
        return 0
    is_max, floor = direction == "max", front[floor_of(metric)]
    end = front.get(f"{metric}.ci_{'low' if is_max else 'high'}", pd.Series(math.nan, front.index))
    return int((end > floor if is_max else end < floor).sum())


def explain_empty_front(
    result: Result, objectives: Objectives | None = None, *, include_flagged: bool = False
) -> str:
    """Reason that no finished point is on the front; see `front_remarks`."""
    counts = count_exclusions(result, objectives, include_flagged=include_flagged)
    kind = "confirmed point" if counts[UNCONFIRMED] else "finished point"
    finished = result.counts["finished"] - counts[UNCONFIRMED]
    none = f"No front: none of {format_count(finished, kind)}"
    if counts[UNFIT]:
        limits, reported = [], result.points.loc[~is_only_searched(result.points)]
        for metric, bounds in result.study.constraints.items():
            limited = ((">=", bounds.at_least), ("<=", bounds.at_most))
            ends = " and ".join(f"{sign} {end:g}" for sign, end in limited if end is not None)
            values = reported.get(metric, pd.Series(dtype=float)).dropna()
            span = f"{format_number(values.min())} to {format_number(values.max())}"
            span = "undefined" if values.empty else span
            limits.append(f"{metric_label(metric)} must be {ends} and is {span}")
        return f"{none} meets the constraints and can be compared: {'; '.join(limits)}."
    if counts[FLAGGED]:
        raised = raised_flags(result.points).sum()
        common = [str(flag) for flag in raised.nlargest(_SHOWN_FLAGS).index if raised[flag]]
        reasons = "; ".join(f"{FLAG_TEXTS.get(f, f)} at {raised[f]}" for f in common)
        return f"{none} is free of flags ({reasons}). --include-flagged keeps flagged points."
    return f"{none} reports every objective."


def count_exclusions(
    result: Result, objectives: Objectives | None = None, *, include_flagged: bool = False
) -> dict[str, int]:
    """Numbers of complete points that cannot be on a front, by their first cause in words."""
    points, metrics = result.points, list(objectives or result.objectives)
    allowed = meets_constraints(points, result.study.constraints).index
    causes = {
        "failed": points["status"] == "failed",
        "stopped early": points["status"] == "stopped",
        UNCONFIRMED: is_only_searched(points),
        UNFIT: ~points.index.isin(allowed),
        UNDEFINED: points.reindex(columns=metrics).isna().any(axis=1),
        FLAGGED: is_flagged(points) & (not include_flagged),
    }
    counts, left = {}, np.ones(len(points), dtype=bool)
    for cause, applies in causes.items():
        counts[cause] = int((left & applies).sum())
        left &= ~np.asarray(applies)
    return counts


def note_unconfirmed(result: Result) -> str:
    """Warning that an adaptive search has not confirmed its front; empty if it has.

    A point that was chosen for its good results is on average worse than these results.
    """
    points = result.points
    if PHASE not in points or (points[PHASE] == CONFIRMING).any():
        return ""
    when = " yet" if result.study.search.confirmed_points else ""
    return (
        f"No point is confirmed{when}: these are the best of many trainings with single seeds, and "
        "on average worse than they look."
    )


def search_privacy(result: Result) -> list[str]:
    """Sentences on the epsilon of all trainings together, and of a point chosen by their results.

    Empty unless a point has an epsilon. Every training counts as one on the same records.
    """
    points, search = result.points.loc[result.points["status"] != "failed"], result.study.search
    if _EPSILON not in points or points[_EPSILON].isna().all():
        return []
    if count := int(points[_EPSILON].isna().sum()):
        were = "was" if count == 1 else "were"
        of = f"{count} of {format_count(len(points), 'point')}"
        return [f"{_NO_EPSILON}: {of} {were} trained without differential privacy."]
    if len(terms := points[["config/delta", "config/neighbours"]].drop_duplicates()) > 1:
        return [f"{_NO_EPSILON}: its points differ in delta or neighbours."]
    (delta,), (neighbours,) = terms["config/delta"], terms["config/neighbours"]
    trained = result.replicates.groupby("point_id").size()
    settings: Counter[PrivateTraining] = Counter()
    trainings: Counter[PrivateTraining] = Counter()
    for row in points.to_dict("records"):
        names = ("noise_multiplier", "sample_rate", "steps")
        noise, rate, steps = (row[f"mechanism/{name}"] for name in names)
        # Replicates have equal settings; their mean may differ from each by rounding.
        own = PrivateTraining(float(f"{noise:.12g}"), float(f"{rate:.12g}"), round(steps))
        settings[own] += 1
        trainings[own] += int(trained[row["point_id"]])
    if SEARCHES.get(search.algorithm).is_adaptive and len(settings) > 1:
        return [
            f"{_NO_EPSILON}: it chose the noise of trainings by results of others, and "
            "composition needs noise that is fixed in advance."
        ]
    single, every = (composed_epsilon(each, delta, neighbours) for each in (settings, trainings))
    count, kind = settings.total(), neighbours.replace("_", " ")
    sentences = [
        f"Epsilon of having searched (delta {delta:g}, neighbours: {kind} record): {single:.4g} "
        f"for one training of each of {format_count(count, 'setting')} on the same records, "
        "whether all are published or only "
        f"one chosen by results; {every:.4g} for all {trainings.total()} trainings (by composition "
        "of privacy loss distributions, settings fixed in advance). The sweep itself draws "
        "training sets for each replicate from one data set, and has further models as attackers' "
        "references, which count as never released."
    ]
    if search.algorithm == "random" and count > 1:
        try:
            poisson, geometric = (
                selected_epsilon(settings, count, shape, delta, neighbours)
                for shape in (math.inf, 1.0)
            )
        except ValueError:
            return sentences
        sentences.append(
            f"If the number of trainings was itself drawn beforehand, with mean {count}, and only "
            f"the best one is released: {poisson:.4g} (Poisson) or {geometric:.4g} (geometric), by "
            "repeat-and-select (arXiv 2110.03620). A fixed number has no better bound than "
            "composition."
        )
    return sentences
