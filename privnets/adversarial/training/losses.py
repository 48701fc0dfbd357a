"""Losses of releasers, for a stack whose members weigh their terms differently.

`alpha` (arXiv 2310.18241) uses the conditional entropy of order alpha. With gradient `posterior`,
as published, the adversary's output replaces the distribution of the secret (eq. 3 and 9). With the
adversary fixed, its gradient is not that of the information and may have the wrong sign. Gradient
`label` scores the true secret by the alpha-loss, whose minimum over all posteriors is the
conditional entropy; at the adversary's optimum this gradient is exact.

`squared-kl` (ICLR 2019 submission, eq. 8) is (1 - a) I(U;X|Q)^2 + a I(S;Q)^2, to which a weighted
distortion may be added. Each information is the mean over a batch of a log ratio of inference
networks, with these estimators:

* `label`, as published: the log ratio at the true label.
* `full`: its mean over the classes, weighted by the network's probabilities. It has less noise and
  is never negative, but the weights of the leakage move with the releaser, a biased gradient.
* `sound`: `full` for utility, whose weights P(u|x) are fixed, and `label` for leakage.

The square of a batch mean exceeds the squared mean by its variance, which favours releases of low
variance, and a mean below 0 pushes leakage up. `running` squares a running mean, `clamped` the
batch mean, both at least 0; `batch` squares the batch mean, as published.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.records import MISSING, Minibatch
from privnets.adversarial.training.conditional_entropy import (
    ConditionalEntropy,
    at_known,
    at_label,
)
from privnets.adversarial.training.inference_networks import (
    cross_entropy,
    log_softmax_over_classes,
)

Estimator = Literal["sound", "label", "full"]
Squaring = Literal["running", "clamped", "batch"]

RUNNING_STEPS = 20.0
"""Steps after which a running mean has mostly forgotten a batch."""


@dataclass(frozen=True, eq=False)
class GameStep:
    """A minibatch, its release, and the outputs of the inference networks.

    Attributes:
        z: Release of the batch, shape [S, B, ...].
        adversary: Logits of the secret, shape [S, B, C] or [S, B, T, C].
        utility: Logits of the utility label from `Loss.utility_input`, shape [S, B, C]; None
            without a label.
        reference: Logits of the utility label from raw records, shape [S, B, C]; or None.
    """

    batch: Minibatch
    z: Tensor
    adversary: Tensor
    utility: Tensor | None = None
    reference: Tensor | None = None

    @cached_property
    def distortion(self) -> Tensor:
        """Mean squared difference of release and record per observed number, shape [S]."""
        squares = (self.z - self.batch.x).square()
        present = self.batch.present
        if present is None:
            return squares.flatten(1).mean(1)
        counted = present[..., None].expand_as(squares)
        count = counted.flatten(1).sum(1).clamp_min(1)
        return torch.where(counted, squares, 0.0).flatten(1).sum(1) / count


class Loss(ABC):
    """Loss of the releasers of a stack."""

    def utility_input(self, z: Tensor) -> Tensor:
        """Input of the utility network, equal to the release; see `AlphaLoss`."""
        return z

    @abstractmethod
    def __call__(self, step: GameStep) -> Tensor:
        """Loss of each member, differentiable in `step.z`, shape [S]."""

    @abstractmethod
    def keep(self, members: Sequence[int]) -> None:
        """Continues with these members only."""

    def state(self) -> dict[str, Tensor]:
        """Tensors that later steps need, not copied."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a saved state."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


