"""Networks fitted afresh to the finished releases of a stack: attackers and utility networks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.attackers import PROFILES, SIDE
from privnets.adversarial.attackers.attacker import NetworkAttacker, Posterior
from privnets.adversarial.attackers.convergence import (
    LabelledStack,
    TrainingTask,
    log_probabilities,
    stack_records,
    train_until_converged,
)
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackView, Evidence
from privnets.adversarial.problem import Problem
from privnets.adversarial.records import MISSING, known_secret
from privnets.adversarial.training.batches import redraw_together
from privnets.adversarial.training.inference_networks import append_side, build_inference_network
from privnets.networks.convolution import ConvolutionalClassifier
from privnets.networks.layers import Architecture


class SmallNetwork(NetworkAttacker):
    """A network of the problem's own kind and width."""

    name: ClassVar[str] = "network"
    large: ClassVar[bool] = False

    def architecture(
        self, problem: Problem, config: AdversarialConfig, sees_side: bool
    ) -> Architecture:
        """The network for a problem and panel, with or without side information."""
        classes = problem.spec.secret_classes
        return _build_network(problem, config, classes, sees_side, large=self.large)


class LargeNetwork(SmallNetwork):
    """A network of twice that width, deeper or reading in both directions; or a residual one."""

    name: ClassVar[str] = "large_network"
    large: ClassVar[bool] = True


