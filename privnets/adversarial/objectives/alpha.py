"""Objective of the paper on Arimoto's alpha-mutual information."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from privnets.adversarial.objective import Objective

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
        from privnets.adversarial.training.losses import AlphaLoss  # imports torch

        return AlphaLoss(configs, log_prior, complete)
