"""The thickness-computing attacker of AMNIST: the labelling rule, applied to the release.

arXiv 2310.18241 maps images that the rule calls normal to a random class, to thin or to thick, and
reports the largest of the three accuracies, which is optimistic: here each is an attacker of its
own, and validation chooses. The attacker knows the true digit. A count of pixels that are not zero
means nothing for the output of a sigmoid, so releases are rounded to 8 bits first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.attackers.names import THICKNESS
from privnets.adversarial.attackers.posterior import Posterior
from privnets.adversarial.attackers.rows import Rows, frequencies, known_rows
from privnets.adversarial.attackers.scoring import balanced_accuracy, balanced_decision
from privnets.adversarial.problems.thickness import (
    NORMAL,
    THICK,
    THIN,
    classify,
    scan_line_counts,
    thresholds,
)
from privnets.adversarial.records import Evidence, Exposure
from privnets.randomness import generator

PUBLISHED: Final = np.array([8, 4, 5, 5, 7, 8, 4, 4, 9, 4])
"""`thresholds` of MNIST's training part, which labelled the records."""

_CLASSES = 2


class ThicknessAttacker:
    """Three attackers that count pixels on the scan line.

    Thresholds are the published ones, or the mean counts of the released attack split, whichever
    does better on validation: a releaser that adds ink everywhere moves every count.
    """

    names: tuple[str, ...] = THICKNESS

    def fit(self, evidence: Evidence, seed: int) -> Sequence[Posterior]:
        """Apply the rule; images are [n, 1, 28, 28] in [0, 1], with digits for utility labels."""
        random = generator(seed, "attacker:thickness")
        splits = [_Split.of(part) for part in (evidence.attack, evidence.validation, evidence.test)]
        rules = (PUBLISHED, thresholds(splits[0].counts, splits[0].digits))
        return [
            max(
                (_posterior(name, splits, rule, random) for rule in rules),
                key=lambda posterior: _success(posterior, splits),
            )
            for name in self.names
        ]


@dataclass(frozen=True, eq=False)
class _Split:
    counts: NDArray[np.int64]
    digits: NDArray[np.int64]
    rows: Rows

    @classmethod
    def of(cls, exposure: Exposure) -> _Split:
        assert exposure.utility is not None
        rows = known_rows(exposure)
        levels = (exposure.z[:, 0].clamp(0, 1) * 255).round().byte().cpu().numpy()[rows.record]
        digits = exposure.utility.cpu().numpy()[rows.record]
        return cls(scan_line_counts(levels, digits), digits, rows)


def _posterior(
    name: str, splits: Sequence[_Split], rule: NDArray[np.int64], random: np.random.Generator
) -> Posterior:
    """Decisions, with how often each goes with each class in the attack split for a belief."""
    attack, validation, test = (
        _guess(name, classify(split.counts, split.digits, rule), random) for split in splits
    )
    secret = splits[0].rows.secret
    shares = [frequencies(secret[attack == guess], _CLASSES) for guess in (THIN, THICK)]
    beliefs = np.log(shares)
    return Posterior(name, beliefs[validation], beliefs[test])


def _guess(name: str, labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Labels with a class in place of `NORMAL`."""
    if name == "thickness_random":
        instead = random.integers(_CLASSES, size=len(labels))
    else:
        instead = np.full(len(labels), THIN if name == "thickness_thin" else THICK)
    return np.where(labels == NORMAL, instead, labels)


def _success(posterior: Posterior, splits: Sequence[_Split]) -> float:
    attack, validation, _ = splits
    prior = frequencies(attack.rows.secret, _CLASSES)
    decision = balanced_decision(posterior.validation, prior)
    return balanced_accuracy(decision, validation.rows, _CLASSES).value
