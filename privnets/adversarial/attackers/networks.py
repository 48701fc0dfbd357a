"""Neural attackers, fitted afresh to every release of a stack at once."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.attackers.names import SIDE
from privnets.adversarial.attackers.posterior import Posterior
from privnets.adversarial.attackers.rows import known_secret
from privnets.adversarial.attackers.training import (
    Labelled,
    Task,
    log_probabilities,
    own_records,
    training,
)
from privnets.adversarial.records import MISSING, Evidence, Exposure
from privnets.networks.architecture import Architecture


def fit_network(
    name: str,
    architecture: Architecture,
    evidence: Sequence[Evidence],
    seeds: Sequence[int],
    steps: int,
) -> Generator[float, None, list[Posterior]]:
    """Fit one network to each release of a stack.

    Releases are shifted and scaled by their attack split first, so that a releaser cannot hide the
    secret in a small contrast. Each network depends on its own release and seed alone.

    Args:
        name: The attacker's. Where it ends in `_side`, inputs are sequences [n, T, 1 + c] with
            the side information beside the release.
        architecture: Of one attacker; its outputs are logits.
        evidence: A release for each attacker, of equal shapes.
        seeds: One per release.
        steps: The most that training takes.

    Yields:
        The share of the work that is done.
    """
    scaled = [(_Scale(one.attack), one) for one in evidence]
    attack = own_records([_records(name, scale, one.attack) for scale, one in scaled])
    validation = own_records([_records(name, scale, one.validation) for scale, one in scaled])
    # Small data gain nothing by large minibatches, and sequences cost dearly.
    size = min(128, max(32, attack.rows.shape[1] // 8))
    task = Task(architecture, attack, validation, seeds, f"attacker:{name}", batch_size=size)
    trained = yield from training(task, steps)
    test = own_records([_records(name, scale, one.test) for scale, one in scaled])
    beliefs = (_beliefs(architecture, trained.parameters, split) for split in (validation, test))
    return [Posterior(name, *fitted) for fitted in zip(*beliefs, trained.converged, strict=True)]


class _Scale:
    """Brings an attack split to mean 0 and variance 1.

    Columns of vectors each have a scale of their own; the pixels of an image share one, so that
    they keep their proportions, and so do the steps of a sequence.
    """

    def __init__(self, attack: Exposure) -> None:
        z = _observed(attack)
        self._mean = z.mean(0)
        spread = (z - self._mean).square()
        std = (spread.mean() if z.ndim == 4 else spread.mean(0)).sqrt()
        self._std = torch.where(std > 0, std, 1)

    def __call__(self, exposure: Exposure) -> Tensor:
        """Scaled releases, 0 at absent steps, shape as given."""
        z = (exposure.z - self._mean) / self._std
        return z if exposure.present is None else torch.where(exposure.present[..., None], z, 0)


def _observed(exposure: Exposure) -> Tensor:
    """Records, or the steps of sequences that were observed, [k, ...]."""
    if exposure.present is not None:
        return exposure.z[exposure.present]
    return exposure.z.flatten(0, 1) if exposure.z.ndim == 3 else exposure.z


def _records(name: str, scale: _Scale, exposure: Exposure) -> tuple[Tensor, Tensor]:
    z = scale(exposure)
    if name.endswith(SIDE):
        if exposure.side is None:
            raise ValueError(f"{name} needs side information; the release has none.")
        z = torch.cat([z, exposure.side], -1)
    return z, known_secret(exposure)


def _beliefs(
    architecture: Architecture, parameters: Sequence[Tensor], split: Labelled
) -> list[NDArray[np.float64]]:
    """Log probabilities of each member's known secrets, [known, C]."""
    beliefs = log_probabilities(architecture, parameters, split.x, split.rows)
    known = split.label[split.rows] != MISSING
    return [b[k].double().cpu().numpy() for b, k in zip(beliefs, known, strict=True)]
