"""Floors: success of attackers that see no release, but the prior, labels or side information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.attackers.attacker import public_tables
from privnets.adversarial.attackers.classical import BoostedTrees, LogisticRegression
from privnets.adversarial.attackers.scores import (
    Beliefs,
    assess,
    balanced_accuracy,
    balanced_decision,
    log_score,
)
from privnets.adversarial.evidence import AttackView, Evidence, KnownRows
from privnets.adversarial.metrics import FLOOR_KEYS, INFERRED_LABEL_KEY
from privnets.adversarial.problem import class_frequencies
from privnets.adversarial.records import MISSING, known_rows
from privnets.statistics.estimates import Estimate

_PRIOR, _LABEL, _SIDE = FLOOR_KEYS

_SIDE_ATTACKERS: Final = (LogisticRegression, BoostedTrees)


@dataclass(frozen=True, eq=False)
class Floors:
    """Balanced accuracies of attackers without a release.

    Attributes:
        estimates: On test, by key; only those that are defined. The prior's always is.
        validation: The same on validation.
        notes: By key, why other floors are undefined, or which attacker reached them.
        inferred_label: Floor of the utility label as the release shows it; None without a label.
        side_beliefs: Beliefs from side information alone; None without side information.
        label_leakage: Leakage of the utility label, by its law in the attack split, as attackers'
            is measured; None without a label.
        other_label: Floor of the utility label on `Evidence.other_test`; None without either.
    """

    estimates: dict[str, Estimate]
    validation: dict[str, float]
    notes: dict[str, str]
    inferred_label: Estimate | None
    side_beliefs: Beliefs | None
    label_leakage: Estimate | None
    other_label: Estimate | None

    @property
    def highest(self) -> str:
        """Key of the floor that is highest on validation."""
        return max(self.validation, key=self.validation.__getitem__)

    @property
    def attainable(self) -> Estimate:
        """Success that an attacker with the release reaches without looking for the secret.

        The highest floor, with the utility label as inferred from the release in place of the true
        label, which the release may have lost.
        """
        if self.highest == _LABEL and self.inferred_label is not None:
            return self.inferred_label
        return self.estimates[self.highest]


def fit_floors(
    evidence: Evidence, classes: int, seed: int, inferred: NDArray[np.int64] | None
) -> Floors:
    """Fits attackers to everything but the release; each split knows every class of the secret.

    `inferred` has utility labels of the test split as inferred from the release, shape [n].
    """
    test = known_rows(evidence.test)
    # A constant guess recognises one class, without any error.
    prior = Estimate.of_records(1 / classes, np.zeros(len(test.secret)), test.cluster)
    estimates, validation = {_PRIOR: prior}, {_PRIOR: prior.value}
    notes: dict[str, str] = {}
    inferred_label = side_beliefs = label_leakage = other_label = None
    if evidence.attack.utility is None:
        notes |= dict.fromkeys((_LABEL, INFERRED_LABEL_KEY), "the problem has no utility label")
    else:
        table, tuning = _LabelTable.fit(evidence.attack, classes), evidence.validation
        estimates[_LABEL] = table.accuracy(_labels(evidence.test), test)
        validation[_LABEL] = table.accuracy(_labels(tuning), known_rows(tuning)).value
        inferred_label = None if inferred is None else table.accuracy(inferred, test)
        label_leakage = table.leakage(_labels(evidence.test), test)
        if (other := evidence.other_test) is not None:
            other_label = table.accuracy(_labels(other), known_rows(other))
    if evidence.attack.secret.ndim == 1:
        notes[_SIDE] = "the problem has no side information"
    else:
        # The better on validation of a linear model and boosted trees, without the release.
        tables = public_tables(evidence)
        share = class_frequencies(tables.attack.rows.secret, classes)
        rows = tables.validation.rows, tables.test.rows
        fits = (kind().fit_tables(f"floor_{kind.name}", tables, seed) for kind in _SIDE_ATTACKERS)
        assessed = [assess(posterior, *rows, share) for posterior in fits]
        best = max(assessed, key=lambda one: one.validation_accuracy.value)
        estimates[_SIDE], validation[_SIDE] = best.accuracy, best.validation_accuracy.value
        has_side = evidence.attack.side is not None
        inputs = "side information and time of day" if has_side else "time of day"
        notes[_SIDE] = f"{best.name.removeprefix('floor_')} on {inputs}"
        side_beliefs = best.calibrated if has_side else None
    return Floors(
        estimates, validation, notes, inferred_label, side_beliefs, label_leakage, other_label
    )


@dataclass(frozen=True, eq=False)
class _LabelTable:
    """Counts of the secret's classes for each utility label in the attack split, [labels, C]."""

    counts: NDArray[np.float64]
    prior: NDArray[np.float64]

    @classmethod
    def fit(cls, attack: AttackView, classes: int) -> _LabelTable:
        rows, labels = known_rows(attack), _labels(attack)
        prior = class_frequencies(rows.secret, classes)
        counts = np.tile(prior, (int(labels.max()) + 1, 1))  # the prior weighs as one record
        own = labels[rows.record]
        known = own != MISSING
        np.add.at(counts, (own[known], rows.secret[known]), 1)
        return cls(counts, prior)

    def accuracy(self, labels: NDArray[np.int64], rows: KnownRows) -> Estimate:
        """Balanced accuracy of Bayes decisions."""
        decision = balanced_decision(self._log_posterior(labels, rows), self.prior)
        return balanced_accuracy(decision, rows, len(self.prior))

    def leakage(self, labels: NDArray[np.int64], rows: KnownRows) -> Estimate:
        """Mean of log p(s|u) - log p(s), nats."""
        gain = self._log_posterior(labels, rows) - np.log(self.prior)
        return log_score(gain, rows)

    def _log_posterior(self, labels: NDArray[np.int64], rows: KnownRows) -> NDArray[np.float64]:
        """Log probabilities of the secret; an unknown label gives the prior."""
        counts = np.vstack([self.counts, self.prior])
        place = np.minimum(labels[rows.record], len(self.counts))
        log_posterior: NDArray[np.float64] = np.log(counts / counts.sum(1, keepdims=True))[place]
        return log_posterior


def _labels(exposure: AttackView) -> NDArray[np.int64]:
    assert exposure.utility is not None
    labels: NDArray[np.int64] = exposure.utility.cpu().numpy()
    return labels
