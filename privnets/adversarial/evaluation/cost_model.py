"""Cost model: time and memory of a game and of its evaluation, estimated without training."""

from __future__ import annotations

import math

from privnets.adversarial.attackers import PROFILES
from privnets.adversarial.config import COPYING_RELEASERS, AdversarialConfig
from privnets.adversarial.problem import NetworkKind, Problem, SplitSizes
from privnets.contract import Cost

# Core-seconds per pass of a stack and of each member, and per multiplication in dense layers and
# in others.
_STACK_PASS, _MEMBER_PASS, _DENSE, _OTHER = 1e-3, 2e-4, 2.5e-11, 4e-11
# Core-seconds per panel, per number that it reads, and per step of its networks.
_PANEL, _PANEL_NUMBER, _ATTACK_STEP = 1.0, 2.5e-6, 3e-4
# Share of a panel's time that each doubling of the releases adds which attackers learn from.
_DRAWING = 0.4
# Neural attackers together cost this many of the smaller one, trained with this batch size for
# this many steps, of which few networks need more.
_ATTACKERS, _ATTACK_BATCH, _ATTACK_STEPS = 8, 64, 2_500
# Releasers whose layers are not dense.
_NOT_DENSE = ("convolutional", "recurrent", "unet", "fader")


def estimate_cost(problem: Problem, config: AdversarialConfig) -> Cost:
    """Rough cost of a configuration: the game, then its evaluation."""
    sizes = problem.split_sizes(config)
    seconds = _pass_seconds(config, sizes, problem.spec.network)
    is_pretrained = config.scenario != "joint" or config.releaser_name in COPYING_RELEASERS
    pretraining = config.pretrain_steps if is_pretrained else 0
    passes = pretraining + config.steps * (config.adversary_steps + 1)
    member, shared = (passes * each for each in seconds)
    numbers_per_record = 40 * math.prod(sizes.record_shape) * (config.adversary_steps + 1)
    pool = 4 * sizes.train * math.prod(sizes.record_shape)  # beside the records of a release
    memory = pool + release_bytes(sizes) + 4 * config.batch_size * numbers_per_record
    return Cost(member + evaluation_seconds(problem, config), memory, shared)


def step_seconds(
    config: AdversarialConfig, sizes: SplitSizes, network: NetworkKind, members: int
) -> float:
    """Core-seconds of one iteration of a stack; `network` is that of its problem."""
    member, shared = _pass_seconds(config, sizes, network)
    return (config.adversary_steps + 1) * (shared + members * member)


def release_bytes(sizes: SplitSizes) -> int:
    """Bytes of one member's release and of the raw records."""
    records = sizes.attack + sizes.validation + sizes.test
    return 2 * 4 * records * math.prod(sizes.record_shape)


def evaluation_seconds(problem: Problem, config: AdversarialConfig) -> float:
    """Core-seconds to evaluate one member."""
    if config.evaluation == "exact":
        return 0.0
    sizes, profile = problem.split_sizes(config), PROFILES[config.panel]
    records = min(sizes.attack, profile.records) + sizes.validation + sizes.test
    numbers = math.prod(sizes.record_shape)
    panel = _PANEL + records * numbers * _PANEL_NUMBER
    if config.noise_scale:  # other attackers than networks train on releases with other noise too
        panel *= 1 + _DRAWING * math.log2(profile.most_draws(numbers))
    steps = min(profile.steps, _ATTACK_STEPS)
    kind, width = profile.network(problem.spec)
    products = steps * _ATTACK_BATCH * _sequence_steps(config, sizes)
    networks = products * _inference_seconds(sizes, kind, width) * _ATTACKERS
    networks += steps * _ATTACK_STEP
    return panel + networks


def _pass_seconds(
    config: AdversarialConfig, sizes: SplitSizes, network: NetworkKind
) -> tuple[float, float]:
    """Core-seconds of a minibatch through all networks: per member, and per stack."""
    each = _OTHER if config.releaser_name in _NOT_DENSE else _DENSE
    releaser = each * _releaser_multiplications(config, sizes)
    inference = _inference_seconds(sizes, network, config.adversary_width)
    records = config.batch_size * _sequence_steps(config, sizes)
    products = records * (releaser + 2 * inference)
    return _MEMBER_PASS + products, _STACK_PASS


def _sequence_steps(config: AdversarialConfig, sizes: SplitSizes) -> int:
    return sizes.record_shape[0] if config.releaser_name == "recurrent" else 1


def _releaser_multiplications(config: AdversarialConfig, sizes: SplitSizes) -> float:
    """Multiplications for one record or step, forward and backward through the releaser."""
    numbers, width = math.prod(sizes.record_shape), config.releaser_width
    if config.obfuscation != "none":
        return 0.0
    if config.releaser_name == "linear":
        return 3.0 * numbers**2
    if config.releaser_name == "recurrent":
        return 3.0 * 32 * width**2
    if config.releaser_name == "convolutional":
        decoder = 4 * width * (width + numbers)
        return 3.0 * (_encoder_multiplications(numbers, width // 8, width) + decoder)
    if config.releaser_name in COPYING_RELEASERS:
        return 3.0 * numbers * (9 * width + 15 * width**2)
    return 3.0 * (2 * numbers * width + width**2)


def _inference_seconds(sizes: SplitSizes, network: NetworkKind, width: int) -> float:
    """Core-seconds for one record or step, forward and backward through one network."""
    numbers = math.prod(sizes.record_shape)
    if network == "recurrent":
        return _OTHER * 3.0 * 24 * width**2
    if network == "convolutional":
        return _OTHER * 3.0 * _encoder_multiplications(numbers, width, 4 * width)
    if network == "separable":
        return _OTHER * 3.0 * numbers * (33 * width + 3 * width**2)
    return _DENSE * 3.0 * (numbers * width + width**2)


def _encoder_multiplications(pixels: int, channels: int, units: int) -> float:
    """Multiplications of two convolutions of stride 2 and a dense layer."""
    return pixels * channels * (25 / 4 + 18 * channels / 16 + units / 8)
