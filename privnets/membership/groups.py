"""Leakage by group: success of attacks on the records of each class or subgroup."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from privnets import data
from privnets.membership.config import (
    DISPARITY,
    GROUP_METRICS,
    LARGEST_GROUP,
    MembershipConfig,
    too_few_non_members,
)
from privnets.membership.trials import Guesses, score_guesses, signed_advantage
from privnets.statistics.estimates import Estimate

# Attacked records that a group needs, half of them on each side of the choice of groups.
_LEAST_RECORDS = 10

GroupMetrics = dict[str, Estimate | str]
"""Value of each metric by its key, or the reason why it is undefined."""


def group_metrics(
    config: MembershipConfig,
    records: Tensor,
    guesses: Sequence[Guesses],
    decision: Tensor,
    member: Tensor,
    *,
    shared_models: bool,
) -> GroupMetrics:
    """Scores attacks within each group of the attacked records.

    The advantage is that of the strongest attack's decisions. The area and the rates are those of
    the attack with the largest advantage on the other groups' records.

    Args:
        records: Numbers of the attacked records, shape [R].
        guesses: Answers of all attacks that may be the strongest.
        decision: Decisions of the strongest attack, shape [R, J].
        member: Whether the record was in the training set, shape [R, J].
    """
    assert config.groups is not None
    codes, names = data.groups(config.data_form, config.groups)
    own = torch.from_numpy(codes)[records.cpu()].to(member.device)
    found: GroupMetrics = {}
    for code, keys in enumerate(config.group_keys()):
        inside = own == code
        if reason := _why_too_small(int(inside.sum()), names[code]):
            found |= dict.fromkeys(keys, reason)
            continue
        others = ~inside if bool((~inside).any()) else inside
        best = max(guesses, key=lambda each: _advantage(each.decision[others], member[others]))
        chosen = Guesses(best.score[inside], best.decision[inside])
        score = score_guesses(chosen, member[inside], shared_models=shared_models)
        advantage = signed_advantage(decision[inside], member[inside], shared_models=shared_models)
        rates = [
            too_few_non_members(score.non_members, rate) or score.low_rates[rate]
            for rate in map(float, (key.rpartition("_")[2] for key in GROUP_METRICS[2:]))
        ]
        found |= zip(keys, (advantage, score.auc, *rates), strict=True)
    return found | _extremes(own, decision, member, shared_models=shared_models)


def _extremes(
    own: Tensor, decision: Tensor, member: Tensor, *, shared_models: bool
) -> GroupMetrics:
    """Largest advantage of a group, and its excess over the smallest.

    Both groups are chosen on one half of the records and measured on the other, and vice versa:
    the largest of several estimates would be too large.
    """
    groups = [code for code in sorted(set(own.tolist())) if (own == code).sum() >= _LEAST_RECORDS]
    if len(groups) < 2:
        reason = f"fewer than two groups have {_LEAST_RECORDS} attacked records; raise records"
        return {LARGEST_GROUP: reason, DISPARITY: reason}
    rank = torch.zeros_like(own)
    for code in groups:
        rank[own == code] = torch.arange(int((own == code).sum()), device=own.device)
    halves = [
        [
            signed_advantage(decision[part], member[part], shared_models=shared_models)
            for part in (((own == code) & (rank % 2 == side)) for code in groups)
        ]
        for side in (0, 1)
    ]
    largest, excess = [], []
    for chosen, measured in (halves, halves[::-1]):
        order = np.argsort([each.value for each in chosen], kind="stable")
        low, high = measured[order[0]], measured[order[-1]]
        largest.append(high)
        excess.append(Estimate(high.value - low.value, math.hypot(high.error, low.error)))
    return {LARGEST_GROUP: _average(largest), DISPARITY: _average(excess)}


def _average(halves: Sequence[Estimate]) -> Estimate:
    """Mean of two values whose errors may be common, as those of shared models are."""
    return Estimate(
        float(np.mean([each.value for each in halves])),
        float(np.mean([each.error for each in halves])),
    )


def _why_too_small(records: int, name: str) -> str:
    """Reason if too few records of a group are attacked; else empty."""
    if records >= _LEAST_RECORDS:
        return ""
    return (
        f"{records} attacked records belong to {name}, and at least {_LEAST_RECORDS} are needed; "
        "raise records"
    )


def _advantage(decision: Tensor, member: Tensor) -> float:
    yes = decision.double()
    return float(yes[member].mean() - yes[~member].mean())
