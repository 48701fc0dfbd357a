"""What target models and the attacks on them cost, roughly, and how many to train at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from privnets.contract import Cost
from privnets.data import DatasetInfo
from privnets.membership.config import MembershipConfig

NEWTON_UNKNOWNS: Final = 128
"""A Newton step in so many unknowns still costs less than the descent that it saves."""

# Seconds of one core: per index gathered and per cubed feature solved (linear), per multiplication
# (networks and Newton steps), per record and class of a descent, per trial and attack.
_GATHER, _SOLVE, _MULTIPLY, _DESCENT, _TRIAL = 1.2e-8, 2.5e-9, 4e-11, 4e-6, 4e-7
_NEWTON_STEPS = 10
# Models trained at once: on a CPU more would leave the cache and make stages long; on a GPU fewer
# would leave it idle. Two at least, as products of one matrix take other kernels than of several
# and would round otherwise.
_CPU_STACK, _GPU_STACK = 32, 2048
_STAGE_SECONDS = 5.0
_GPU_NUMBERS = 2**28


def cost(config: MembershipConfig, info: DatasetInfo) -> Cost:
    """A rough price: training, then five attacks on every trial."""
    features = config.features or info.attributes
    if config.model == "linear":
        models = 2 * config.draws * config.records
        gathered = models / 2 * config.train_size * _GATHER * (1 + features**2 / 30)
        seconds = gathered + models * (features**3 * _SOLVE + 5 * _TRIAL)
        return Cost(seconds, models * 8 * (features**2 + 30))
    classes = info.classes if info.task == "multiclass" else 1
    numbers = config.train_size * (features + 8 * max(config.hidden_units, classes)) * _CPU_STACK
    numbers += config.draws * (config.train_size * 4 + config.records * 40)
    training = config.draws * _model_seconds(config, features, classes)
    return Cost(training + scoring_seconds(config), 16 * numbers)


def stack(config: MembershipConfig, features: int, classes: int, device: str) -> int:
    """How many models to train at once.

    Args:
        config: Theirs.
        features: Columns of the data.
        classes: Of the target, at least 1.
        device: The kind of device that trains them.
    """
    if device == "cpu":
        return lasting(_STAGE_SECONDS, config, features, classes)
    widest = max(features * classes, 8 * config.hidden_units)
    return max(_CPU_STACK, min(_GPU_STACK, _GPU_NUMBERS // (config.train_size * widest)))


def by_seed(configs: Sequence[MembershipConfig]) -> list[list[MembershipConfig]]:
    """Those that share their training sets side by side, and of those the ones that share fits."""
    groups: dict[int, list[MembershipConfig]] = {}
    for config in sorted(configs, key=lambda c: (c.weight_decay, c.noise_std)):
        groups.setdefault(config.seed, []).append(config)
    return list(groups.values())


def lasting(seconds: float, config: MembershipConfig, features: int, classes: int) -> int:
    """How many models a CPU trains at once in so many seconds, at most; an even number."""
    fitting = int(seconds / _model_seconds(config, features, classes))
    return max(2, min(_CPU_STACK, fitting // 2 * 2))


def scoring_seconds(config: MembershipConfig) -> float:
    """One core's, for the attacks on all models."""
    return config.draws * config.records * 5 * _TRIAL


def _model_seconds(config: MembershipConfig, features: int, classes: int) -> float:
    """One core's, for one model of a stack."""
    size = config.train_size
    if config.model == "mlp":
        units, layers = config.hidden_units, config.hidden_layers
        weights = features * units + (layers - 1) * units**2 + units * classes
        return config.steps * (size * weights * 6 * _MULTIPLY + 2e-5)
    unknowns = features * classes
    if unknowns <= NEWTON_UNKNOWNS:
        return _NEWTON_STEPS * (1e-5 + unknowns**2 * (2.5 * size + 200) * _MULTIPLY)
    # The less regularised, the longer the way down.
    longer = min(10.0, max(1.0, math.sqrt(1e-2 / max(config.weight_decay, 1e-9))))
    return size * classes * _DESCENT * features / 16 * longer