def fit_network(
    name: str,
    architecture: Architecture,
    evidence: Sequence[Evidence],
    seeds: Sequence[int],
    steps: int,
) -> Generator[float, None, list[Posterior]]:
    """Fits one network to each release of a stack.

    Releases are first standardised by their attack split, so that a releaser cannot hide the
    secret in a small contrast. Every pass over the attack split sees a fresh release of it. Each
    network depends on its own release and seed alone. With the suffix `_side` of `name`, inputs
    are sequences [n, T, 1 + c] of releases and side information. `steps` are at most taken.

    Yields:
        Share of the work done, in (0, 1].
    """
    sees_side = name.endswith(SIDE)
    views = _NetworkViews.create(evidence, sees_side)
    attack, validation, test = views.records()
    # Sequences make large minibatches slow.
    batch_size = min(64, max(32, attack.rows.shape[1] // 8))
    redraw = views.redraw, views.redrawn
    purpose = f"attacker:{name}"
    task = TrainingTask(architecture, attack, validation, seeds, purpose, *redraw, batch_size)
    fitted = yield from train_until_converged(task, steps)
    beliefs = []  # log probabilities of each member's known secrets, on validation and on test
    for split in (validation, test):
        log_p = log_probabilities(architecture, fitted.parameters, split.x, split.rows)
        known = split.label[split.rows] != MISSING
        pairs = zip(log_p, known, strict=True)
        beliefs.append([p[is_known].double().cpu().numpy() for p, is_known in pairs])
    is_frozen = [draws < 2 for draws in fitted.draws]
    others = fitted.remaining_gains, fitted.draws, is_frozen, fitted.curves
    rows = zip(*beliefs, *others, strict=True)
    return [Posterior(name, *each) for each in rows]


def fit_utility(
    problem: Problem,
    configs: Sequence[AdversarialConfig],
    evidence: Sequence[Evidence],
    purpose: str,
) -> Generator[float, None, list[FittedUtility]]:
    """Fits fresh utility networks to released or raw records, as attackers are fitted.

    Their size and training are those of the panel. They learn from the whole attack split: from few
    raw records a network would infer less than from a release that kept what the game learned from
    all. `purpose` names the random draws.

    Yields:
        Share of the work done, in (0, 1].
    """
    classes, first = problem.spec.utility_classes, configs[0]
    if not classes:
        return [FittedUtility(np.zeros((0, 0)))] * len(configs)
    sees_side = first.settings.shows_side_information
    network = _build_network(problem, first, classes, sees_side)
    views = _NetworkViews.create(evidence, sees_side)
    attack, validation, test = views.records(of_utility=True)
    seeds, redraw = [config.seed for config in configs], (views.redraw, views.redrawn)
    task = TrainingTask(network, attack, validation, seeds, purpose, *redraw)
    fitted = yield from train_until_converged(task, PROFILES[first.panel].steps)
    log_p = log_probabilities(network, fitted.parameters, test.x, test.rows)
    pairs = zip(log_p.double().cpu().numpy(), fitted.remaining_gains, strict=True)
    return [FittedUtility(*pair) for pair in pairs]


def _build_network(
    problem: Problem,
    config: AdversarialConfig,
    classes: int,
    sees_side: bool,
    *,
    large: bool = False,
) -> Architecture:
    """The network of a panel that infers one of `classes` labels."""
    kind, width = PROFILES[config.panel].network(problem.spec)
    if kind == problem.spec.network:
        return build_inference_network(
            problem, config, classes, width, sees_side=sees_side, large=large
        )
    channels, side, _ = problem.split_sizes(config).record_shape
    return ConvolutionalClassifier(side, width, classes, large, channels)


@dataclass(frozen=True, eq=False)
class FittedUtility:
    """A fresh utility network's log probabilities on test, [n, C]; [0, 0] without a utility label.

    `remaining_gain` is that of `Posterior`.
    """

    log_p: NDArray[np.float64]
    remaining_gain: float = 0.0

    @property
    def likeliest_labels(self) -> NDArray[np.int64] | None:
        """Labels with the highest probability, shape [n]; None without a utility label."""
        return self.log_p.argmax(-1) if self.log_p.size else None


@dataclass(frozen=True, eq=False)
class _NetworkViews:
    """Releases of a stack as inputs of networks, scaled by mean and deviation of the attack split.

    Columns of vectors have their own scales. The pixels of an image share one, so that they keep
    their proportions; so do the steps of a sequence. Means and deviations have the shape [M, ...].
    """

    releases: Sequence[Evidence]
    sees_side: bool
    mean: Tensor
    std: Tensor

    @classmethod
    def create(cls, releases: Sequence[Evidence], sees_side: bool) -> _NetworkViews:
        scales = []
        for attack in (release.attack for release in releases):
            z = attack.z
            if attack.present is not None:
                z = z[attack.present]
            elif z.ndim == 3:
                z = z.flatten(0, 1)
            mean = z.mean(0)
            squares = (z - mean).square()
            std = (squares.mean() if z.ndim == 4 else squares.mean(0)).sqrt()
            scales.append((mean, torch.where(std > 0, std, 1)))
        return cls(releases, sees_side, *map(torch.stack, zip(*scales, strict=True)))

    @property
    def redrawn(self) -> list[int]:
        """Members whose releases are random."""
        return [i for i, release in enumerate(self.releases) if release.redraw is not None]

    def redraw(self, members: Sequence[int], stream: str) -> Tensor:
        """Inputs of the attack split with fresh noise; see `InputRedraw`."""
        redraws = [self.releases[i].redraw for i in members]
        z = redraw_together([redraw for redraw in redraws if redraw is not None], stream)
        return self._inputs([self.releases[i].attack for i in members], z, members)

    def records(self, *, of_utility: bool = False) -> list[LabelledStack]:
        """Each split, with known secrets or with the utility labels that it must have."""
        stacks = []
        for splits in zip(*(release.splits for release in self.releases), strict=True):
            labels = [s.utility if of_utility else known_secret(s) for s in splits]
            inputs = [self._inputs([s], s.z[None], [i])[0] for i, s in enumerate(splits)]
            pairs = zip(inputs, labels, strict=True)
            stacks.append(stack_records([(x, label) for x, label in pairs if label is not None]))
        return stacks

    def _inputs(self, splits: Sequence[AttackView], z: Tensor, members: Sequence[int]) -> Tensor:
        """Scaled releases [m, n, ...], 0 at absent steps, beside side information if it is seen."""
        mean, std = (
            scale[list(members)].view(len(z), *[1] * (z.ndim - scale.ndim), *scale.shape[1:])
            for scale in (self.mean, self.std)
        )
        z = (z - mean) / std
        present = [split.present for split in splits if split.present is not None]
        if present:
            z = torch.where(torch.stack(present)[..., None], z, 0)
        side = [split.side for split in splits if split.side is not None and self.sees_side]
        return append_side(z, torch.stack(side) if side else None)
