"""Raised flags: results that contradict a floor, a bound or a check of convergence.

A flag is raised at a point if any of its replicates raises it, or if the point's interval shows the
contradiction. An attacker is below its floor only if the interval says so too: at full privacy half
of the replicates are below it by chance. Attackers have not converged at a point only if that is so
in half of its replicates, whatever their number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

BELOW_FLOOR = "flag/attacker_below_floor"
NOT_CONVERGED = "flag/attacker_not_converged"
STRONGEST = "privacy/attacker_balanced_accuracy"
ATTAINABLE_FLOOR = "floor/attainable"

FLAG_TEXTS: Mapping[str, str] = {
    BELOW_FLOOR: "attacker under its floor: under-trained",
    NOT_CONVERGED: "attacker that ran out of steps could overtake the strongest",
    "flag/attacker_frozen_noise": "attacker trained on one draw of release noise",
    "flag/attacker_below_adversary": "attackers weaker than the in-loop adversary",
    "flag/attacker_fails_on_raw_data": "attackers learn nothing from raw records",
    "flag/below_bound": "leakage and censored utility below their bound: one is understated",
    "flag/attack_beats_bound": "attack above its theoretical bound",
    "flag/constant_attack": "an attack gives all trials equal scores",
}
"""Flags in words."""

_BELOW_BOUND, _GAP = "flag/below_bound", "bound/gap"
_LEAST_SHARE = 0.5  # of replicates
_FLAG = re.compile(r"flag/[^.]+")


def raised_flags(points: pd.DataFrame) -> pd.DataFrame:
    """Whether each flag is raised at each point: a boolean column per flag, rows as in `points`."""
    keys = [str(column) for column in points.columns if _FLAG.fullmatch(str(column))]
    raised = points[keys].fillna(0.0) > 0
    if BELOW_FLOOR in raised:
        high, floor = _column(points, f"{STRONGEST}.ci_high"), _column(points, ATTAINABLE_FLOOR)
        raised[BELOW_FLOOR] &= ~(high >= floor)
    if NOT_CONVERGED in raised:
        raised[NOT_CONVERGED] = points[NOT_CONVERGED] >= _LEAST_SHARE
    if _BELOW_BOUND in raised:
        raised[_BELOW_BOUND] |= _column(points, f"{_GAP}.ci_high") < 0
    return raised


def is_flagged(points: pd.DataFrame) -> pd.Series[bool]:
    """Whether a point has any raised flag, in the order and with the index of `points`."""
    flagged: pd.Series[bool] = raised_flags(points).any(axis=1)
    return flagged.astype(bool)


def _column(points: pd.DataFrame, name: str) -> pd.Series[float]:
    return points.get(name, pd.Series(np.nan, index=points.index))
