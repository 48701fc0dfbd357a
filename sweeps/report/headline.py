"""Result of a sweep in a few sentences, for its report and its description in MLflow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

import numpy as np
import pandas as pd

from privnets.statistics.intervals import Interval
from sweeps.analysis.effects import KnobEffect, knob_effects, leading_effects
from sweeps.analysis.obfuscation import compare_with_obfuscation, is_obfuscated
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.remarks import (
    count_better_than_trivial,
    explain_empty_front,
    note_unconfirmed,
    trivial_value,
)
from sweeps.analysis.results import Result
from sweeps.analysis.tables import (
    FRONT_GROUP,
    OBFUSCATION,
    STRENGTH,
    Row,
    best_first,
    own_fields,
    row_interval,
    varying_fields,
)
from sweeps.analysis.text import (
    field_label,
    format_count,
    format_setting,
    label_setting,
    metric_label,
    setting_as_number,
)
from sweeps.analysis.trends import Effect

_STEADY = 0.7
"""Least rank correlation of a metric that is said to rise or fall with a knob."""

_BARE = ("true", "false", "null")


def headline(
    result: Result,
    front: pd.DataFrame | None = None,
    effects: Sequence[KnobEffect] | None = None,
) -> str:
    """The sentences of `headline_sentences` as one text."""
    return " ".join(headline_sentences(result, front, effects))


def headline_sentences(
    result: Result,
    front: pd.DataFrame | None = None,
    effects: Sequence[KnobEffect] | None = None,
) -> list[str]:
    """What a reader may conclude, the most important first, with 95% intervals.

    Learned releases beside noise; the effect of the leading knob; the best point in each objective
    that depends on a knob beyond chance, or what all points keep to; the trivial model.

    Args:
        result: A sweep.
        front: `result.front(all=True)`, if it is known already.
        effects: `knob_effects(result)`, if they are known already.
    """
    front = result.front(all=True) if front is None else front
    effects = knob_effects(result) if effects is None else effects
    if front.empty:
        return [explain_empty_front(result)]
    compared = [finding.sentence for finding in compare_with_obfuscation(result)]
    learned = _learned(front)
    sentences = [
        *compared,
        *_describe_effects(result, effects),
        _describe_ends(result, front if learned.empty else learned, effects),
        note_unconfirmed(result),
    ]
    if result.pending:
        sentences.append(f"{format_count(result.pending, 'point')} unfinished.")
    return [sentence for sentence in sentences if sentence]


def _describe_effects(result: Result, effects: Sequence[KnobEffect]) -> list[str]:
    """The leading knob's effect on each objective in words; empty if none was measured."""
    own = leading_effects(result, effects)
    if not own:
        return []
    name = field_label(own[0].knob)
    if not any(_is_beyond_chance(effect) for effect in own):
        return [f"{_capitalize(name)}: no effect beyond chance."]
    text, last = "", ("", "")
    for effect in own:
        if (found := effect.finding.effect) is None:
            continue
        trend = effect.finding.measured
        verb, size = _describe_change(found)
        has_ends = found.change.low > 0 or found.change.high < 0
        if has_ends and trend is not None and abs(trend.value) < _STEADY:
            verb, size = "neither rises nor falls throughout", ""
        place = _describe_range(found, name)
        separator = ", " if place == last[0] else f"{'; ' if text else ''}{place}: "
        said = "" if (place, verb) == last and size else f" {verb}"
        text += f"{separator}{_name(effect.metric)}{said}{size}"
        last = place, verb
    return [f"{_capitalize(text)}."]


def _describe_range(effect: Effect, name: str) -> str:
    if effect.ends is None:
        return f"from the lowest to the highest {name}"
    ends = " to ".join(label_setting(end) for end in effect.ends)
    mean = ", other settings averaged" if effect.is_averaged else ""
    return f"{name} from {ends}{mean}"


def _describe_change(effect: Effect) -> tuple[str, str]:
    """Verb for the change of a metric, and its size in words."""
    change = effect.change
    if change.low > 0:
        return "rises", f" by {change.plus_minus}"
    if change.high < 0:
        return "falls", f" by {Interval(-change.value, -change.high, -change.low).plus_minus}"
    if effect.is_beyond_chance:
        return "varies", ", with no change from end to end"
    return "shows no change beyond chance", ""


