"""What an attacker who sees no release knows: the prior, the utility label, side information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.attackers import classical
from privnets.adversarial.attackers.assessment import assess
from privnets.adversarial.attackers.features import without_release
from privnets.adversarial.attackers.rows import Rows, frequencies, known_rows
from privnets.adversarial.attackers.scoring import balanced_accuracy, balanced_decision
from privnets.adversarial.estimates import Estimate
from privnets.adversarial.records import Evidence, Exposure

KEYS: Final = ("floor/prior", "floor/utility_label", "floor/side_information")
_CLASSIFIERS: Final = ("logistic_regression", "boosted_trees")


@dataclass(frozen=True, eq=False)
class Floors:
    """Balanced accuracies on test.

    Attributes:
        estimates: By key, those that are defined; the prior's always is.
        notes: By key, why the others are not, or whose they are.
    """

    estimates: dict[str, Estimate]
    notes: dict[str, str]

    @property
    def highest(self) -> str:
        """The key of the largest."""
        return max(self.estimates, key=lambda key: self.estimates[key].value)


def floors(evidence: Evidence, classes: int, seed: int) -> Floors:
    """Fit attackers to everything but the release.

    Args:
        evidence: Its attack and test splits know every class.
        classes: Of the secret.
        seed: Of the fits to side information.
    """
    prior, utility, side = KEYS
    estimates, notes = {prior: _prior(known_rows(evidence.test), classes)}, {}
    if evidence.attack.utility is None:
        notes[utility] = "there is no utility label"
    else:
        estimates[utility] = _utility_label(evidence, classes)
    if evidence.attack.secret.ndim == 1:
        notes[side] = "there is no side information"
    else:
        estimates[side], notes[side] = _side_information(evidence, classes, seed)
    return Floors(estimates, notes)


def _prior(rows: Rows, classes: int) -> Estimate:
    """A constant guess recognises one class of all, whatever the records: there is no error."""
    return Estimate(1 / classes, np.zeros(len(rows.secret)), rows.cluster)


def _utility_label(evidence: Evidence, classes: int) -> Estimate:
    """Bayes decisions from how often each label goes with each class in the attack split."""
    learned, rows = known_rows(evidence.attack), known_rows(evidence.test)
    prior = frequencies(learned.secret, classes)
    seen, judged = (_labels(part) for part in (evidence.attack, evidence.test))
    labels = int(max(seen.max(), judged.max())) + 1
    table = np.tile(prior, (labels, 1))  # one record's worth of the prior
    np.add.at(table, (seen[learned.record], learned.secret), 1)
    log_posterior = np.log(table / table.sum(1, keepdims=True))[judged[rows.record]]
    return balanced_accuracy(balanced_decision(log_posterior, prior), rows, classes)


def _side_information(evidence: Evidence, classes: int, seed: int) -> tuple[Estimate, str]:
    """The stronger on validation of a linear model and boosted trees."""
    tables = without_release(evidence)
    validation, test = tables.validation.rows, tables.test.rows
    prior = frequencies(tables.attack.rows.secret, classes)
    fitted = (classical.fit(f"floor_{name}", tables, seed, name) for name in _CLASSIFIERS)
    assessed = [assess(posterior, validation, test, prior) for posterior in fitted]
    best = max(assessed, key=lambda one: one.on_validation.value)
    known = "time of day" if evidence.attack.side is None else "side information and time of day"
    return best.accuracy, f"{best.name.removeprefix('floor_')} on {known}"


def _labels(exposure: Exposure) -> NDArray[np.int64]:
    assert exposure.utility is not None
    labels: NDArray[np.int64] = exposure.utility.cpu().numpy()
    return labels
