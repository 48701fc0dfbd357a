"""What an attacker who sees no release knows: the prior, the utility label, side information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.attackers import classical
from privnets.adversarial.attackers.assessment import Assessment, Known, assess
from privnets.adversarial.attackers.features import without_release
from privnets.adversarial.attackers.names import Classifier
from privnets.adversarial.attackers.rows import Rows, frequencies, known_rows
from privnets.adversarial.attackers.scoring import balanced_accuracy, balanced_decision
from privnets.adversarial.evaluation.estimates import Estimate
from privnets.adversarial.records import Evidence, Exposure

KEYS: Final = ("floor/prior", "floor/utility_label", "floor/side_information")
_PRIOR, _LABEL, _SIDE = KEYS
INFERRED: Final = "floor/inferred_utility_label"
"""Of the utility label as a fresh network reads it from the release, which may have lost it."""

_CLASSIFIERS: Final[tuple[Classifier, ...]] = ("logistic_regression", "boosted_trees")


@dataclass(frozen=True, eq=False)
class Floors:
    """Balanced accuracies of attackers without a release.

    Attributes:
        estimates: On test by key, those that are defined; the prior's always is.
        on_validation: The same on validation.
        notes: By key, why the others are not defined, or whose they are.
        inferred: Of the utility label as the release shows it; None without one.
        side: What side information alone tells; None without any.
    """

    estimates: dict[str, Estimate]
    on_validation: dict[str, float]
    notes: dict[str, str]
    inferred: Estimate | None
    side: Known | None

    @property
    def highest(self) -> str:
        """The key of the one that does best on validation."""
        return max(self.on_validation, key=self.on_validation.__getitem__)

    @property
    def attainable(self) -> Estimate:
        """What whoever holds the release can reach without looking for the secret in it.

        That is the highest, with the utility label as read from the release, which may have lost
        some of it, in place of the true one.
        """
        if self.highest == _LABEL and self.inferred is not None:
            return self.inferred
        return self.estimates[self.highest]


def floors(
    evidence: Evidence, classes: int, seed: int, inferred: NDArray[np.int64] | None
) -> Floors:
    """Fit attackers to everything but the release.

    Args:
        evidence: Its splits know every class.
        classes: Of the secret.
        seed: Of the fits to side information.
        inferred: Utility labels of the test split as read from the release, shape [n], if any.
    """
    validation, test = known_rows(evidence.validation), known_rows(evidence.test)
    estimates, on_validation = {_PRIOR: _prior(test, classes)}, {_PRIOR: 1 / classes}
    notes: dict[str, str] = {}
    read = side = None
    if evidence.attack.utility is None:
        notes |= dict.fromkeys((_LABEL, INFERRED), "there is no utility label")
    else:
        table = _Table.of(evidence.attack, classes)
        estimates[_LABEL] = table.accuracy(_labels(evidence.test), test)
        on_validation[_LABEL] = table.accuracy(_labels(evidence.validation), validation).value
        read = None if inferred is None else table.accuracy(inferred, test)
    if evidence.attack.secret.ndim == 1:
        notes[_SIDE] = "there is no side information"
    else:
        best = _side_information(evidence, classes, seed)
        estimates[_SIDE], on_validation[_SIDE] = best.accuracy, best.on_validation.value
        clock = "" if evidence.attack.side is None else "side information and "
        notes[_SIDE] = f"{best.name.removeprefix('floor_')} on {clock}time of day"
        side = None if evidence.attack.side is None else best.calibrated
    return Floors(estimates, on_validation, notes, read, side)


def _prior(rows: Rows, classes: int) -> Estimate:
    """A constant guess recognises one class of all, whatever the records: there is no error."""
    return Estimate(1 / classes, np.zeros(len(rows.secret)), rows.cluster)


@dataclass(frozen=True, eq=False)
class _Table:
    """How often each utility label goes with each class of the secret, where attackers learn."""

    counts: NDArray[np.float64]
    prior: NDArray[np.float64]

    @classmethod
    def of(cls, attack: Exposure, classes: int) -> _Table:
        learned, seen = known_rows(attack), _labels(attack)
        prior = frequencies(learned.secret, classes)
        counts = np.tile(prior, (int(seen.max()) + 1, 1))  # one record's worth of the prior
        np.add.at(counts, (seen[learned.record], learned.secret), 1)
        return cls(counts, prior)

    def accuracy(self, labels: NDArray[np.int64], rows: Rows) -> Estimate:
        """Of Bayes decisions; a label that was never met tells the prior."""
        known = np.vstack([self.counts, self.prior])
        place = np.minimum(labels[rows.record], len(self.counts))
        log_posterior = np.log(known / known.sum(1, keepdims=True))[place]
        decision = balanced_decision(log_posterior, self.prior)
        return balanced_accuracy(decision, rows, len(self.prior))


def _side_information(evidence: Evidence, classes: int, seed: int) -> Assessment:
    """The stronger on validation of a linear model and boosted trees."""
    tables = without_release(evidence)
    validation, test = tables.validation.rows, tables.test.rows
    prior = frequencies(tables.attack.rows.secret, classes)
    fitted = (classical.fit(f"floor_{name}", tables, seed, name) for name in _CLASSIFIERS)
    assessed = [assess(posterior, validation, test, prior) for posterior in fitted]
    return max(assessed, key=lambda one: one.on_validation.value)


def _labels(exposure: Exposure) -> NDArray[np.int64]:
    assert exposure.utility is not None
    labels: NDArray[np.int64] = exposure.utility.cpu().numpy()
    return labels
