"""Sentences of audits: the verdict, what it rests on, and what the attacks cannot see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import expit

from privnets.attacks.base import Family
from privnets.audit.selection import EXPECTED
from privnets.references.columns import describe_classes
from privnets.statistics.intervals import Interval

if TYPE_CHECKING:
    from privnets.audit.result import AuditResult

EXPOSED_RATE: Final = 0.01
"""A member counts as exposed if the attack finds it at this false-positive rate or below."""

EXPOSURE: Final = f"tpr_at_fpr_{EXPOSED_RATE:g}"
_BEGINNINGS: Final[Mapping[Family, str]] = {
    "threshold": "By thresholds alone",
    "learned": "Without reference models",
    "offline": "With reference models trained without the record",
    "online": "With reference models trained with and without the record",
}


def verdict(result: AuditResult) -> str:
    """Leakage by the strongest attack, its interval, exposed records, difference of groups."""
    row, members = result.strongest, int(result.records["member"].gt(0).sum())
    low, high = row["advantage.ci_low"], row["advantage.ci_high"]
    leaks = (
        "the outputs reveal membership"
        if low > 0
        else "this audit cannot tell the leakage from zero"
    )
    is_single = len(result.models.targets) == 1
    sure = result.strongest_by(EXPOSURE)
    by = "it" if sure.name == row.name else f"the best attack there ({sure.name})"
    exposing = math.floor(EXPOSED_RATE * (row["non_members"] + 1) + 1e-9)
    by_chance = members * exposing / (row["non_members"] + 1)
    # Of medians over many models the number is unknown.
    chance = f"; chance alone exposes about {by_chance:.3g}" if is_single else ""
    return (
        f"{_BEGINNINGS[result.family]}, the strongest attack ({row.name}) reaches an advantage of "
        f"{row['advantage']:.3f} ({result.confidence:.0%} interval {low:.3f} to {high:.3f}): "
        f"{leaks}. At a false-positive rate of 1% {by} finds {sure[EXPOSURE]:.1%} of the members "
        f"({sure[f'{EXPOSURE}.ci_low']:.1%} to {sure[f'{EXPOSURE}.ci_high']:.1%}; "
        f"{row[EXPECTED.format(EXPOSED_RATE)]:.3g} false positives expected). "
        f"Of the {len(result.records)} records, {members} were members"
        f"{'' if is_single else ' of at least one model'}; {int(result.records['exposed'].sum())} "
        f"of these are exposed at that rate{chance}. {_disparity(result)}"
        "A better attack may find more."
    )


def _disparity(result: AuditResult) -> str:
    if result.models.groups is None or result.disparity.empty:
        return ""
    found, values = result.disparity.astype(object).loc["advantage"], result.groups["advantage"]
    high, low = found["highest"], found["lowest"]
    return (
        f"Between groups the advantage differs by up to {found['difference']:.3f} "
        f"({found['difference.ci_low']:.3f} to {found['difference.ci_high']:.3f}): "
        f"{values[high]:.3f} for {high}, {values[low]:.3f} for {low}. "
    )


def inversion(names: Sequence[str], area: Interval) -> str:
    """Question for the sign of signals, of which the first one has this AUC."""
    return (
        f"Members score LOWER than others on {' and '.join(f'`{name}`' for name in names)}: the "
        f"AUC of `{names[0]}` is {area.value:.3f}, and its interval ends at {area.high:.3f}, "
        "below 0.5. Is the sign right? `loss` and `entropy` are smaller for members, other signals "
        "larger; `member` is 1 for records of the training set. Do not rely on this audit before "
        "that is known."
    )


def basis(result: AuditResult) -> str:
    """Models, records, clipping and bounds that the numbers rest on."""
    models, limit, audited = result.models, result.models.limit, len(result.models.targets)
    clipped = ""
    if models.references and limit < np.inf:
        clip = expit(-limit)
        clipped = (
            f"Log-odds are clipped to [-{limit:.4g}, {limit:.4g}], probabilities to "
            f"[{clip:.3g}, 1 - {clip:.3g}], for attacks with references. "
        )
    classes = ""
    if models.labels is not None:
        counts = enumerate(np.bincount(models.labels).tolist())
        classes = describe_classes("The target", {str(c): n for c, n in counts}) + " "
    trials = "if trials are independent"
    if audited == 1:
        trials = "as if trials were independent; they are not certified bounds"
    return (
        f"{audited} audited model{'s' * (audited > 1)}, {models.references} reference models "
        f"each, {len(models.records)} records. {classes}"
        f"{''.join(f'{note} ' for note in models.notes)}{clipped}"
        f"Lower bounds on epsilon hold at delta {result.delta:g} with "
        f"{result.confidence:.0%} confidence {trials}. Families of attacks differ in knowledge; do "
        "not compare across them."
    )


def not_run(unavailable: Mapping[str, str]) -> str:
    """Attacks that could not be run, by reason; empty if all were."""
    reasons: dict[str, list[str]] = {}
    for name, reason in unavailable.items():
        reasons.setdefault(reason, []).append(name)
    parts = [f"{', '.join(names)} ({reason})" for reason, names in reasons.items()]
    return f"Not run: {'; '.join(parts)}." if parts else ""


def blind_spot(result: AuditResult) -> str:
    """Limits of the attackers of this audit."""
    knowledge = {
        "online": "have reference models trained with and without each record",
        "offline": "have reference models trained without the record",
    }.get(result.families[-1], "have no reference models, with which attacks are stronger")
    return (
        f"Not seen: these attackers {knowledge}, see outputs alone and average over the records of "
        "this audit; access to parameters, single exposed records and better attacks may reveal "
        "more."
    )