def _is_beyond_chance(effect: KnobEffect) -> bool:
    return effect.finding.effect is not None and effect.finding.effect.is_beyond_chance


def _describe_ends(result: Result, front: pd.DataFrame, effects: Sequence[KnobEffect]) -> str:
    """The best point in each objective, or what all points keep to where none can be told."""
    objectives, space = result.objectives, list(result.study.space)
    varying = varying_fields(result.points)
    fields = [field for field in space if field in varying] or space
    moved = {effect.metric for effect in effects if _is_beyond_chance(effect)}
    measured = {effect.metric for effect in effects if effect.finding.effect is not None}
    if len(front) > 1 and FRONT_GROUP in front and front[FRONT_GROUP].nunique() == 1:
        measured = {*objectives}
    names = {metric: _name(metric) for metric in objectives}
    every = result.candidates if is_obfuscated(front).any() else _learned(result.candidates)
    parts = []
    for metric, direction in objectives.items():
        name, trivial = names[metric], _describe_trivial(front, metric, objectives)
        if metric in measured - moved:
            parts.append(f"{name} {_worst(every, metric, objectives)}{trivial}")
            continue
        (row, *_) = best_first(front, {metric: direction}).to_dict("records")
        best = {"min": "lowest", "max": "highest"}[direction] if len(every) > 1 else ""
        text = f"{best} {name} {_value(row, metric)} at {_place(row, fields)}{trivial}"
        parts.append(text.lstrip())
    return f"{_capitalize('; '.join(parts))}."


def _learned(points: pd.DataFrame) -> pd.DataFrame:
    return points.loc[~is_obfuscated(points)]


def _worst(points: pd.DataFrame, metric: str, objectives: Objectives) -> str:
    """The value that every point's interval keeps to."""
    intervals = [row_interval(row, metric) for row in points.to_dict("records")]
    if objectives[metric] == "min":
        highest = np.nanmax([max(i.value, i.high) for i in intervals])
        return f"at most {_round(highest, ROUND_CEILING)}"
    lowest = np.nanmin([min(i.value, i.low) for i in intervals])
    return f"at least {_round(lowest, ROUND_FLOOR)}"


def _round(limit: float, rounding: str) -> str:
    """Two digits of a limit, rounded to the side on which it still holds."""
    return f"{float(Context(2, rounding).create_decimal(str(limit))):g}"


def _describe_trivial(front: pd.DataFrame, metric: str, objectives: Objectives) -> str:
    value = trivial_value(front, metric)
    if not value:
        return ""
    if count_better_than_trivial(front, metric, objectives[metric]):
        return f" (trivial model: {value})"
    return f" (trivial model: {value}, not beaten)"


def _place(row: Row, fields: Sequence[str]) -> str:
    """A point's swept settings in words: `120 training records, weight decay 1`."""
    fields = [field for field in own_fields(row, fields) if f"config/{field}" != OBFUSCATION]
    words = []
    if row.get(OBFUSCATION, "none") != "none":
        words = [f"{row[OBFUSCATION]} of strength {label_setting(row[f'config/{STRENGTH}'])}"]
        fields = [field for field in fields if field != STRENGTH]
    for field in fields:
        name, value = field_label(field), row.get(f"config/{field}")
        if math.isnan(setting_as_number(value)) and format_setting(value) not in _BARE:
            words.append(str(value).replace("_", " "))
        else:
            shown = label_setting(value)
            one = name.removesuffix("s") if shown == "1" else name
            words.append(f"{shown} {one}" if name.endswith("s") else f"{name} {shown}")
    return ", ".join(words) or "the only setting"


def _name(metric: str) -> str:
    """A metric's name in words, without its unit."""
    return metric_label(metric).partition(", ")[0]


def _value(row: Row, metric: str) -> str:
    """A point's interval of a metric, with its unit."""
    _, _, unit = metric_label(metric).partition(", ")
    return f"{row_interval(row, metric).plus_minus} {unit}".rstrip()


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
