"""Interface of objectives of releasers, and the objectives of the papers.

An objective answers what planning needs; its loss, and torch with it, load with the first game.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackerGuesses, KnownRows
from privnets.contract import Tensor
from privnets.statistics.estimates import Estimate

if TYPE_CHECKING:
    from privnets.adversarial.training.losses import Loss


class Objective(ABC):
    """Loss that a releaser minimises.

    Attributes:
        name: Value of the field `objective`.
        fields: Those of `WEIGHTS` that the loss reads; a study may not change others.
            The order `alpha` is not among them: leakage of that order is always measured.
        compares_with_raw: Whether the loss compares utility inferred from the release with utility
            inferred from raw records. It then needs a problem with a utility label, and both
            networks train with the adversary; otherwise one network trains beside the releaser.
        metrics: Keys of what `measure` returns, `privacy/...` being smaller if more private.
    """

    name: ClassVar[str]
    fields: ClassVar[frozenset[str]]
    compares_with_raw: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def loss(
        self,
        configs: Sequence[AdversarialConfig],
        log_prior: Tensor,
        complete: Collection[str] = (),
    ) -> Loss:
        """The loss of a stack.

        Args:
            configs: Configurations of the S members.
            log_prior: Class log frequencies of the secret in training, shape [S, C].
            complete: Labels of which none is missing, of `secret` and `utility`.
        """

    def measure(
        self,
        config: AdversarialConfig,
        guesses: AttackerGuesses,
        rows: KnownRows,
        prior: NDArray[np.float64],
    ) -> Mapping[str, Estimate]:
        """Measures a release by the strongest fresh attacker; nothing by default.

        Args:
            config: Configuration of the release.
            guesses: The attacker's calibrated guesses of n test records.
            rows: True secrets of these records, and their origins.
            prior: Class frequencies of the secret, shape [C].

        Returns:
            An estimate for each key of `metrics`.
        """
        return {}


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
