"""Result of a sweep in a few sentences, for its report and its description in MLflow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from sweeps.analysis.fronts import separate_points
from sweeps.analysis.obfuscation import compare_with_obfuscation
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.remarks import (
    NOT_BEATEN,
    explain_empty_front,
    note_trivial_model,
    note_unconfirmed,
)
from sweeps.analysis.results import Result
from sweeps.analysis.tables import (
    FRONT_PROBABILITY,
    OBFUSCATION,
    STRENGTH,
    Row,
    best_first,
    own_fields,
    row_interval,
    varying_fields,
)
from sweeps.analysis.text import field_label, format_count, label_setting, metric_label

_PHRASES: Mapping[str, str] = {
    "privacy/membership_advantage": "the strongest attack's advantage is {}",
    "privacy/attacker_balanced_accuracy": "the strongest attacker's balanced accuracy is {}",
}
_BEST: Mapping[str, str] = {"min": "lowest", "max": "highest"}


def headline(result: Result, front: pd.DataFrame | None = None) -> str:
    """The sentences of `headline_sentences` as one text."""
    return " ".join(headline_sentences(result, front))


def headline_sentences(result: Result, front: pd.DataFrame | None = None) -> list[str]:
    """The most private and the most useful point of the front in words, with 95% intervals.

    The first sentence is what a reader should know.

    Args:
        result: A sweep.
        front: `result.front()`, if it is known already.
    """
    front = result.front() if front is None else front
    objectives = result.objectives
    if front.empty:
        return [explain_empty_front(result)]
    metrics = list(objectives)
    leading = next((m for m in metrics if m.startswith("privacy/")), metrics[0])
    varying, space = varying_fields(result.points), list(result.study.space)
    fields = [field for field in space if field in varying] or space
    private = _best_row(front, objectives, leading)
    best = f"{_BEST[objectives[leading]]} {_name(leading)}"
    trivial = note_trivial_model(front, objectives)
    sentences = [
        *(finding.sentence for finding in compare_with_obfuscation(result)),
        *(sentence for sentence in trivial if sentence.startswith(NOT_BEATEN)),
        f"At {_place(private, fields)}, {_describe_metrics(private, metrics)}.",
        _describe_rank(private, best if len(front) > 1 else ""),
        _describe_differences(result, front, str(private["point_id"])),
    ]
    useful = next((m for m in metrics if m.startswith("utility/") and m != leading), None)
    other = private if useful is None else _best_row(front, objectives, useful)
    if useful is not None and other["point_id"] != private["point_id"]:
        others = [metric for metric in metrics if metric != useful]
        sentences.append(
            f"The {_BEST[objectives[useful]]} {_name(useful)}, "
            f"{_value(other, useful)}, is at {_place(other, fields)}, "
            f"where {_describe_metrics(other, others)}."
        )
        sentences.append(_describe_rank(other))
    sentences.append(note_unconfirmed(result))
    if result.pending:
        sentences.append(f"{format_count(result.pending, 'point')} unfinished.")
    return [sentence for sentence in sentences if sentence]


def _best_row(front: pd.DataFrame, objectives: Objectives, metric: str) -> Row:
    rows: list[Row] = list(best_first(front, {metric: objectives[metric]}).to_dict("records"))
    return rows[0]


def _place(row: Row, fields: Sequence[str]) -> str:
    """A point's swept settings in words: `120 training records and weight decay 1`."""
    fields = [field for field in own_fields(row, fields) if f"config/{field}" != OBFUSCATION]
    named = ((field_label(field), label_setting(row.get(f"config/{field}"))) for field in fields)
    if row.get(OBFUSCATION, "none") != "none":
        strength = f"{row[OBFUSCATION]} of strength {label_setting(row[f'config/{STRENGTH}'])}"
        others = [f"{name} {value}" for name, value in named if name != STRENGTH]
        return _join([strength, *others])
    settings = [f"{v} {name}" if name.endswith("s") else f"{name} {v}" for name, v in named]
    return _join(settings) or "the only setting"


def _describe_metrics(row: Row, metrics: Sequence[str]) -> str:
    phrases = [
        _PHRASES.get(metric, f"{_name(metric)} is {{}}").format(_value(row, metric))
        for metric in metrics
    ]
    return _join(phrases)


def _name(metric: str) -> str:
    """A metric's name in words, without its unit."""
    return metric_label(metric).partition(", ")[0]


def _value(row: Row, metric: str) -> str:
    """A point's interval of a metric, with its unit."""
    _, _, unit = metric_label(metric).partition(", ")
    return f"{row_interval(row, metric).plus_minus} {unit}".rstrip()


def _describe_rank(row: Row, best: str = "") -> str:
    """Sentence on what a point is best in, if given, and its probability to be on the front."""
    probability = row.get(FRONT_PROBABILITY, math.nan)
    parts = [f"has the {best} of the front"] if best else []
    if not math.isnan(probability):
        parts.append(f"is on the front with probability {probability:.2f}")
    return f"This point {_join(parts)}." if parts else ""


def _describe_differences(result: Result, front: pd.DataFrame, point_id: str) -> str:
    """Number of points of the front from which a point differs, with that in each objective."""
    samples = result.samples(list(result.objectives), front["point_id"])
    samples = samples.select(pd.Index(samples.point_ids).get_indexer(pd.Index(front["point_id"])))
    if not samples.has_errors[list(samples.point_ids).index(point_id)]:
        return "Its error is unknown, so no other point can be told apart from it."
    if len(front) == 1:
        return ""
    is_separate = separate_points(samples, result.objectives, point_id)
    others, apart = len(front) - 1, int(is_separate.any(axis=1).sum())
    if not apart:
        return "No other point of the front can be told apart from it."
    every = {1: "the other point", 2: "both other points"}.get(others, f"all {others} other points")
    which = every if apart == others else f"{apart} of the {others} other points"
    counts = zip(result.objectives, is_separate.sum(axis=0).tolist(), strict=True)
    differing = [f"{count} in {_name(metric)}" for metric, count in counts if count]
    where = ", ".join(differing)
    return f"It differs from {which} of the front ({where}; differences paired by seed)."


def _join(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
