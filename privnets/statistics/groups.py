"""Success of an attack within groups of records, and differences between groups.

The trials tell what is independent: records, and models that records share; see `ScoredTrials`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.statistics.estimates import Estimate
from privnets.statistics.intervals import Interval
from privnets.statistics.roc import METRICS, BoolArray, ScoredTrials

GROUP_METRICS: Final = METRICS[:4]
"""Metrics of a group: all but the true-positive rate that needs thousands of trials."""


@dataclass(frozen=True, eq=False)
class Group:
    """Trials of the records of a group.

    Attributes:
        trials: Scores, which are compared with those of the group alone.
        decision: Whether the attack calls the record a member, shape [T, R].
    """

    trials: ScoredTrials
    decision: BoolArray

    def __len__(self) -> int:
        """Number of records."""
        return int(self.decision.shape[1])

    def split(self, labels: NDArray[Any]) -> dict[Any, Group]:
        """Groups of records of one label, by label in ascending order; labels have shape [R]."""
        groups = {}
        for label in sorted(pd.unique(labels), key=lambda each: (str(type(each)), each)):
            trials = self.trials.select(labels == label, self.trials.inflation)
            groups[label] = Group(trials, self.decision[:, labels == label])
        return groups

    def estimates(self) -> dict[str, Estimate]:
        """Value and standard error of each of `GROUP_METRICS`."""
        found = self.trials.estimates(self.decision)
        return {metric: found[metric] for metric in GROUP_METRICS}

    def intervals(self) -> dict[str, Interval]:
        """Value and interval of each of `GROUP_METRICS`."""
        found = self.trials.success(self.decision)
        return {metric: found[metric] for metric in GROUP_METRICS}


def largest_differences(groups: Mapping[Any, Group]) -> dict[str, tuple[Any, Any, Interval]]:
    """Largest difference of each metric between two groups.

    Intervals of all pairs hold at once (Bonferroni), each of two groups by MOVER. Their largest
    ends hold for the largest true difference, whichever pair has it.

    Args:
        groups: At least two groups by name.

    Returns:
        By metric, the group with the highest value, that with the lowest, and the difference.
    """
    rates = {}
    for name, group in groups.items():
        level = 1 - (1 - group.trials.confidence) / math.comb(len(groups), 2)
        rates[name] = replace(group, trials=replace(group.trials, confidence=level)).intervals()
    largest = {}
    for metric in GROUP_METRICS:
        pairs = {
            (high, low): rates[high][metric] - rates[low][metric]
            for high, low in permutations(groups, 2)
        }
        best = max(pairs, key=lambda pair: pairs[pair].value)
        low = max(0.0, *(each.low for each in pairs.values()))
        high = max(each.high for each in pairs.values())
        largest[metric] = *best, Interval(pairs[best].value, low, high)
    return largest


def cross_chosen_extremes(groups: Sequence[Group]) -> tuple[Estimate, Estimate]:
    """Largest advantage of a group, and its excess over the smallest, for means over repetitions.

    Both groups are chosen on every other record and measured on the others, and vice versa: the
    largest of several estimates would be too large on average.
    """
    parts = [group.split(np.arange(len(group)) % 2) for group in groups]
    halves = [
        [each[side].trials.advantage_estimate(each[side].decision) for each in parts]
        for side in (0, 1)
    ]
    pairs = []
    for chosen, measured in (halves, halves[::-1]):
        order = np.argsort([each.value for each in chosen], kind="stable")
        low, high = measured[order[0]], measured[order[-1]]
        pairs.append([(each.value, each.error) for each in (high, high - low)])
    # Errors of both halves may be common, as those of shared models are: they do not average out.
    largest, excess = np.mean(pairs, axis=0).tolist()
    return Estimate(*largest), Estimate(*excess)
