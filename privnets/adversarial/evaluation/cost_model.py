"""What a game and its judging cost, roughly."""

from __future__ import annotations

import math

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.statement import Sizes
from privnets.contract import Cost

# Seconds of one core: per pass of a stack and of each member, and per multiplication in dense
# layers and in others.
_LAUNCH, _PASS, _DENSE, _MULTIPLY = 1e-3, 2e-4, 2.5e-11, 4e-11
# Per panel, per number that it reads, and per step of its networks beside their products.
_PANEL, _PANEL_NUMBER, _ATTACK_STEP = 1.0, 2.5e-6, 3e-4
# Neural attackers together cost as many of the adversary's, trained by minibatches of this size.
_ATTACKERS, _ATTACK_BATCH = 8, 128
# A GPU is idle while attackers that are no networks are fitted, and next to idle otherwise.
_NETWORKS_ON_GPU = 0.05
# Networks that a CPU trains member after member.
_ONE_BY_ONE = ("convolutional", "recurrent")


def cost(config: AdversarialConfig, sizes: Sizes) -> Cost:
    """A rough price: the game, then its judging."""
    member, shared = (passes(config) * each for each in _pass(config, sizes))
    numbers = 40 * config.batch_size * math.prod(sizes.record) * (config.adversary_steps + 1)
    memory = release_bytes(sizes) + 4 * numbers
    return Cost(member + judging_seconds(config, sizes), memory, shared)


def step_seconds(config: AdversarialConfig, sizes: Sizes, members: int) -> float:
    """One iteration of a stack on one core."""
    member, shared = _pass(config, sizes)
    return (config.adversary_steps + 1) * (shared + members * member)


def release_bytes(sizes: Sizes) -> int:
    """A member's release, and the records as they were."""
    records = sizes.attack + sizes.validation + sizes.test
    return 2 * 4 * records * math.prod(sizes.record)


def passes(config: AdversarialConfig) -> int:
    """Minibatches through the networks, those of pretraining included."""
    before = 0 if config.scenario == "joint" else config.pretrain_steps
    return before + config.steps * (config.adversary_steps + 1)


def judging_seconds(config: AdversarialConfig, sizes: Sizes, device: str = "cpu") -> float:
    """One core's seconds for the judging of a member, or a GPU's with it."""
    if config.evaluation == "exact":
        return 0.0
    records = sizes.attack + sizes.validation + sizes.test
    panel = _PANEL + records * math.prod(sizes.record) * _PANEL_NUMBER
    steps = sizes.record[0] if config.releaser == "recurrent" else 1
    learned = config.attack_steps * _ATTACK_BATCH * steps * _network_multiplications(config, sizes)
    learned *= _ATTACKERS * _product(config)
    learned += config.attack_steps * _ATTACK_STEP
    return panel + (learned if device == "cpu" else learned * _NETWORKS_ON_GPU)


def _pass(config: AdversarialConfig, sizes: Sizes) -> tuple[float, float]:
    """One core's seconds for a minibatch through all networks: each member's, and the stack's."""
    steps = sizes.record[0] if config.releaser == "recurrent" else 1
    products = config.batch_size * steps * _multiplications(config, sizes) * _product(config)
    if config.releaser in _ONE_BY_ONE:
        return _LAUNCH + _PASS + products, 0.0
    return _PASS + products, _LAUNCH


def _product(config: AdversarialConfig) -> float:
    """One core's seconds for a multiplication in the networks."""
    return _MULTIPLY if config.releaser in _ONE_BY_ONE else _DENSE


def _multiplications(config: AdversarialConfig, sizes: Sizes) -> float:
    """Of one record (or step) forward and backward through releaser and inference networks."""
    return _releaser_multiplications(config, sizes) + 2 * _network_multiplications(config, sizes)


def _releaser_multiplications(config: AdversarialConfig, sizes: Sizes) -> float:
    numbers, wide = math.prod(sizes.record), config.releaser_width
    if config.releaser == "linear":
        return 3.0 * numbers**2
    if config.releaser == "recurrent":
        return 3.0 * 32 * wide**2
    if config.releaser == "convolutional":
        return 3.0 * (_convolutions(numbers, wide // 8, wide) + 4 * wide * (wide + numbers))
    return 3.0 * (2 * numbers * wide + wide**2)


def _network_multiplications(config: AdversarialConfig, sizes: Sizes) -> float:
    numbers, narrow = math.prod(sizes.record), config.adversary_width
    if config.releaser == "recurrent":
        return 3.0 * 24 * narrow**2
    if config.releaser == "convolutional":
        return 3.0 * _convolutions(numbers, narrow, 4 * narrow)
    return 3.0 * (numbers * narrow + narrow**2)


def _convolutions(pixels: int, channels: int, units: int) -> float:
    """Two of stride 2, and a dense layer behind them."""
    return pixels * channels * (25 / 4 + 18 * channels / 16 + units / 8)
