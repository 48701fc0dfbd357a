"""Fresh utility networks, fitted to a finished release as attackers are."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.attackers.training import (
    Task,
    log_probabilities,
    own_records,
    training,
)
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Problem
from privnets.adversarial.records import Evidence, Exposure


def utility(
    problem: Problem,
    configs: Sequence[AdversarialConfig],
    evidence: Sequence[Evidence],
    purpose: str,
) -> Generator[object, None, list[NDArray[np.float64]]]:
    """Train on the attack split, stop by validation, and tell of test.

    Args:
        problem: What is released.
        configs: Of one structure.
        evidence: Each one's records, released or raw.
        purpose: Of the random draws.

    Returns:
        Log probabilities of the utility label on test, shape [n, C] each; [0, 0] without a label.
    """
    first, architecture = configs[0], problem.utility(configs[0])
    if architecture is None:
        return [np.zeros((0, 0))] * len(configs)
    splits = {
        name: own_records([_labelled(getattr(one, name)) for one in evidence])
        for name in ("attack", "validation", "test")
    }
    seeds = [config.seed for config in configs]
    task = Task(architecture, splits["attack"], splits["validation"], seeds, purpose)
    trained = yield from training(task, first.attack_steps)
    test = splits["test"]
    found = log_probabilities(architecture, trained.parameters, test.x, test.rows)
    return list(found.double().cpu().numpy())


def labels(log_p: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """The likeliest utility label of each record; None without any."""
    return log_p.argmax(-1) if log_p.size else None


def _labelled(exposure: Exposure) -> tuple[Tensor, Tensor]:
    assert exposure.utility is not None
    return exposure.z, exposure.utility
