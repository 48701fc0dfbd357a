"""Networks fitted afresh to the finished releases of a stack: attackers and utility networks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.attackers import PROFILES, SIDE
from privnets.adversarial.attackers.attacker import NetworkAttacker, Posterior
from privnets.adversarial.attackers.convergence import (
    Redraw,
    TrainingTask,
    log_probabilities,
    stack_records,
    train_until_converged,
)
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackView, Evidence
from privnets.adversarial.problem import Problem
from privnets.adversarial.records import MISSING, known_secret
from privnets.adversarial.training.inference_networks import append_side, build_inference_network
from privnets.networks.layers import Architecture


class SmallNetwork(NetworkAttacker):
    """A network of the problem's own kind and width."""

    name: ClassVar[str] = "network"
    large: ClassVar[bool] = False

    def architecture(
        self, problem: Problem, config: AdversarialConfig, sees_side: bool
    ) -> Architecture:
        """The network for a problem and panel, with or without side information."""
        spec = problem.spec
        width = PROFILES[config.panel].width(spec.attacker_width)
        return build_inference_network(
            problem, config, spec.secret_classes, width, sees_side=sees_side, large=self.large
        )


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
    views = [_NetworkView.create(release, sees_side) for release in evidence]
    inputs = [view.records() for view in views]
    attack, validation, test = map(stack_records, zip(*inputs, strict=True))
    # Sequences make large minibatches slow.
    batch_size = min(64, max(32, attack.rows.shape[1] // 8))
    redraws = [view.redraw for view in views]
    purpose = f"attacker:{name}"
    task = TrainingTask(architecture, attack, validation, seeds, purpose, redraws, batch_size)
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
    profile = PROFILES[first.panel]
    width = profile.width(problem.spec.attacker_width)
    sees_side = first.settings.shows_side_information
    network = build_inference_network(problem, first, classes, width, sees_side=sees_side)
    views = [_NetworkView.create(release, sees_side) for release in evidence]
    inputs = [view.records(of_utility=True) for view in views]
    attack, validation, test = map(stack_records, zip(*inputs, strict=True))
    seeds, redraws = [c.seed for c in configs], [view.redraw for view in views]
    task = TrainingTask(network, attack, validation, seeds, purpose, redraws)
    fitted = yield from train_until_converged(task, profile.steps)
    log_p = log_probabilities(network, fitted.parameters, test.x, test.rows)
    pairs = zip(log_p.double().cpu().numpy(), fitted.remaining_gains, strict=True)
    return [FittedUtility(*pair) for pair in pairs]


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
class _NetworkView:
    """One release as inputs of a network, scaled by mean and deviation of the attack split.

    Columns of vectors have their own scales. The pixels of an image share one, so that they keep
    their proportions; so do the steps of a sequence.
    """

    release: Evidence
    sees_side: bool
    mean: Tensor
    std: Tensor

    @classmethod
    def create(cls, release: Evidence, sees_side: bool) -> _NetworkView:
        z, present = release.attack.z, release.attack.present
        if present is not None:
            z = z[present]
        elif z.ndim == 3:
            z = z.flatten(0, 1)
        mean = z.mean(0)
        squares = (z - mean).square()
        std = (squares.mean() if z.ndim == 4 else squares.mean(0)).sqrt()
        return cls(release, sees_side, mean, torch.where(std > 0, std, 1))

    @property
    def redraw(self) -> Redraw | None:
        """Inputs of the attack split with fresh noise, if its release is random."""
        if (release := self.release.redraw) is None:
            return None
        return lambda stream: self._inputs(replace(self.release.attack, z=release(stream)))

    def records(self, *, of_utility: bool = False) -> list[tuple[Tensor, Tensor]]:
        """Inputs of each split, with known secrets or with the utility labels that it must have."""
        labels = [s.utility if of_utility else known_secret(s) for s in self.release.splits]
        pairs = zip(self.release.splits, labels, strict=True)
        return [(self._inputs(split), label) for split, label in pairs if label is not None]

    def _inputs(self, split: AttackView) -> Tensor:
        """Scaled releases, 0 at absent steps, beside side information if it is seen."""
        z, seen = (split.z - self.mean) / self.std, split.present
        z = z if seen is None else torch.where(seen[..., None], z, 0)
        return append_side(z, split.side if self.sees_side else None)