@final
class AlphaLoss(Loss):
    """Distortion less lambda / T times the conditional entropy (arXiv 2310.18241, eq. 5, 9, 14).

    Distortion is the mean squared difference per pixel or step (the paper's order and summation
    are lost), plus the utility network's cross-entropy where there is a utility label.
    """

    def __init__(
        self,
        configs: Sequence[AdversarialConfig],
        log_prior: Tensor,
        complete: Collection[str] = (),
    ) -> None:
        """Collects the members' weights; `log_prior` gives their device and type."""
        self._configs, self._like, self._complete = list(configs), log_prior, frozenset(complete)
        self._collect_weights()

    def utility_input(self, z: Tensor) -> Tensor:
        """The release, with gradients multiplied by the weight of utility.

        The gradient of the loss at the utility network is not weighted. So one backward pass serves
        the releaser and a utility network that trains beside it.
        """
        weight = self._weights["utility_weight"].view(-1, *[1] * (z.ndim - 1))
        return torch.lerp(z.detach(), z, weight)

    def __call__(self, step: GameStep) -> Tensor:
        """Loss of each member, shape [S]; see the class."""
        weights = self._weights
        total = weights["distortion_weight"] * step.distortion
        if step.utility is not None and step.batch.utility is not None:
            is_complete = "utility" in self._complete
            utility_loss = cross_entropy(step.utility, step.batch.utility, is_complete=is_complete)
            # The value is weighted here, and the gradient in `utility_input`.
            further = (weights["utility_weight"] - 1) * utility_loss.detach()
            total = total + utility_loss + further
        steps = math.prod(step.batch.secret.shape[2:])
        entropy = self._entropy(step.adversary, step.batch.secret)
        return total - weights["privacy_weight"] / steps * entropy

    def keep(self, members: Sequence[int]) -> None:
        """Continues with these members only."""
        self._configs = [self._configs[i] for i in members]
        if self._configs:
            self._collect_weights()

    def _collect_weights(self) -> None:
        first, orders = self._configs[0], [c.alpha for c in self._configs]
        self._entropy = ConditionalEntropy(
            orders,
            first.gradient,
            first.settings.sequence_form,
            is_complete="secret" in self._complete,
        )
        self._weights = {
            name: self._like.new_tensor([getattr(c, name) for c in self._configs])
            for name in ("privacy_weight", "distortion_weight", "utility_weight")
        }


@final
class SquaredKLLoss(Loss):
    """Censored utility and leaked secret, squared and weighed by the trade-off; see the module.

    A distortion weight above 0, which the paper does not have, keeps releases among the records.
    """

    def __init__(
        self,
        configs: Sequence[AdversarialConfig],
        log_prior: Tensor,
        complete: Collection[str] = (),
    ) -> None:
        """Collects the members' weights."""
        self._first, self._log_prior, self._complete = configs[0], log_prior, frozenset(complete)
        tradeoff = log_prior.new_tensor([c.tradeoff for c in configs])
        self._weights = torch.stack([1 - tradeoff, tradeoff])
        self._distortion = log_prior.new_tensor([c.distortion_weight for c in configs])
        self._running = RunningMean(self._weights)

    def __call__(self, step: GameStep) -> Tensor:
        """Loss of each member, shape [S]; see the module."""
        assert step.utility is not None
        assert step.reference is not None
        assert step.batch.utility is not None
        reference, utility, adversary = map(
            log_softmax_over_classes, (step.reference, step.utility, step.adversary)
        )
        estimator = self._first.estimator
        labels = (step.batch.utility, step.batch.secret)
        complete = ("utility" in self._complete, "secret" in self._complete)
        own, is_complete = labels[0], complete[0]
        lost = censored_information(reference, utility, own, estimator, is_complete=is_complete)
        own, is_complete, prior = labels[1], complete[1], self._log_prior
        leaked = leaked_information(adversary, prior, own, estimator, is_complete=is_complete)
        is_known = None
        if not all(complete):
            is_known = torch.stack([(label != MISSING).any(1) for label in labels])
        means = torch.stack([lost, leaked])
        squares = square_means(means, is_known, self._running, self._first.squaring)
        return (self._weights * squares).sum(0) + self._distortion * step.distortion

    def state(self) -> dict[str, Tensor]:
        """Running means, not copied."""
        return {"mean": self._running.value, "weight": self._running.weight}

    def keep(self, members: Sequence[int]) -> None:
        """Continues with these members only."""
        index = list(members)
        self._log_prior, self._weights = self._log_prior[index], self._weights[:, index]
        self._distortion = self._distortion[index]
        self._running.value = self._running.value[:, index]
        self._running.weight = self._running.weight[:, index]


