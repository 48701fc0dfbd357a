"""Networks fitted afresh to the finished releases of a stack: attackers and utility networks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.attackers import SIDE
from privnets.adversarial.attackers.attacker import NetworkAttacker, Posterior
from privnets.adversarial.attackers.convergence import (
    LabelledStack,
    TrainingTask,
    log_probabilities,
    stack_records,
    train_until_converged,
)
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Problem
from privnets.adversarial.records import MISSING, Evidence, Exposure, known_secret
from privnets.adversarial.training.inference_networks import append_side, build_inference_network
from privnets.networks.layers import Architecture


class SmallNetwork(NetworkAttacker):
    """A network like the adversary."""

    name: ClassVar[str] = "network"
    large: ClassVar[bool] = False

    def architecture(
        self, problem: Problem, config: AdversarialConfig, sees_side: bool
    ) -> Architecture:
        """The adversary's network or an enlarged one, with or without side information."""
        classes = problem.spec.secret_classes
        return build_inference_network(
            problem, config, classes, sees_side=sees_side, large=self.large
        )


class LargeNetwork(SmallNetwork):
    """A network of twice the adversary's width, deeper or reading in both directions."""

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
    secret in a small contrast. Each network depends on its own release and seed alone.

    Args:
        name: Name in metric keys; with the suffix `_side` inputs are sequences [n, T, 1 + c] of
            releases and side information.
        architecture: Network of one attacker; its outputs are logits.
        evidence: Releases, of equal shapes.
        seeds: One per release.
        steps: Largest number of training steps.

    Yields:
        Share of the work done, in (0, 1].
    """
    inputs = [_network_inputs(name, release) for release in evidence]
    attack, validation, test = map(stack_records, zip(*inputs, strict=True))
    # Small data gain nothing from large minibatches, and sequences make them slow.
    batch_size = min(128, max(32, attack.rows.shape[1] // 8))
    task = TrainingTask(
        architecture, attack, validation, seeds, f"attacker:{name}", batch_size=batch_size
    )
    fitted = yield from train_until_converged(task, steps)
    beliefs = (_beliefs(architecture, fitted.parameters, split) for split in (validation, test))
    return [Posterior(name, *each) for each in zip(*beliefs, fitted.converged, strict=True)]


def fit_utility(
    problem: Problem,
    configs: Sequence[AdversarialConfig],
    evidence: Sequence[Evidence],
    purpose: str,
) -> Generator[float, None, list[NDArray[np.float64]]]:
    """Fits fresh utility networks to released or raw records, as attackers are fitted.

    `purpose` names the random draws.

    Yields:
        Share of the work done, in (0, 1].

    Returns:
        Log probabilities of the utility label on test, shape [n, C] each; [0, 0] without a label.
    """
    classes, first = problem.spec.utility_classes, configs[0]
    if not classes:
        return [np.zeros((0, 0))] * len(configs)
    network = build_inference_network(problem, first, classes, sees_side=first.side_information)
    inputs = [[_utility_records(split) for split in release.splits] for release in evidence]
    attack, validation, test = map(stack_records, zip(*inputs, strict=True))
    task = TrainingTask(network, attack, validation, [c.seed for c in configs], purpose)
    fitted = yield from train_until_converged(task, first.attack_steps)
    log_p = log_probabilities(network, fitted.parameters, test.x, test.rows)
    return list(log_p.double().cpu().numpy())


def _standardise(release: Evidence) -> list[Tensor]:
    """Releases of each split, scaled by mean and variance of the attack split; 0 at absent steps.

    Columns of vectors have their own scales. The pixels of an image share one, so that they keep
    their proportions; so do the steps of a sequence.
    """
    z = _observed_values(release.attack)
    mean = z.mean(0)
    squares = (z - mean).square()
    std = (squares.mean() if z.ndim == 4 else squares.mean(0)).sqrt()
    std = torch.where(std > 0, std, 1)
    scaled = [((split.z - mean) / std, split.present) for split in release.splits]
    return [z if seen is None else torch.where(seen[..., None], z, 0) for z, seen in scaled]


def _observed_values(exposure: Exposure) -> Tensor:
    """Records, or the observed steps of sequences, [k, ...]."""
    if exposure.present is not None:
        return exposure.z[exposure.present]
    return exposure.z.flatten(0, 1) if exposure.z.ndim == 3 else exposure.z


def _network_inputs(name: str, release: Evidence) -> list[tuple[Tensor, Tensor]]:
    """Inputs and known secrets of each split."""
    sides = [split.side if name.endswith(SIDE) else None for split in release.splits]
    inputs = map(append_side, _standardise(release), sides)
    return list(zip(inputs, map(known_secret, release.splits), strict=True))


def _utility_records(exposure: Exposure) -> tuple[Tensor, Tensor]:
    assert exposure.utility is not None
    return exposure.z, exposure.utility


def _beliefs(
    architecture: Architecture, parameters: Sequence[Tensor], split: LabelledStack
) -> list[NDArray[np.float64]]:
    """Log probabilities of each member's known secrets, [known, C]."""
    log_p = log_probabilities(architecture, parameters, split.x, split.rows)
    is_known = split.label[split.rows] != MISSING
    return [p[k].double().cpu().numpy() for p, k in zip(log_p, is_known, strict=True)]
