"""Sentences on a front: why it is empty, what its points rest on, and what it may lack."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from sweeps.analysis.flags import FLAG_TEXTS, is_flagged, raised_flags
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.results import (
    CONFIRMING,
    PHASE,
    Result,
    is_only_searched,
    meets_constraints,
)
from sweeps.analysis.search_privacy import search_privacy
from sweeps.analysis.tables import Row, floor_of, row_interval
from sweeps.analysis.text import format_count, format_number, metric_label
from sweeps.study.search import SEARCHES, has_model
from sweeps.study.spec import Bounds

UNCONFIRMED: Final = "searched but not confirmed"
UNFIT: Final = "outside the study's constraints"
UNDEFINED: Final = "with an undefined objective"
FLAGGED: Final = "with a raised flag"
_NOT_BEATEN: Final = (
    "No point of the front is shown to be better than the trivial model, which always gives the "
    "most frequent class or the mean"
)
_SHOWN_FLAGS: Final = 3


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
    sentences = (
        note_unconfirmed(result) or _note_few_replicates(front),
        _note_early_end(result),
        _note_cut_front(result),
    )
    trivial = note_trivial_model(front, objectives or result.objectives)
    return [*(sentence for sentence in (*trivial, *sentences) if sentence), *private]


def note_trivial_model(front: pd.DataFrame, objectives: Objectives) -> list[str]:
    """Value of the trivial model in each utility of a front, and how many points beat it.

    A point beats it if its whole interval lies beyond the value.
    """
    sentences = []
    for metric in objectives:
        if not (value := trivial_value(front, metric)):
            continue
        value = f"{metric_label(metric).partition(', ')[0]} is {value}"
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
    return sum(_is_better(row, metric, direction) for row in front.to_dict("records"))


def _is_better(row: Row, metric: str, direction: str) -> bool:
    """Whether a point's interval lies beyond the floor of a metric."""
    interval, floor = row_interval(row, metric), row_interval(row, floor_of(metric)).value
    return interval.low > floor if direction == "max" else interval.high < floor


def explain_empty_front(
    result: Result, objectives: Objectives | None = None, *, include_flagged: bool = False
) -> str:
    """Reason that no finished point is on the front; see `front_remarks`."""
    counts = count_exclusions(result, objectives, include_flagged=include_flagged)
    kind = "confirmed point" if counts[UNCONFIRMED] else "finished point"
    finished = result.counts["finished"] - counts[UNCONFIRMED]
    none = f"No front: none of {format_count(finished, kind)}"
    if counts[UNFIT]:
        reported = result.points.loc[~is_only_searched(result.points)]
        limits = (
            _compare_with(bounds, metric, reported)
            for metric, bounds in result.study.constraints.items()
        )
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


def _note_few_replicates(front: pd.DataFrame) -> str:
    """Warning that one replicate shows no spread of training, and two hardly do.

    Nominal 95% intervals of two hold 83% to 92%.
    """
    fewest = front["replicates"].min()
    if fewest == 1:
        return "One replicate does not show the spread of training; take at least three."
    if fewest == 2:
        return "Two replicates are too few for intervals that mean something; take at least three."
    return ""


def _note_early_end(result: Result) -> str:
    search = result.study.search
    planned, tolerance = search.num_points or 0, search.front_tolerance
    if tolerance is None or not result.has_ended_search or result.searches >= planned:
        return ""
    return (
        f"The search ended after {result.searches} of {planned} trainings: its front was known to "
        f"± {tolerance:g} of its hypervolume (front_tolerance)."
    )


def _note_cut_front(result: Result) -> str:
    """Warning that a confirmed front may lack points; empty for other fronts.

    A search without a model confirms both ends of the front of its means. If fewer points are
    confirmed than the study allows, they are the whole front.
    """
    search, count = result.study.search, len(result.confirmed)
    is_cut = count >= max(1, search.confirmed_points)
    if not is_cut or not has_model(type(SEARCHES.get(search.algorithm))):
        return ""
    return (
        f"The front is that of the {format_count(count, 'confirmed point')}. Its ends may be "
        "missing: the search chose the points that cover most hypervolume; a larger "
        "search.confirm adds others."
    )


def _compare_with(bounds: Bounds, metric: str, points: pd.DataFrame) -> str:
    """A constraint and the range of a metric, in words."""
    limits = ((">=", bounds.at_least), ("<=", bounds.at_most))
    ends = " and ".join(f"{sign} {end:g}" for sign, end in limits if end is not None)
    wanted = f"{metric_label(metric)} must be {ends}"
    values = points.get(metric, pd.Series(dtype=float)).dropna()
    if values.empty:
        return f"{wanted} and is undefined"
    return f"{wanted} and is {format_number(values.min())} to {format_number(values.max())}"
