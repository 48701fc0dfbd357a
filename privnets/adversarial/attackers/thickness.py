"""Thickness-computing attackers of AMNIST: the labelling rule, applied to the release.

arXiv 2310.18241 maps images that the rule calls normal to a random class, to thin or to thick, and
reports the largest of the three accuracies, which is optimistic. Here each is an attacker of its
own, and validation chooses. The attackers know the true digit. A count of non-zero pixels means
nothing for the output of a sigmoid, so releases are first rounded to 8 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.attackers.attacker import Posterior, ReleaseAttacker, ReleaseView
from privnets.adversarial.attackers.scores import balanced_accuracy, balanced_decision
from privnets.adversarial.problems.amnist import (
    NORMAL,
    classify_thickness,
    digit_thresholds,
    scan_line_counts,
)
from privnets.adversarial.problems.digits import THICK, THIN
from privnets.adversarial.records import Exposure, Rows, class_frequencies, known_rows
from privnets.randomness import generator

PUBLISHED_THRESHOLDS: Final = np.array([8, 4, 5, 5, 7, 8, 4, 4, 9, 4])
"""`digit_thresholds` of MNIST's training part, which labelled the records."""

_CLASSES = 2


class ThicknessAttacker(ReleaseAttacker):
    """Counts pixels on the scan line and compares them with a threshold of the digit.

    Thresholds are the published ones or the mean counts of the released attack split, whichever
    does better on validation: a releaser that adds ink everywhere moves every count.

    Attributes:
        normal_classes: Classes among which it guesses for images that the rule calls normal.
    """

    normal_classes: ClassVar[tuple[int, ...]]

    def fit(self, view: ReleaseView, seed: int) -> Posterior:
        """Applies the rule to images [n, 1, 28, 28] in [0, 1] with digits as utility labels."""
        random = generator(seed, "attacker:thickness")
        splits = [_ScanLines.count(split) for split in view.evidence.splits]
        rules = (PUBLISHED_THRESHOLDS, digit_thresholds(splits[0].counts, splits[0].digits))
        posteriors = [self._posterior(view, splits, rule, random) for rule in rules]
        return max(posteriors, key=lambda posterior: _validation_accuracy(posterior, splits))

    def _posterior(
        self,
        view: ReleaseView,
        splits: Sequence[_ScanLines],
        thresholds: NDArray[np.int64],
        random: np.random.Generator,
    ) -> Posterior:
        """Decisions, each with the class frequencies among its records in the attack split."""
        attack, validation, test = (self._decide(split, thresholds, random) for split in splits)
        secret = splits[0].rows.secret
        shares = [class_frequencies(secret[attack == label], _CLASSES) for label in (THIN, THICK)]
        beliefs = np.log(shares)
        return Posterior(self.metric_name(view), beliefs[validation], beliefs[test])

    def _decide(
        self, split: _ScanLines, thresholds: NDArray[np.int64], random: np.random.Generator
    ) -> NDArray[np.int64]:
        labels = classify_thickness(split.counts, split.digits, thresholds)
        guesses = np.array(self.normal_classes)
        chosen = random.integers(len(guesses), size=len(labels))
        return np.where(labels == NORMAL, guesses[chosen], labels)


class RandomThickness(ThicknessAttacker):
    """Guesses a random class for normal images."""

    name: ClassVar[str] = "amnist.thickness_random"
    normal_classes: ClassVar[tuple[int, ...]] = (THIN, THICK)


class ThinThickness(ThicknessAttacker):
    """Calls normal images thin."""

    name: ClassVar[str] = "amnist.thickness_thin"
    normal_classes: ClassVar[tuple[int, ...]] = (THIN,)


class ThickThickness(ThicknessAttacker):
    """Calls normal images thick."""

    name: ClassVar[str] = "amnist.thickness_thick"
    normal_classes: ClassVar[tuple[int, ...]] = (THICK,)


@dataclass(frozen=True, eq=False)
class _ScanLines:
    """Pixel counts on scan lines, digits and secrets of one released split, shape [k] each."""

    counts: NDArray[np.int64]
    digits: NDArray[np.int64]
    rows: Rows

    @classmethod
    def count(cls, exposure: Exposure) -> _ScanLines:
        assert exposure.utility is not None
        rows = known_rows(exposure)
        levels = (exposure.z[:, 0].clamp(0, 1) * 255).round().byte().cpu().numpy()[rows.record]
        digits = exposure.utility.cpu().numpy()[rows.record]
        return cls(scan_line_counts(levels, digits), digits, rows)


def _validation_accuracy(posterior: Posterior, splits: Sequence[_ScanLines]) -> float:
    attack, validation, _ = splits
    prior = class_frequencies(attack.rows.secret, _CLASSES)
    decision = balanced_decision(posterior.validation, prior)
    return balanced_accuracy(decision, validation.rows, _CLASSES).value
