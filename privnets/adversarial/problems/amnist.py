"""AMNIST: MNIST's thin and thick digits; the thickness of the strokes is secret.

Thickness follows from a scan line (arXiv 2310.18241, section on AMNIST): a digit is thin or thick
by the number of non-zero pixels in one row, compared with the mean over images of the same digit.
Images between the two bounds are `NORMAL` and not part of AMNIST.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import (
    ProblemSpec,
    RecordArrays,
    Splits,
    SplitSizes,
    stratified_sizes,
    stratified_split,
)
from privnets.adversarial.problems.digits import (
    THICK,
    THIN,
    DigitImages,
    scale_pixels,
)
from privnets.data import mnist
from privnets.references.problems import ProblemSettings

NORMAL: Final = -1
"""Neither thin nor thick."""

ROWS: Final = np.array([14, 20, 11, 18, 10, 20, 7, 22, 10, 22])
"""Scan line of each digit, counted from 0 at the top; r in the paper."""

WIDTHS: Final = np.array([2, 1, 2, 2, 2, 6, 2, 0, 2, 0])
"""Range of the pixel counts of normal images of each digit; w in the paper."""

_TRAIN, _SIDE, _LARGEST_LEVEL = 28_568, 28, 255
_TESTS: Final = {"consistent": 4_747, "published": 4_681}
_OTHER_LABELS: Final = {"consistent": "published", "published": "consistent"}
_SHARES = (5, 4, 1)  # of train, attack and validation: 50, 40 and 10% of the training images


class AmnistSettings(ProblemSettings):
    """Settings of AMNIST."""

    labels: Literal["consistent", "published"] = Field(
        "consistent", description="test labels: by the rule of training, or as published"
    )


class AmnistProblem(DigitImages):
    """The 28,568 training images of arXiv 2310.18241, and test images.

    The seed splits the training images between the releaser, the attackers and validation,
    stratified by digit and thickness. So attackers learn from images that the releaser was not
    trained on.

    The published test labels follow other thresholds than the training labels for the digits 4 and
    6. So an attacker that knows the digit alone, and thickness by digit from training, reads 64%
    of validation, 63% of the test images labelled by the training thresholds, and 56% of the
    published ones. The test split has the labels that the setting `labels` names: `consistent` with
    training (4,747 images), or `published` (4,681). Attackers are scored under the other ones too.
    """

    spec = ProblemSpec(
        name="amnist",
        secret_classes=2,
        utility_classes=10,
        network="convolutional",
        pixels=True,
        shows_labels=True,
        attacker_width=16,
        releasers=("mlp", "convolutional"),
        defaults={
            "releaser": "convolutional",
            "releaser_width": 64,
            "adversary_width": 16,
            "steps": 4000,
            "distortion_weight": 10.0,
            "utility_weight": 2.0,
            "noise_std": 0.15,
            "learning_rate": 2e-3,
            "adversary_learning_rate": 2e-3,
        },
    )

    Settings = AmnistSettings
    data_set = "mnist"
    side = _SIDE
    counts = (*stratified_sizes(_TRAIN, _SHARES), _TESTS["consistent"])

    def whole_sizes(self, config: AdversarialConfig) -> SplitSizes:
        """Numbers of images; those of test depend on the labels."""
        return replace(super().whole_sizes(config), test=_TESTS[_labels(config)])

    def load_records(
        self, configs: Sequence[AdversarialConfig]
    ) -> tuple[RecordArrays, list[Splits]]:
        """Training images, then test images by either labels, and splits of each configuration."""
        images, ends = read_amnist(), np.cumsum([_TRAIN, *_TESTS.values()])
        x = scale_pixels(images.x, _LARGEST_LEVEL)
        records = RecordArrays(x, images.thickness, images.digit)
        strata = (2 * images.digit + images.thickness)[:_TRAIN]
        tests = dict(zip(_TESTS, (np.arange(a, b) for a, b in pairwise(ends)), strict=True))
        splits = []
        for config in configs:
            train, attack, validation = stratified_split(strata, _SHARES, config.seed)
            own, other = tests[_labels(config)], tests[self.other_labels(config)]
            splits.append(Splits(train, attack, validation, own, other))
        return records, splits

    def test_set(self, config: AdversarialConfig) -> tuple[str, float]:
        """All seeds share the test images of the labels that are asked for."""
        return f"{self.name} {_labels(config)}", 1.0

    def other_labels(self, config: AdversarialConfig) -> str:
        """The labels that are not asked for."""
        return _OTHER_LABELS[_labels(config)]


def _labels(config: AdversarialConfig) -> str:
    assert isinstance(config.settings, AmnistSettings)
    return config.settings.labels


@dataclass(frozen=True, eq=False)
class ThicknessImages:
    """The thin and thick images of MNIST, read-only, in its order within each of three parts.

    - 28,568 training images: 9,557 are `THIN` and 19,011 `THICK`.
    - 4,747 test images by the training images' thresholds: 1,484 and 3,263.
    - 4,681 test images by their own thresholds, as published: 1,725 and 2,956.

    The thresholds differ for the digits 4 and 6. No image is thin by one and thick by the other:
    241 published images are normal by the training thresholds, and 307 others are not.

    Attributes:
        x: Grey levels, shape [37996, 28, 28].
        digit: Shape [37996].
        thickness: Shape [37996].
    """

    x: NDArray[np.uint8]
    digit: NDArray[np.int64]
    thickness: NDArray[np.int64]


def read_amnist() -> ThicknessImages:
    """AMNIST from MNIST's published files, read once per process.

    Raises:
        DataError: If a file of MNIST is absent, truncated or altered.
    """
    return _select_thin_and_thick(mnist.read())


def scan_line_counts(images: NDArray[np.uint8], digits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Non-zero pixels, 0 to 28, on the scan line of each image's digit, shape [n].

    Images are 8-bit grey levels [n, 28, 28]. Quantise a release first: the output of a sigmoid is
    never exactly 0.
    """
    lines = images[np.arange(len(images)), ROWS[digits]]
    counts: NDArray[np.int64] = (lines != 0).sum(axis=1)
    return counts


