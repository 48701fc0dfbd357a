"""What target models and the attacks on them cost, roughly, and how long a stack would take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from privnets.contract import Cost
from privnets.data import DatasetInfo
from privnets.membership import linear, shared
from privnets.membership.config import MembershipConfig
from privnets.membership.evaluation import replicate
from privnets.membership.logistic import NEWTON_UNKNOWNS
from privnets.membership.universe import Universe
from privnets.rehearsal import extrapolated

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
# A rehearsal asks few records (linear), takes few steps (mlp) or trains few models (logistic).
_REHEARSED_RECORDS, _REHEARSED_STEPS, _REHEARSED_SECONDS = 4, 5, 0.2


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
    return Cost(training + _scoring_seconds(config), 16 * numbers)


def rehearsed(configs: Sequence[MembershipConfig], universe: Universe, classes: int) -> float:
    """Seconds that a stack would take: a few models are trained.

    Args:
        configs: Of one structure.
        universe: The data, on the device to compute on.
        classes: Of the target, at least 1.
    """
    if configs[0].model == "linear":
        return _linear(configs, universe)
    return _shared(configs, universe, classes) + len(configs) * _scoring_seconds(configs[0])


def stack(config: MembershipConfig, universe: Universe, classes: int) -> int:
    """How many models to train at once."""
    features = universe.x.shape[1]
    if universe.x.device.type == "cpu":
        return _lasting(_STAGE_SECONDS, config, features, classes)
    widest = max(features * classes, 8 * config.hidden_units)
    return max(_CPU_STACK, min(_GPU_STACK, _GPU_NUMBERS // (config.train_size * widest)))


def by_seed(configs: Sequence[MembershipConfig]) -> list[list[MembershipConfig]]:
    """Those that share their training sets side by side, and of those the ones that share fits."""
    groups: dict[int, list[MembershipConfig]] = {}
    for config in sorted(configs, key=lambda c: (c.weight_decay, c.noise_std)):
        groups.setdefault(config.seed, []).append(config)
    return list(groups.values())


def _linear(configs: Sequence[MembershipConfig], universe: Universe) -> float:
    def study(records: int) -> None:
        asked = [config.model_copy(update={"records": records}) for config in configs]
        for group in by_seed(asked):
            for config, seen in linear.observe(group, universe):
                replicate(config, seen)

    device = str(universe.x.device)
    records = configs[0].records
    return extrapolated(study, least=_REHEARSED_RECORDS, whole=records, device=device)


def _shared(configs: Sequence[MembershipConfig], universe: Universe, classes: int) -> float:
    first, device, features = configs[0], str(universe.x.device), universe.x.shape[1]
    models = len(configs) * first.draws
    at_once = stack(first, universe, classes)
    if first.model == "logistic" and device == "cpu":
        at_once = min(at_once, _lasting(_REHEARSED_SECONDS, first, features, classes))
    at_once = min(at_once, models)
    tasks = [shared.Task.of(c, universe.size) for c in configs[: -(-at_once // first.draws)]]
    counts = [min(first.draws, at_once - i * first.draws) for i in range(len(tasks))]

    def fit(steps: int) -> None:
        short = [replace(t, config=t.config.model_copy(update={"steps": steps})) for t in tasks]
        parts = [(task, slice(0, count)) for task, count in zip(short, counts, strict=True)]
        shared.train(parts, universe, classes)

    whole = first.steps if first.model == "mlp" else 1
    return extrapolated(fit, least=_REHEARSED_STEPS, whole=whole, device=device) * models / at_once


def _lasting(seconds: float, config: MembershipConfig, features: int, classes: int) -> int:
    """How many models a CPU trains at once in so many seconds, at most; an even number."""
    fitting = int(seconds / _model_seconds(config, features, classes))
    return max(2, min(_CPU_STACK, fitting // 2 * 2))


def _scoring_seconds(config: MembershipConfig) -> float:
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
