"""Objective of the paper on learned privacy filters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from privnets.adversarial.objective import Objective

if TYPE_CHECKING:
    from torch import Tensor

    from privnets.adversarial.config import AdversarialConfig
    from privnets.adversarial.training.losses import Loss


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
