"""Metrics of leakage by group: success of attacks on the records of each class or subgroup."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from privnets import data
from privnets.membership.config import (
    DISPARITY,
    LARGEST_GROUP,
    MembershipConfig,
    too_few_non_members,
)
from privnets.membership.trials import Guesses, combine_strongest
from privnets.statistics.estimates import Estimate
from privnets.statistics.groups import Group, cross_chosen_extremes
from privnets.statistics.roc import RATE_OF, ScoredTrials

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
    own = codes[records.cpu().numpy()]
    strongest = combine_strongest(guesses, member, torch.from_numpy(own).to(member.device))
    score, yes, inside = (each.T.cpu().numpy() for each in (strongest.score, decision, member))
    whole = Group(ScoredTrials(score, inside, shared_models=shared_models), yes)
    large = {code: each for code, each in whole.split(own).items() if len(each) >= _LEAST_RECORDS}
    found: GroupMetrics = {}
    for code, keys in enumerate(config.group_keys()):
        if code not in large:
            reason = (
                f"{(own == code).sum()} attacked records belong to {names[code]}, and at least "
                f"{_LEAST_RECORDS} are needed; raise records"
            )
            found |= dict.fromkeys(keys, reason)
            continue
        estimates, others = large[code].estimates(), len(large[code].trials.others)
        for key, (metric, estimate) in zip(keys, estimates.items(), strict=True):
            too_few = too_few_non_members(others, RATE_OF[metric]) if metric in RATE_OF else None
            found[key] = too_few or estimate
    if len(large) < 2:
        reason = f"fewer than two groups have {_LEAST_RECORDS} attacked records; raise records"
        return found | {LARGEST_GROUP: reason, DISPARITY: reason}
    largest, excess = cross_chosen_extremes(list(large.values()))
    return found | {LARGEST_GROUP: largest, DISPARITY: excess}
