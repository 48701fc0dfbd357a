"""Scikit-learn's 8x8 digits: how much ink a digit has is the secret. For quick runs anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from privnets import data
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems.digits_statement import SHARES, DigitsStatement
from privnets.adversarial.problems.images import DigitImages, as_pixels
from privnets.adversarial.problems.images_statement import DigitImagesStatement
from privnets.adversarial.problems.splits import deal, thinned
from privnets.adversarial.records import Pool, Splits
from privnets.networks.architecture import Architecture
from privnets.networks.mlp import Perceptron
from privnets.randomness import generator

_LARGEST = 16


class Digits(DigitImages):
    """1,797 digits of 8x8 pixels.

    The secret is thickness by ink: an image is thick (1) if its pixels sum to more than the median
    sum over all images of its digit, else thin (0); the few at the median (23 images) are thin.
    So the digit alone tells next to nothing of the secret. The label is a property of the data set
    as a whole and does not move with the seed. The seed deals the images out, stratified by digit
    and secret.
    """

    statement: ClassVar[DigitImagesStatement] = DigitsStatement()

    def materials(
        self, configs: Sequence[AdversarialConfig], device: str
    ) -> tuple[Pool, list[Splits]]:
        """All digits, and each configuration's splits."""
        ink, digit, thick = labelled()
        pool = Pool(
            as_pixels(ink, _LARGEST).to(device),
            torch.tensor(thick, device=device),
            torch.tensor(digit, device=device),
        )
        return pool, [_splits(config, 2 * digit + thick) for config in configs]

    def classifier(self, width: int, classes: int, larger: bool = False) -> Architecture:
        """A perceptron of two hidden layers, or of three."""
        return Perceptron((self.statement.side**2, *(width,) * (3 if larger else 2), classes))


def labelled() -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Ink of each pixel, [1797, 8, 8] from 0 to 16, digits [1797], and whether they are thick."""
    return _labelled(data.fingerprint("digits"))


@lru_cache(maxsize=1)
def _labelled(_identity: str) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    loaded, side = data.load("digits"), DigitsStatement.side
    digit = loaded.y.astype(np.int64)
    total = loaded.x.sum(axis=1)
    medians = np.array([np.median(total[digit == d]) for d in range(10)])
    thick = (total > medians[digit]).astype(np.int64)
    return loaded.x.reshape(-1, side, side), digit, thick


def _splits(config: AdversarialConfig, strata: NDArray[np.int64]) -> Splits:
    train, attack, validation, test = deal(strata, SHARES, generator(config.seed, "splits"))
    return Splits(
        thinned(train, config.train_size), thinned(attack, config.attack_size), validation, test
    )
