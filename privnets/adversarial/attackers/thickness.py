"""Thickness-computing attackers of AMNIST: the labelling rule, applied to the release.

arXiv 2310.18241 maps images that the rule calls normal to a random class, to thin or to thick, and
reports the largest of the three accuracies, which is optimistic. Here each is an attacker of its
own, and validation chooses. The attackers know the true digit. A count of non-zero pixels means
nothing for the output of a sigmoid, so releases are first rounded to 8 bits. Nor does it where
pixels have noise: a fourth attacker learns from which grey level on a pixel is ink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.attackers.attacker import Posterior, ReleaseAttacker, ReleaseView
from privnets.adversarial.attackers.scores import balanced_accuracy, balanced_decision
from privnets.adversarial.evidence import AttackView, KnownRows
from privnets.adversarial.problem import class_frequencies
from privnets.adversarial.problems.amnist import (
    NORMAL,
    ROWS,
    classify_thickness,
    digit_thresholds,
)
from privnets.adversarial.problems.digits import THICK, THIN
from privnets.adversarial.records import known_rows
from privnets.randomness import generator

PUBLISHED_THRESHOLDS: Final = np.array([8, 4, 5, 5, 7, 8, 4, 4, 9, 4])
"""`digit_thresholds` of MNIST's training part, which labelled the records."""

_CLASSES = 2
_CUTS = range(0, 255, 5)  # grey levels above which a pixel may count as ink
_MOST_INK = 28  # pixels of a scan line


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
        rows, prior = splits[1].rows, class_frequencies(splits[0].rows.secret, _CLASSES)

        def accuracy(posterior: Posterior) -> float:
            decision = balanced_decision(posterior.validation, prior)
            return balanced_accuracy(decision, rows, _CLASSES).value

        return max(posteriors, key=accuracy)

    def _posterior(
        self,
        view: ReleaseView,
        splits: Sequence[_ScanLines],
        thresholds: NDArray[np.int64],
        random: np.random.Generator,
    ) -> Posterior:
        """Decisions, each with the class frequencies among its records in the attack split."""
        guesses, decisions = np.array(self.normal_classes), []
        for split in splits:
            labels = classify_thickness(split.counts, split.digits, thresholds)
            chosen = random.integers(len(guesses), size=len(labels))
            decisions.append(np.where(labels == NORMAL, guesses[chosen], labels))
        attack, validation, test = decisions
        secret = splits[0].rows.secret
        shares = [class_frequencies(secret[attack == label], _CLASSES) for label in (THIN, THICK)]
        beliefs = np.log(shares)
        return Posterior(self.metric_name(view), beliefs[validation], beliefs[test])


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


class LearnedThickness(ReleaseAttacker):
    """Counts pixels above a grey level on the scan line; calls a count above a limit thick.

    The grey level, and the limit of each digit, are those with the highest balanced accuracy on
    the attack split. Noise on pixels defeats the published rule, which counts every pixel above 0.
    """

    name: ClassVar[str] = "amnist.thickness_learned"

    def fit(self, view: ReleaseView, seed: int) -> Posterior:
        """Learns from images [n, 1, 28, 28] in [0, 1] with digits as utility labels."""
        splits = view.evidence.splits
        rules = [_InkRule.fit(_ScanLines.count(splits[0], cut), cut) for cut in _CUTS]
        best = max(rules, key=lambda rule: rule.accuracy)
        validation, test = (best.beliefs(_ScanLines.count(s, best.cut)) for s in splits[1:])
        return Posterior(self.metric_name(view), validation, test)


@dataclass(frozen=True, eq=False)
class _InkRule:
    """Limits of the ink on scan lines, one per digit.

    Attributes:
        cut: Grey level above which a pixel is ink.
        limits: Counts above which a digit is thick, -1 to 28, shape [10].
        accuracy: Balanced accuracy on the attack split.
        log_shares: Log frequencies of the secret below and above each limit, shape [10, 2, 2].
    """

    cut: int
    limits: NDArray[np.int64]
    accuracy: float
    log_shares: NDArray[np.float64]

    @classmethod
    def fit(cls, attack: _ScanLines, cut: int) -> _InkRule:
        """Chooses each digit's limit, which for a given cut maximises balanced accuracy."""
        secret = attack.rows.secret
        table = np.zeros((10, _MOST_INK + 1, _CLASSES))  # of digits, counts and classes
        np.add.at(table, (attack.digits, attack.counts, secret), 1)
        table /= np.bincount(secret, minlength=_CLASSES)
        thin_below = np.pad(table[..., THIN].cumsum(1), ((0, 0), (1, 0)))
        thick_above = table[..., THICK].sum(1, keepdims=True) - np.pad(
            table[..., THICK].cumsum(1), ((0, 0), (1, 0))
        )
        gain = thin_below + thick_above
        limits = gain.argmax(1) - 1
        above = (attack.counts > limits[attack.digits]).astype(np.int64)
        shares = [
            [
                class_frequencies(secret[(attack.digits == d) & (above == a)], _CLASSES)
                for a in (THIN, THICK)
            ]
            for d in range(10)
        ]
        return cls(cut, limits, float(gain.max(1).sum() / _CLASSES), np.log(shares))

    def beliefs(self, split: _ScanLines) -> NDArray[np.float64]:
        """Log probabilities of the secret, shape [k, 2]."""
        above = (split.counts > self.limits[split.digits]).astype(np.int64)
        return self.log_shares[split.digits, above]


@dataclass(frozen=True, eq=False)
class _ScanLines:
    """Pixel counts on scan lines, digits and secrets of one released split, shape [k] each."""

    counts: NDArray[np.int64]
    digits: NDArray[np.int64]
    rows: KnownRows

    @classmethod
    def count(cls, exposure: AttackView, cut: int = 0) -> _ScanLines:
        """Counts the pixels above a grey level."""
        assert exposure.utility is not None
        rows = known_rows(exposure)
        digits = exposure.utility.cpu().numpy()[rows.record]
        lines = exposure.z[:, 0].cpu().numpy()[rows.record, ROWS[digits]]
        levels = np.rint(lines.clip(0, 1) * 255).astype(np.uint8)
        return cls((levels > cut).sum(1), digits, rows)
