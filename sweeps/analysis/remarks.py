"""Sentences on a front: why it is empty, what its points rest on, and what it may lack."""

from __future__ import annotations

import pandas as pd

from sweeps.analysis.pareto import comparable_points
from sweeps.analysis.results import CONFIRMING, PHASE, Result
from sweeps.analysis.text import format_count, format_number
from sweeps.study.search import SEARCHES, has_model
from sweeps.study.spec import Bounds


def front_remarks(result: Result, front: pd.DataFrame) -> list[str]:
    """Sentences that belong beside a front; none before any point has finished.

    Args:
        result: A sweep.
        front: Its front, as `Result.front` returns it.
    """
    if not result.counts["finished"]:
        return []
    if front.empty:
        return [explain_empty_front(result)]
    sentences = (note_unconfirmed(result), _note_early_end(result), _note_cut_front(result))
    return [sentence for sentence in sentences if sentence]


def explain_empty_front(result: Result) -> str:
    """Reason that no finished point is on the study's front."""
    points, objectives = result.points, result.objectives
    finished = format_count(result.counts["finished"], "finished point")
    if set(objectives) <= set(points.columns):
        comparable, _ = comparable_points(points, objectives)
        if len(comparable) and result.study.constraints:
            limits = (
                _compare_with(bounds, metric, comparable[metric])
                for metric, bounds in result.study.constraints.items()
                if metric in comparable
            )
            return f"No front: none of {finished} meets the constraints: {'; '.join(limits)}."
    return f"No front: none of {finished} reports every objective without a raised flag."


def note_unconfirmed(result: Result) -> str:
    """Warning that an adaptive search has not confirmed its front; empty if it has, or never will.

    A point that was chosen for its good results is on average worse than these results.
    """
    points = result.points
    if PHASE not in points or (points[PHASE] == CONFIRMING).any():
        return ""
    if not result.study.search.confirmed_points:
        return ""
    return (
        "No point is confirmed yet: these are the best of many trainings with single seeds, and on "
        "average worse than they look."
    )


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
    """What a confirmed front may lack; empty for other fronts.

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


def _compare_with(bounds: Bounds, metric: str, values: pd.Series[float]) -> str:
    """A constraint and the range of a metric, in words."""
    limits = {">=": bounds.at_least, "<=": bounds.at_most}
    wanted = " and ".join(
        f"{sign} {limit:g}" for sign, limit in limits.items() if limit is not None
    )
    lowest, highest = format_number(values.min()), format_number(values.max())
    return f"{metric} must be {wanted} and is {lowest} to {highest}"
