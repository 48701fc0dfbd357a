"""Stroke thickness of MNIST digits by a scan line: the labels of AMNIST.

A digit is thin or thick by how many pixels of one row, the scan line of that digit, are not zero,
compared with the mean over images of the same digit (arXiv 2310.18241, section on AMNIST). Images
between the two bounds are `NORMAL` and no part of AMNIST.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privnets.data import mnist

THIN: Final = 0
THICK: Final = 1
NORMAL: Final = -1
"""Neither thin nor thick."""

ROWS: Final = np.array([14, 20, 11, 18, 10, 20, 7, 22, 10, 22])
"""The scan line of each digit, counted from 0 at the top."""

WIDTHS: Final = np.array([2, 1, 2, 2, 2, 6, 2, 0, 2, 0])
"""How many pixels the counts of normal images of each digit span."""


@dataclass(frozen=True, eq=False)
class Thickness:
    """The thin and the thick images of both parts of MNIST, in their order there.

    Each part is labelled with its own thresholds. They differ between the parts for the digits 4
    and 6, so that the rule shifts: 548 test labels would be others under the training rule.

    Attributes:
        train_x: Grey levels, uint8, shape [28568, 28, 28].
        train_digit: int64, shape [28568].
        train_thickness: `THIN` (9,557 images) or `THICK` (19,011), int64, shape [28568].
        test_x: Shape [4681, 28, 28].
        test_digit: Shape [4681].
        test_thickness: `THIN` (1,725 images) or `THICK` (2,956), shape [4681].
    """

    train_x: NDArray[np.uint8]
    train_digit: NDArray[np.int64]
    train_thickness: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_digit: NDArray[np.int64]
    test_thickness: NDArray[np.int64]


def scan_line_counts(images: NDArray[np.uint8], digits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pixels that are not zero on each image's scan line, that of its digit.

    Args:
        images: 8-bit grey levels, shape [n, 28, 28]. Quantise a release first: the output of a
            sigmoid is never exactly zero.
        digits: Shape [n].

    Returns:
        Shape [n], 0 to 28.
    """
    lines = images[np.arange(len(images)), ROWS[digits]]
    counts: NDArray[np.int64] = (lines != 0).sum(axis=1)
    return counts


def thresholds(counts: NDArray[np.int64], digits: NDArray[np.int64]) -> NDArray[np.int64]:
    """The integer part of the mean count of each digit, m.

    Args:
        counts: From `scan_line_counts`, shape [n].
        digits: Shape [n].

    Returns:
        Shape [10]. A digit without images gets the integer part of the mean over all images.
    """
    of_digit = [counts[digits == digit] for digit in range(10)]
    means = [(found if len(found) else counts).mean() for found in of_digit]
    return np.array(means, dtype=np.float64).astype(np.int64)


def classify(
    counts: NDArray[np.int64], digits: NDArray[np.int64], m: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The labelling rule, with thresholds of one's choice.

    Args:
        counts: From `scan_line_counts`, shape [n].
        digits: Shape [n].
        m: From `thresholds`, of these images or of others, shape [10].

    Returns:
        `THIN` (0) where the count is below int(m - w/2), `THICK` (1) where it is above
        int(m + w/2), else `NORMAL` (-1), int64, shape [n].
    """
    low, high = m[digits] - WIDTHS[digits] / 2, m[digits] + WIDTHS[digits] / 2
    labels = np.full(len(counts), NORMAL, dtype=np.int64)
    labels[counts < low.astype(np.int64)] = THIN
    labels[counts > high.astype(np.int64)] = THICK
    return labels


def read() -> Thickness:
    """AMNIST from MNIST's published files, once per process; its arrays are read-only.

    Raises:
        DataError: If a file of MNIST is absent, truncated or altered.
    """
    return _read(mnist.read())


@lru_cache(maxsize=1)
def _read(images: mnist.MnistImages) -> Thickness:
    return Thickness(
        *_labelled(images.train_x, images.train_y), *_labelled(images.test_x, images.test_y)
    )


def _labelled(
    images: NDArray[np.uint8], digits: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    counts = scan_line_counts(images, digits)
    labels = classify(counts, digits, thresholds(counts, digits))
    kept = labels != NORMAL
    found = images[kept], digits[kept], labels[kept]
    for array in found:
        array.setflags(write=False)
    return found