def digit_thresholds(counts: NDArray[np.int64], digits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integer part of the mean of the counts [n] of each digit, shape [10]; m in the paper.

    A digit without images gets the integer part of the mean over all images.
    """
    by_digit = [counts[digits == digit] for digit in range(10)]
    means = [(own if len(own) else counts).mean() for own in by_digit]
    return np.array(means, dtype=np.float64).astype(np.int64)


def classify_thickness(
    counts: NDArray[np.int64], digits: NDArray[np.int64], thresholds: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Labels images by their counts [n] and digits [n] and the thresholds m [10] of digits.

    `THIN` where the count is below int(m - w/2), `THICK` where it is above int(m + w/2), else
    `NORMAL`; shape [n].
    """
    middle, half_width = thresholds[digits], WIDTHS[digits] / 2
    labels = np.full(len(counts), NORMAL, dtype=np.int64)
    labels[counts < (middle - half_width).astype(np.int64)] = THIN
    labels[counts > (middle + half_width).astype(np.int64)] = THICK
    return labels


@lru_cache(maxsize=1)
def _select_thin_and_thick(images: mnist.MnistImages) -> ThicknessImages:
    """Each part by the thresholds of training images; test images also by their own."""
    train, test = (images.train_x, images.train_y), (images.test_x, images.test_y)
    parts = []
    for (x, digits), rule in ((train, train), (test, train), (test, test)):
        thresholds = digit_thresholds(scan_line_counts(*rule), rule[1])
        labels = classify_thickness(scan_line_counts(x, digits), digits, thresholds)
        kept = labels != NORMAL
        parts.append((x[kept], digits[kept], labels[kept]))
    arrays = [np.concatenate(column) for column in zip(*parts, strict=True)]
    for array in arrays:
        array.setflags(write=False)
    return ThicknessImages(*arrays)
