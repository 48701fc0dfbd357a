"""Guarantee of a private configuration: its noise, what that implies, and what attacks show of it.

Training sets of this experiment have a fixed, public size. So membership of a record means that it
replaces another one, and bounds on attacks are those of `replace_one`. With `add_or_remove_one`,
epsilon hides whether a record takes part or has no influence; bounds follow from the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch import Tensor

from privnets import data, measures
from privnets.differential_privacy.accounting import (
    Neighbours,
    PrivateTraining,
    advantage_bound,
    epsilon_spent,
    noise_multiplier_for,
)
from privnets.differential_privacy.sensitivity import logistic_sensitivity, ridge_sensitivity
from privnets.membership.config import MembershipConfig
from privnets.membership.models import GRADIENT_TOLERANCE, model_of
from privnets.statistics.roc import ScoredTrials


@dataclass(frozen=True)
class Guarantee:
    """Privacy that the noise of a configuration proves.

    Attributes:
        noise: Standard deviation of the noise on parameters, or the noise multiplier of DP-SGD.
        training: Noise, rate and steps, from which a search's epsilon is composed.
        epsilon: For the neighbours of the configuration, at its delta.
        replace_one_epsilon: For replaced records, at the same delta.
        advantage: Largest advantage of any attack that sees everything that is released.
        assumption: Why the guarantee holds, in words.
    """

    noise: float
    training: PrivateTraining
    epsilon: float
    replace_one_epsilon: float
    advantage: float
    assumption: str


_cached_epsilon = lru_cache(maxsize=4096)(epsilon_spent)


def guarantee_of(config: MembershipConfig) -> Guarantee:
    """Returns the guarantee of a configuration with `epsilon`.

    DP-SGD is that of Abadi et al. (arXiv 1607.00133). Noise on the minimiser is that of the
    analytic Gaussian mechanism (arXiv 1805.06530).
    """
    assert config.epsilon is not None
    epsilon, delta = config.epsilon, config.delta
    if config.private_mechanism == "dp_sgd":
        schedule = config.sample_rate, model_of(config).steps(config)
        noise = noise_multiplier_for(epsilon, delta, *schedule, config.neighbours)
        relations: tuple[Neighbours, ...] = (config.neighbours, "replace_one")
        spent, replaced = (_cached_epsilon(noise, *schedule, delta, r) for r in relations)
        sampling = f"batches are Poisson samples of rate {config.sample_rate:g}; PLD accountant"
        return Guarantee(
            noise,
            PrivateTraining(noise, *schedule),
            spent,
            replaced,
            advantage_bound(noise, *schedule),
            _describe(config, sampling),
        )
    sensitivity = _sensitivity(config, config.neighbours)
    noise = float(measures.gaussian_mechanism_sigma(epsilon, delta, sensitivity))
    of_replaced = _sensitivity(config, "replace_one")
    # A replaced record counts as one removed and one added.
    moves = 2 if config.neighbours == "replace_one" else 1
    return Guarantee(
        noise,
        PrivateTraining(moves * noise / sensitivity),
        epsilon,
        _gaussian_epsilon(noise / of_replaced, delta),
        float(measures.gaussian_noise_advantage_bound(of_replaced, noise)),
        _describe(config, f"L2 sensitivity {sensitivity:.3g}; analytic Gaussian mechanism"),
    )


def parameter_noise(config: MembershipConfig) -> float:
    """Standard deviation of the Gaussian noise that is added to trained parameters."""
    if config.private_mechanism != "output_perturbation":
        return config.noise_std
    return guarantee_of(config).noise


def _sensitivity(config: MembershipConfig, neighbours: Neighbours) -> float:
    size, decay = config.train_size, config.weight_decay
    if config.model == "linear":
        return ridge_sensitivity(config.clip, 1.0, size, decay, neighbours)
    info = data.info(config.dataset)
    unknowns = (config.features or info.attributes) * info.classes
    error = GRADIENT_TOLERANCE * math.sqrt(unknowns)
    return logistic_sensitivity(config.clip, info.classes, size, decay, neighbours, error)


def _gaussian_epsilon(noise: float, delta: float) -> float:
    """Smallest epsilon of a Gaussian release with sensitivity 1; inverts its delta."""
    from scipy.optimize import brentq  # slow to load, and only private models need it

    def excess(epsilon: float) -> float:
        return float(measures.gaussian_mechanism_delta(epsilon, noise, 1.0)) - delta

    most = 1 / (2 * noise**2) + math.sqrt(2 * math.log(1 / delta)) / noise
    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, most))


def _describe(config: MembershipConfig, reason: str) -> str:
    neighbours = config.neighbours.replace("_", " ")
    return f"delta {config.delta:g}; neighbours: {neighbours} record; {reason}"


def epsilon_lower_bound(
    scores: Sequence[Tensor], member: Tensor, delta: float, confidence: float
) -> float:
    """Lower bound on the epsilon of training, for replaced records.

    On each half of the records, the best attack and threshold come from the other half. The two
    bounds by Clopper-Pearson limits share the error (`privnets.statistics.roc.epsilon_bounds`).

    Args:
        scores: Of each attack, larger for more likely members, shape [R, J].
        member: Whether the record was in the training set, shape [R, J].
        confidence: Probability with which the bound holds, in (0, 1).

    Returns:
        At least 0.
    """
    inside = member.T.cpu().numpy()
    trials = [ScoredTrials(score.T.cpu().numpy(), inside) for score in scores]
    is_even = np.arange(inside.shape[1]) % 2 == 0
    level = (1 + confidence) / 2
    bounds = []
    for half in (is_even, ~is_even):
        chosen = [each.select(~half).epsilon_threshold(delta, level) for each in trials]
        best = int(np.argmax([bound for bound, _ in chosen]))
        bounds.append(trials[best].select(half).epsilon_at(chosen[best][1], delta, level))
    return max(bounds)
