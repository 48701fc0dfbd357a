"""Result of a sweep in a few sentences, for its report and its description in MLflow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

import numpy as np
import pandas as pd

from privnets.statistics.intervals import Interval
from sweeps.analysis.claims import ClaimFinding, judge_claim
from sweeps.analysis.flags import is_flagged
from sweeps.analysis.obfuscation import compare_with_obfuscation, is_obfuscated
from sweeps.analysis.pareto import problem_fields, states_problem
from sweeps.analysis.remarks import (
    count_better_than_trivial,
    explain_empty_front,
    note_unconfirmed,
    trivial_value,
)
from sweeps.analysis.results import PHASE, SEARCHING, Result, is_only_searched
from sweeps.analysis.tables import (
    FRONT_GROUP,
    INTERVAL_SUFFIXES,
    OBFUSCATION,
    STRENGTH,
    Row,
    best_first,
    evenly_spaced,
    own_fields,
    panels,
    row_interval,
    varying_fields,
)
from sweeps.analysis.text import (
    field_label,
    format_count,
    format_setting,
    label_setting,
    metric_label,
    metric_name,
    setting_as_number,
)
from sweeps.analysis.trends import Effect
from sweeps.study.search_space import axis_roots
from sweeps.study.spec import Claim

_STEADY = 0.7
"""Least rank correlation of a metric that is said to rise or fall with a knob."""

_METHODS = {
    "adversarial": (
        "Leakage is the success of the strongest of a panel of attackers, trained afresh on each "
        "release, chosen on validation data and reported on test data, beside the success without "
        "the release (floor) and on raw data (baseline). "
    ),
    "membership": (
        "Leakage is the difference between true-positive and false-positive rate of the strongest "
        "of a panel of membership attacks, chosen on one half of the records and measured on the "
        "other. "
    ),
}
"""How each experiment measures leakage, in sentences for a paper."""

_MAX_POINTS = 300
_BARE = ("true", "false", "null")


def knob_effects(result: Result) -> list[ClaimFinding]:
    """Effect of each swept field on each objective as a claim that it rises, where it is measured.

    Points count that a search confirmed, or before that all of them. A field whose values accompany
    those of another varies with it.
    """
    points, space, rows = result.points, result.study.space, result.replicates
    roots = axis_roots(space)
    knobs = [field for field in varying_fields(points) if roots.get(field) == field]
    metrics = [metric for metric in result.objectives if metric in points]
    flagged = points.loc[is_flagged(points), "point_id"].tolist()
    chosen = points.loc[~is_only_searched(points), "point_id"]
    rows = rows.loc[rows["point_id"].isin(chosen.iloc[evenly_spaced(len(chosen), _MAX_POINTS)])]
    if PHASE in points and (points[PHASE] == SEARCHING).all():  # some have a second seed
        rows = rows.loc[rows["seed"] == rows["seed"].min()]
    findings = []
    for metric, knob in itertools.product(metrics, knobs):
        paired = [f"config/{f}" for f in space if roots.get(f) == roots[knob] and f != knob]
        claim = {"statement": "It rises.", "metric": metric, "axis": knob, "trend": "increasing"}
        own = rows.drop(columns=paired, errors="ignore")
        findings.append(judge_claim(Claim.model_validate(claim), own, flagged))
    return [finding for finding in findings if finding.measured is not None]


def headline(
    result: Result,
    front: pd.DataFrame | None = None,
    effects: Sequence[ClaimFinding] | None = None,
) -> str:
    """The sentences of `headline_sentences` as one text."""
    return " ".join(headline_sentences(result, front, effects))


def headline_sentences(
    result: Result,
    front: pd.DataFrame | None = None,
    effects: Sequence[ClaimFinding] | None = None,
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
    # Points of several problems have no best one.
    sentences = [
        *compared,
        _describe_effects(result, effects),
        ""
        if problem_fields(result.points)
        else _describe_ends(result, front if learned.empty else learned, effects),
        note_unconfirmed(result),
    ]
    if result.pending:
        sentences.append(f"{format_count(result.pending, 'point')} unfinished.")
    # Without intervals, points of several problems leave nothing else to conclude.
    size = f"{len(front)} of {format_count(len(result.candidates), 'point')} on the front."
    return [sentence for sentence in sentences if sentence] or [size]


def methods_paragraph(result: Result) -> str:
    """Methods of a sweep in sentences for a paper, and below them the software as BibTeX."""
    spec = result.spec
    version = (spec.get("versions") or {}).get("privnets-sweeps", "of unknown version")
    commit = f" (commit {spec['git_commit'][:7]})" if spec.get("git_commit") else ""
    points, replicates = result.points, result.replicates
    counts, count = replicates.value_counts("point_id"), format_count(len(points), "configuration")
    if result.confirmed:
        seeds = format_count(len(result.reported_seeds), "seed")
        trained = f"A search tried {count} and confirmed {len(result.confirmed)} with {seeds} each"
    else:
        few, many = counts.min(), format_count(counts.max(), "seed")
        each = many if few == counts.max() else f"{few} to {many}"
        trained = f"Each of {count} was trained with {each}"
    if result.pending:
        trained += f"; {result.pending:,} more are unfinished"
    shared = " and contain the error of the test records that seeds share"
    shared = shared if replicates["test_set"].notna().any() else ""
    is_attacked = "config/evaluation" not in points or bool(panels(points))
    how = _METHODS.get(result.study.experiment, "") if is_attacked else ""
    times = result.replicates["finished_at"].dropna()
    year = f"  year    = {{{times.max():%Y}}},\n" if len(times) else ""
    return (
        f"Trade-off curves were computed with privnets-sweeps {version}{commit}. {trained} "
        f"({len(result.replicates):,} trainings in all). {how}"
        f"Intervals are 95% intervals of the mean over seeds{shared}. Points with a raised flag "
        "are left out of fronts.\n\n"
        "@software{privnets_sweeps,\n"
        "  title   = {privnets-sweeps: privacy--utility trade-off curves with intervals},\n"
        "  author  = {{The privnets-sweeps authors}},\n"
        f"{year}  version = {{{version}}}\n}}"
    )


def _describe_effects(result: Result, findings: Sequence[ClaimFinding]) -> str:
    """Effect on each objective of the field with the strongest trends; empty without intervals.

    Fields that the study pairs with another count as part of that one.
    """
    strengths: dict[str, float] = {}
    shown: dict[str, list[tuple[str, float, Effect]]] = {}
    for finding in findings:
        knob, effect, trend = finding.claim.axis or "", finding.effect, finding.measured
        if effect is None or trend is None or states_problem(knob):
            continue
        if effect.change.half >= 0:
            strengths[knob] = strengths.get(knob, 0.0) + abs(trend.value)
            shown.setdefault(knob, []).append((finding.claim.metric, trend.value, effect))
    if not shown:
        return ""
    knob = max(strengths, key=strengths.__getitem__)
    name = field_label(knob)
    if not any(effect.is_beyond_chance for _, _, effect in shown[knob]):
        return f"{_capitalize(name)}: no effect beyond chance."
    text, last = "", ("", "")
    for metric, correlation, effect in shown[knob]:
        change, size = effect.change, ""
        has_ends = change.low > 0 or change.high < 0
        if has_ends and abs(correlation) < _STEADY:
            verb = "neither rises nor falls throughout"
        elif has_ends:
            verb = "rises" if change.low > 0 else "falls"
            low, high = sorted((abs(change.low), abs(change.high)))
            size = f" by {Interval(abs(change.value), low, high).plus_minus}"
        elif effect.is_beyond_chance:
            verb, size = "varies", ", with no change from end to end"
        else:
            verb = "shows no change beyond chance"
        place = f"from the lowest to the highest {name}"
        if effect.ends is not None:
            place = f"{name} from {' to '.join(label_setting(end) for end in effect.ends)}"
            place += ", other settings averaged" if effect.is_averaged else ""
        separator = ", " if place == last[0] else f"{'; ' if text else ''}{place}: "
        said = "" if (place, verb) == last and size else f" {verb}"
        text += f"{separator}{metric_name(metric)}{said}{size}"
        last = place, verb
    return f"{_capitalize(text)}."


def _describe_ends(result: Result, front: pd.DataFrame, effects: Sequence[ClaimFinding]) -> str:
    """The best point in each objective, or what all points keep to where none can be told."""
    objectives, space = result.objectives, list(result.study.space)
    varying = varying_fields(result.points)
    fields = [field for field in space if field in varying] or space
    measured = {each.claim.metric for each in effects if each.effect is not None}
    moved = {e.claim.metric for e in effects if e.effect is not None and e.effect.is_beyond_chance}
    if len(front) > 1 and FRONT_GROUP in front and front[FRONT_GROUP].nunique() == 1:
        measured = {*objectives}
    every = result.candidates if is_obfuscated(front).any() else _learned(result.candidates)
    parts = []
    for metric, direction in objectives.items():
        name, _, unit = metric_label(metric).partition(", ")
        if metric in measured - moved:
            # Two digits of the value that every interval keeps to, rounded so that it still holds.
            ends = every.reindex(columns=[metric, *(metric + end for end in INTERVAL_SUFFIXES)])
            limit = np.nanmax(ends) if direction == "min" else np.nanmin(ends)
            rounding = Context(2, ROUND_CEILING if direction == "min" else ROUND_FLOOR)
            side = "most" if direction == "min" else "least"
            text = f"{name} at {side} {float(rounding.create_decimal(str(limit))):g}"
        else:
            (row, *_) = best_first(front, {metric: direction}).to_dict("records")
            best = {"min": "lowest ", "max": "highest "}[direction] if len(every) > 1 else ""
            value = f"{row_interval(row, metric).plus_minus} {unit}".rstrip()
            text = f"{best}{name} {value} at {_place(row, fields)}"
        if trivial := trivial_value(front, metric):
            is_beaten = count_better_than_trivial(front, metric, direction)
            text += f" (trivial model: {trivial}{'' if is_beaten else ', not beaten'})"
        parts.append(text)
    return f"{_capitalize('; '.join(parts))}."


def _learned(points: pd.DataFrame) -> pd.DataFrame:
    return points.loc[~is_obfuscated(points)]


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


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
