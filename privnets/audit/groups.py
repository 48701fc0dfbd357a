"""Success of an attack within groups of records, and the largest difference between two groups."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.attacks.view import BoolArray
from privnets.audit.files import AuditError
from privnets.audit.inputs import as_record_values
from privnets.statistics.intervals import Interval
from privnets.statistics.roc import ScoredTrials, flatten

GROUP_METRICS: Final = ("advantage", "auc", "tpr_at_fpr_0.1", "tpr_at_fpr_0.01")
MIN_GROUP: Final = 30
"""Least number of members, and of others, of a group that gets numbers."""

MAX_GROUPS: Final = 50


def check_groups(value: Any, records: int) -> NDArray[np.object_]:
    """Group of each record, as given.

    Raises:
        AuditError: If there is not one for each record, one is missing, or there are too many.
    """
    groups = as_record_values("groups", value, records)
    if (count := len(pd.unique(groups))) > MAX_GROUPS:
        raise AuditError(f"groups must be at most {MAX_GROUPS}; got {count}: join some, or cut")
    return groups.astype(object)


def measure_groups(
    trials: ScoredTrials, decision: BoolArray, groups: NDArray[np.object_]
) -> pd.DataFrame:
    """Success within each group: columns as in `AuditResult.groups`."""
    rows: dict[Any, dict[str, Any]] = {}
    for group in sorted(pd.unique(groups), key=lambda each: (str(type(each)), each)):
        inside = groups == group
        part = trials.select(inside, trials.inflation)
        members, others = (int(side.any(0).sum()) for side in (part.inside, part.outside))
        rows[group] = {"members": members, "non_members": others, "note": ""}
        if min(members, others) < MIN_GROUP:
            rows[group]["note"] = (
                f"too small: {MIN_GROUP} members and {MIN_GROUP} others are needed"
            )
        else:
            rates = part.success(decision[:, inside])
            rows[group] |= flatten({metric: rates[metric] for metric in GROUP_METRICS})
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("group")


def largest_disparities(
    trials: ScoredTrials, decision: BoolArray, groups: NDArray[np.object_], table: pd.DataFrame
) -> pd.DataFrame:
    """Largest difference of each metric between two groups: columns as in `AuditResult.disparity`.

    Intervals hold for all pairs of groups at once (Bonferroni), so the choice of the largest
    difference does not flatter. They combine those of both groups by MOVER.
    """
    large = table.index[table["note"] == ""]
    pairs = list(combinations(large, 2))
    if not pairs:
        return pd.DataFrame()
    level = 1 - (1 - trials.confidence) / len(pairs)
    rates: dict[Any, dict[str, Interval]] = {}
    for group in large:
        inside = groups == group
        part = replace(trials.select(inside, trials.inflation), confidence=level)
        rates[group] = part.success(decision[:, inside])
    rows = {}
    for metric in GROUP_METRICS:
        values = {group: rates[group][metric].value for group in large}
        highest, lowest = max(large, key=values.__getitem__), min(large, key=values.__getitem__)
        found = rates[highest][metric] - rates[lowest][metric]
        rows[metric] = {"highest": highest, "lowest": lowest, **flatten({"difference": found})}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("metric")
