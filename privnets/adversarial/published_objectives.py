"""Objectives of the papers. Their losses, and torch with them, load with the first game."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from privnets.adversarial.objectives import Objective

if TYPE_CHECKING:
    from torch import Tensor

    from privnets.adversarial.config import AdversarialConfig
    from privnets.adversarial.training.losses import Loss


class AlphaObjective(Objective):
    """Distortion less a multiple of the adversary's conditional entropy (arXiv 2310.18241)."""

    name = "alpha"
    fields = frozenset({"privacy_weight", "gradient", "distortion_weight", "utility_weight"})

    def loss(
        self,
        configs: Sequence[AdversarialConfig],
        log_prior: Tensor,
        complete: Collection[str] = (),
    ) -> Loss:
        """See `losses.AlphaLoss`."""
        from privnets.adversarial.training.losses import AlphaLoss

        return AlphaLoss(configs, log_prior, complete)


class SquaredKLObjective(Objective):
    """Squares of the utility lost and of the secret leaked (ICLR 2019 submission, eq. 8)."""

    name = "squared-kl"
    fields = frozenset({"tradeoff", "estimator", "squaring", "distortion_weight"})
    compares_with_raw = True

    def loss(
        self,
        configs: Sequence[AdversarialConfig],
        log_prior: Tensor,
        complete: Collection[str] = (),
    ) -> Loss:
        """See `losses.SquaredKLLoss`."""
        from privnets.adversarial.training.losses import SquaredKLLoss  # imports torch

        return SquaredKLLoss(configs, log_prior, complete)
