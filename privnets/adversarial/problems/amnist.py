"""AMNIST: MNIST's thin and thick digits; the thickness of the strokes is the secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems import thickness
from privnets.adversarial.problems.amnist_statement import SHARES, TEST, TRAIN, AmnistStatement
from privnets.adversarial.problems.images import DigitImages, as_pixels
from privnets.adversarial.problems.images_statement import DigitImagesStatement
from privnets.adversarial.problems.splits import deal, thinned
from privnets.adversarial.records import Pool, Splits
from privnets.networks.architecture import Architecture
from privnets.networks.convolution import ConvolutionalClassifier
from privnets.randomness import generator

if TYPE_CHECKING:
    from privnets.adversarial.attackers.posterior import Attacker

_LARGEST = 255


class Amnist(DigitImages):
    """The 28,568 training and 4,681 test images of arXiv 2310.18241.

    Test is the published test part. The seed deals the training images out to the releaser's
    game, to the attackers and to validation, stratified by digit and thickness: no attacker
    learns from an image that the releaser has met.
    """

    statement: ClassVar[DigitImagesStatement] = AmnistStatement()

    def materials(
        self, configs: Sequence[AdversarialConfig], device: str
    ) -> tuple[Pool, list[Splits]]:
        """Training images, then test images, and each configuration's splits."""
        images = thickness.read()
        pixels = np.concatenate([images.train_x, images.test_x])
        secret = np.concatenate([images.train_thickness, images.test_thickness])
        digit = np.concatenate([images.train_digit, images.test_digit])
        pool = Pool(
            as_pixels(pixels, _LARGEST).to(device),
            torch.tensor(secret, device=device),
            torch.tensor(digit, device=device),
        )
        return pool, [_splits(config, images) for config in configs]

    def classifier(self, width: int, classes: int, larger: bool = False) -> Architecture:
        """A convolutional network."""
        return ConvolutionalClassifier(self.statement.side, width, classes, larger)

    def analytic_attackers(self, config: AdversarialConfig) -> Sequence[Attacker]:
        """The thickness-computing attacker, which applies the labelling rule to the release."""
        from privnets.adversarial.attackers.thickness import ThicknessAttacker

        return (ThicknessAttacker(),)


def _splits(config: AdversarialConfig, images: thickness.Thickness) -> Splits:
    strata = 2 * images.train_digit + images.train_thickness
    train, attack, validation = deal(strata, SHARES, generator(config.seed, "splits"))
    return Splits(
        thinned(train, config.train_size),
        thinned(attack, config.attack_size),
        validation,
        np.arange(TRAIN, TRAIN + TEST),
    )