class RunningMean:
    """Exponential means of two informations over the steps of a game."""

    def __init__(self, like: Tensor) -> None:
        """Begins without a step; `like` has the shape [2, S]."""
        self.value = torch.zeros_like(like)
        self.weight = torch.zeros_like(like)

    def update(self, batch: Tensor, is_known: Tensor | None) -> Tensor:
        """Adds a batch's means [2, S] where they are known, and returns the means so far.

        They are 0 before the first that is known. All are if `is_known` is None.
        """
        rate = 1 / RUNNING_STEPS
        if is_known is None:
            self.value.lerp_(batch.detach(), rate)
            self.weight.mul_(1 - rate).add_(rate)
            return self.value / self.weight
        moved = torch.lerp(self.value, batch.detach(), rate)
        self.value.copy_(torch.where(is_known, moved, self.value))
        self.weight.add_(rate * (1 - self.weight) * is_known)
        return self.value / self.weight.clamp_min(rate)


def censored_information(
    log_reference: Tensor,
    log_inferred: Tensor,
    utility: Tensor,
    estimator: Estimator,
    *,
    is_complete: bool = False,
) -> Tensor:
    """I(U;X|Q), the utility that the release loses (eq. 3): minibatch means, nats, shape [S].

    From log P(u|x), held fixed, and log P(u|q), both [S, n, C], and the true labels [S, n], of
    which none is missing if `is_complete`.
    """
    ratio = log_reference.detach() - log_inferred
    if estimator == "label":
        return _mean_at_known(ratio, utility, is_complete)
    return _mean_of_known((log_reference.detach().exp() * ratio).sum(-1), utility, is_complete)


def leaked_information(
    log_inferred: Tensor,
    log_prior: Tensor,
    secret: Tensor,
    estimator: Estimator,
    *,
    is_complete: bool = False,
) -> Tensor:
    """I(S;Q), the release's information about the secret (eq. 4): minibatch means, nats, shape [S].

    From log P(s|q) [S, n, C], log P(s) [S, C] and the true secrets [S, n], of which none is missing
    if `is_complete`.
    """
    ratio = log_inferred - log_prior[:, None]
    if estimator == "full":
        return _mean_of_known((log_inferred.exp() * ratio).sum(-1), secret, is_complete)
    return _mean_at_known(ratio, secret, is_complete)


def square_means(
    batch: Tensor, is_known: Tensor | None, running: RunningMean, squaring: Squaring
) -> Tensor:
    """Values [2, S] whose gradients are those of the two squared informations.

    Updates `running` with `batch`, the differentiable batch means [2, S], where a batch has known
    labels; everywhere if `is_known` is None.
    """
    mean = running.update(batch, is_known)
    if squaring == "batch":
        return batch.square()
    if squaring == "clamped":
        return batch.clamp_min(0).square()
    mean = mean.clamp_min(0)
    # The gradient of m^2 is 2 m times that of m, which the batch estimates; the value is m^2.
    return mean.square() + 2 * mean * (batch - batch.detach())


def _mean_at_known(values: Tensor, label: Tensor, is_complete: bool) -> Tensor:
    """Mean [S] of values [S, n, C] at the known classes; see `_mean_of_known`."""
    own = at_label(values, label) if is_complete else at_known(values, label)
    return _mean_of_known(own, label, is_complete)


def _mean_of_known(values: Tensor, label: Tensor, is_complete: bool) -> Tensor:
    """Mean [S] over the records [S, n] whose label is known; 0 if none is."""
    if is_complete:
        return values.mean(1)
    is_known = label != MISSING
    return torch.where(is_known, values, 0.0).sum(1) / is_known.sum(1).clamp_min(1)
