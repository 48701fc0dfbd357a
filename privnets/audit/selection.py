"""Attacks of an audit, and the choice of the strongest one, which does not flatter it.

Each half of the records chooses the attack, and the threshold of its decisions, that the other
half reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from privnets.attacks import ATTACKS, attack_names
from privnets.attacks.base import FAMILIES, SIDES, Attack, Family
from privnets.attacks.view import Array, AttackerView, BoolArray, share_below
from privnets.audit.model_signals import ModelSignals
from privnets.audit.signals import MIN_RECORDS
from privnets.randomness import generator
from privnets.statistics.roc import RATE_OF, RATES, ScoredTrials, flatten

EPSILON: Final = "epsilon_lower_bound"
_MIN_REFERENCES = 2
EXPECTED: Final = "expected_false_positives_at_fpr_{:g}"


class ScoredAttacks:
    """Scores of all attacks that could be run.

    Attributes:
        models: Checked signals.
        confidence: Coverage of intervals and of the lower bounds on epsilon.
        delta: Delta of the lower bounds on epsilon.
        halves: The two halves of the records.
        trials: Scores by name of the attack.
        unavailable: Reason why an attack was not run, by name.
    """

    def __init__(
        self,
        models: ModelSignals,
        confidence: float,
        delta: float,
        seed: int,
    ) -> None:
        """Runs every attack."""
        self.models, self.confidence, self.delta = models, confidence, delta
        self.halves = split_records(models.target_member, seed)
        self.trials: dict[str, ScoredTrials] = {}
        self.unavailable: dict[str, str] = {}
        self._choosing: dict[str, ScoredTrials] = {}
        member, view = models.target_member, models.view
        for name in attack_names("audits"):
            attack = ATTACKS.get(name)
            if reason := why_unavailable(attack, models):
                self.unavailable[name] = reason
                continue
            if attack.family == "learned":
                scores = cross_fit(attack, view, self.halves)
                trials = ScoredTrials(scores, member, confidence, inflation=2.0)
                # Scores that a half may choose thresholds and attacks by: the other half fits none.
                within, everyone = np.full(member.shape, np.nan), np.arange(member.shape[1])
                for half in self.halves:
                    parts = split_records(member[:, half], 0)
                    quarters = [np.isin(everyone, everyone[half][part]) for part in parts]
                    within[:, half] = cross_fit(attack, view, quarters)[:, half]
                choosing = ScoredTrials(within, member, confidence)
            else:
                choosing = trials = ScoredTrials(attack.score(view), member, confidence)
            if min(side.any(0).sum() for side in (trials.inside, trials.outside)) < MIN_RECORDS:
                self.unavailable[name] = (
                    "too few records have reference models of the kind it needs"
                )
            else:
                self.trials[name], self._choosing[name] = trials, choosing

    @property
    def families(self) -> tuple[Family, ...]:
        """Families with at least one attack that could be run, by growing knowledge."""
        return tuple(family for family in FAMILIES if self.names(family))

    def names(self, family: Family) -> list[str]:
        """Attacks of a family that could be run."""
        return [name for name in self.trials if ATTACKS.get(name).family == family]

    def candidates(self, family: Family) -> list[str]:
        """Attacks of a family; one that learns may also use the thresholds of signals."""
        return self.names(family) + (self.names("threshold") if family == "learned" else [])

    def choose(self, metric: str, family: Family) -> tuple[str, str]:
        """Attacks that the first and the second half report, each chosen by the other half."""

        def measure(name: str, records: BoolArray) -> float:
            trials = self._choosing[name].select(records)
            if metric == "advantage":
                return trials.best_threshold()[0]
            if metric == "auc":
                return trials.area().value
            if metric == EPSILON:
                return trials.epsilon_threshold(self.delta, self.confidence)[0]
            return trials.true_positive_rate(RATE_OF[metric]).value

        first, second = (
            max(self.candidates(family), key=lambda name: measure(name, ~half))
            for half in self.halves
        )
        return first, second

    def combine(self, chosen: Sequence[str]) -> tuple[ScoredTrials, BoolArray]:
        """Trials of the attacks of both halves, and decisions by the other half's threshold."""
        trials = self.trials[chosen[0]]
        decision, ranks = np.zeros(trials.score.shape, dtype=bool), trials.score.copy()
        for name, half in zip(chosen, self.halves, strict=True):
            scores = self.trials[name].score[:, half]
            threshold = self._choosing[name].select(~half).best_threshold()[1]
            decision[:, half] = scores >= threshold
            ranks[:, half] = rank(scores)
        if chosen[0] == chosen[1]:
            return trials, decision
        inflation = max(self.trials[name].inflation for name in chosen)
        return ScoredTrials(ranks, trials.member, self.confidence, inflation), decision

    def row(self, chosen: Sequence[str]) -> pd.Series:
        """Row of `AuditResult.table` for the attacks of both halves."""
        trials, decision = self.combine(chosen)
        values: dict[Any, Any] = {"family": ATTACKS.get(chosen[0]).family}
        values |= flatten(trials.success(decision))
        values["tpr_at_fpr_0"] = trials.true_positive_rate(0.0).value
        values |= {EXPECTED.format(rate): rate * len(trials.others) for rate in RATES}
        bounds, level = [], 1 - (1 - self.confidence) / 2  # of two bounds, one on each half
        for name, half in zip(chosen, self.halves, strict=True):
            _, threshold = self._choosing[name].select(~half).epsilon_threshold(self.delta, level)
            bounds.append(self.trials[name].select(half).epsilon_at(threshold, self.delta, level))
        values[EPSILON] = max(bounds)
        values |= {"members": len(trials.members), "non_members": len(trials.others)}
        return pd.Series(values, name=" / ".join(dict.fromkeys(chosen)))


def why_unavailable(attack: Attack, models: ModelSignals) -> str | None:
    """Reason why an attack cannot be run in an audit, or None."""
    if SIDES[attack.family] and models.references < _MIN_REFERENCES:
        return f"it needs at least {_MIN_REFERENCES} reference models"
    return attack.why_unavailable(models.view)


def split_records(member: BoolArray, seed: int) -> tuple[BoolArray, BoolArray]:
    """Two random halves of the records; each has half of the records with every membership."""
    random = generator(seed, "audit halves")
    first = np.zeros(member.shape[1], dtype=bool)
    order = random.permutation(member.shape[1])
    ranked = order[np.argsort(member[:, order].sum(0), kind="stable")]
    pairs = ranked[: len(ranked) // 2 * 2].reshape(-1, 2)
    side = random.integers(0, 2, len(pairs))
    first[pairs[np.arange(len(pairs)), side]] = True
    return first, ~first


def cross_fit(attack: Attack, view: AttackerView, halves: Sequence[BoolArray]) -> Array:
    """Ranks within each half of its scores by a fit to the other half, shape [T, R].

    No score depends on memberships of its own half. Ranks make both fits comparable. Records in
    neither half have NaN.
    """
    outputs = view.outputs
    assert outputs is not None
    scores = np.full(outputs.member.shape, np.nan)
    for half, other in zip(halves, reversed(halves), strict=True):
        fitted = attack.score(replace(view, outputs=replace(outputs, known=other)))
        scores[:, half] = rank(fitted[:, half])
    return scores


def rank(scores: Array) -> Array:
    """Share of all scores that are not larger, of the same shape; NaN stays NaN."""
    flat = scores.reshape(1, -1)
    return share_below(flat, flat).reshape(scores.shape)
