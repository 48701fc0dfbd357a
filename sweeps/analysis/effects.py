"""Effects of swept fields on the objectives of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from sweeps.analysis.claims import ClaimFinding, judge_claim
from sweeps.analysis.flags import is_flagged
from sweeps.analysis.results import CONFIRMING, SEARCHING, Result, is_only_searched
from sweeps.analysis.tables import evenly_spaced, varying_fields
from sweeps.study.search_space import axis_roots
from sweeps.study.spec import Claim

_MAX_POINTS = 300


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """Effect of a swept field on a metric, as a finding about a rising trend.

    `phase` names the points of an adaptive search that it is about; it is empty for other sweeps.
    """

    metric: str
    knob: str
    phase: str
    finding: ClaimFinding


def knob_effects(result: Result) -> list[KnobEffect]:
    """Effect of each swept field on each objective, where it can be measured.

    Points that a search tried are judged apart from those that it confirmed. Fields that the study
    pairs vary as one.
    """
    points = result.points
    knobs = [field for field in varying_fields(points) if field in result.study.space]
    metrics = [metric for metric in result.objectives if metric in points]
    roots = axis_roots(result.study.space)
    flagged = points.loc[is_flagged(points), "point_id"].tolist()
    effects = [
        KnobEffect(metric, knob, phase, judge_claim(_rising(metric, knob), own[knob], flagged))
        for phase, rows in _phases(result)
        for own in [{knob: rows.drop(columns=_paired(rows, knob, roots)) for knob in knobs}]
        for metric, knob in itertools.product(metrics, knobs)
    ]
    return [effect for effect in effects if effect.finding.measured is not None]


def leading_effects(result: Result, effects: Sequence[KnobEffect]) -> list[KnobEffect]:
    """Effects of the field with the strongest trends, one per metric; empty without intervals.

    Fields that the study pairs with another count as part of that one.
    """
    space = result.study.space
    shown = [
        effect
        for effect in effects
        if effect.phase != SEARCHING
        and not space[effect.knob].along
        and effect.finding.effect is not None
        and effect.finding.effect.change.half >= 0
    ]
    strengths: dict[str, float] = dict.fromkeys((effect.knob for effect in shown), 0.0)
    for effect in shown:
        trend = effect.finding.measured
        strengths[effect.knob] += 0.0 if trend is None else abs(trend.value)
    leading = max(strengths, key=strengths.__getitem__, default="")
    return [effect for effect in shown if effect.knob == leading]


def _phases(result: Result) -> Iterator[tuple[str, pd.DataFrame]]:
    """Replicates to judge effects by: of each phase, evenly spaced points and common seeds."""
    searching = is_only_searched(result.points)
    confirmed = CONFIRMING if searching.any() else ""
    for phase, points in (
        (confirmed, result.points.loc[~searching]),
        (SEARCHING, result.points.loc[searching]),
    ):
        ids = points["point_id"].iloc[evenly_spaced(len(points), _MAX_POINTS)]
        rows = result.replicates
        rows = rows.loc[rows["point_id"].isin(ids)]
        if phase == SEARCHING:  # some points have a second seed
            rows = rows.loc[rows["seed"] == rows["seed"].min()]
        if len(rows):
            yield phase, rows


def _paired(rows: pd.DataFrame, knob: str, roots: Mapping[str, str]) -> list[str]:
    """Columns of the fields that the study pairs with a knob."""
    paired = [f"config/{f}" for f, root in roots.items() if root == roots[knob] and f != knob]
    return [column for column in paired if column in rows]


def _rising(metric: str, knob: str) -> Claim:
    claim = {"statement": "It rises.", "metric": metric, "axis": knob, "trend": "increasing"}
    return Claim.model_validate(claim)
