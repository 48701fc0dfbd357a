"""What releasers minimise, for a stack whose members weigh it differently."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.training import squared_kl
from privnets.adversarial.training.alpha import ConditionalEntropy
from privnets.adversarial.training.batches import Batch
from privnets.adversarial.training.losses import cross_entropy, log_probabilities


@dataclass(frozen=True, eq=False)
class Seen:
    """A batch, its release, and what inference networks make of it.

    Attributes:
        batch: The records.
        z: Their release, shape [S, B, ...].
        adversary: Logits of the secret.
        utility: Logits of the utility label, or None.
        reference: Logits of the utility label from raw records, or None.
    """

    batch: Batch
    z: Tensor
    adversary: Tensor
    utility: Tensor | None = None
    reference: Tensor | None = None


class Objective(ABC):
    """A releaser's loss."""

    @abstractmethod
    def loss(self, seen: Seen) -> Tensor:
        """Differentiable in `seen.z`, shape [S]."""

    def state(self) -> dict[str, Tensor]:
        """What carries over from step to step, not copied."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state.

        Raises:
            KeyError: If something is missing.
        """
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    @abstractmethod
    def keep(self, members: Sequence[int]) -> None:
        """Go on with these members alone."""


def build(configs: Sequence[AdversarialConfig], log_prior: Tensor) -> Objective:
    """The objective of a stack.

    Args:
        configs: Of one structure.
        log_prior: Log frequencies of the secret's classes in training, shape [S, C].
    """
    kind = AlphaObjective if configs[0].objective == "alpha" else SquaredKLObjective
    return kind(configs, log_prior)


@final
class AlphaObjective(Objective):
    """Distortion less lambda / T times the conditional entropy (arXiv 2310.18241, eq. 5, 9, 14).

    Distortion is the mean squared difference per pixel or step (the papers' order is lost, as is
    whether they sum), plus the utility network's cross-entropy where there is a utility label.
    """

    def __init__(self, configs: Sequence[AdversarialConfig], log_prior: Tensor) -> None:
        """Gather the members' weights."""
        self._configs, self._like = list(configs), log_prior
        self._gather()

    def _gather(self) -> None:
        self._entropy = ConditionalEntropy(
            [c.alpha for c in self._configs], self._configs[0].gradient, self._configs[0].sequence
        )
        self._weights = {
            name: self._like.new_tensor([getattr(c, name) for c in self._configs])
            for name in ("privacy_weight", "distortion_weight", "utility_weight")
        }

    def loss(self, seen: Seen) -> Tensor:
        """See the class."""
        weights = self._weights
        total = weights["distortion_weight"] * distortion(seen)
        if seen.utility is not None and seen.batch.utility is not None:
            total = total + weights["utility_weight"] * cross_entropy(
                seen.utility, seen.batch.utility
            )
        steps = math.prod(seen.batch.secret.shape[2:])
        entropy = self._entropy(seen.adversary, seen.batch.secret)
        return total - weights["privacy_weight"] / steps * entropy

    def keep(self, members: Sequence[int]) -> None:
        """See `Objective`."""
        self._configs = [self._configs[i] for i in members]
        if self._configs:
            self._gather()


@final
class SquaredKLObjective(Objective):
    """The utility lost and the secret leaked, squared and weighed; see `squared_kl`."""

    def __init__(self, configs: Sequence[AdversarialConfig], log_prior: Tensor) -> None:
        """Gather the members' weights."""
        self._first, self._log_prior = configs[0], log_prior
        tradeoff = log_prior.new_tensor([c.tradeoff for c in configs])
        self._weights = torch.stack([1 - tradeoff, tradeoff])
        self._running = squared_kl.RunningMean(self._weights)

    def loss(self, seen: Seen) -> Tensor:
        """See the class."""
        assert seen.utility is not None
        assert seen.reference is not None
        assert seen.batch.utility is not None
        estimator = self._first.estimator
        lost = squared_kl.censored(
            log_probabilities(seen.reference),
            log_probabilities(seen.utility),
            seen.batch.utility,
            estimator,
        )
        leaked = squared_kl.leakage(
            log_probabilities(seen.adversary), self._log_prior, seen.batch.secret, estimator
        )
        both = squared_kl.squared(torch.stack([lost, leaked]), self._running, self._first.squaring)
        return (self._weights * both).sum(0)

    def state(self) -> dict[str, Tensor]:
        """See `Objective`."""
        return {"mean": self._running.value, "weight": self._running.weight}

    def keep(self, members: Sequence[int]) -> None:
        """See `Objective`."""
        index = list(members)
        self._log_prior, self._weights = self._log_prior[index], self._weights[:, index]
        self._running.value = self._running.value[:, index]


def distortion(seen: Seen) -> Tensor:
    """Mean squared difference between release and record per number, shape [S].

    Steps that were not observed do not count.
    """
    squares = (seen.z - seen.batch.x).square()
    present = seen.batch.present
    if present is None:
        return squares.flatten(1).mean(1)
    counted = present[..., None].expand_as(squares)
    return torch.where(counted, squares, 0.0).flatten(1).sum(1) / counted.flatten(1).sum(
        1
    ).clamp_min(1)
