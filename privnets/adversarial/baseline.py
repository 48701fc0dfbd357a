"""What attackers and users get from raw records, which no releaser changes.

A baseline depends on the records and on how attackers are fitted, so every point of a sweep that
shares those shares it: it is kept on disk and computed once per seed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import torch
from numpy.typing import NDArray

from privnets.adversarial import inference
from privnets.adversarial.attackers.panel import judging
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Problem
from privnets.adversarial.records import Evidence
from privnets.data import cache

_VERSION = 1
# What raw records and the attackers' training depend on.
_FIELDS = frozenset(
    {
        "problem",
        "seed",
        "dependence",
        "train_size",
        "attack_size",
        "resolution",
        "adversary_width",
        "attack_steps",
    }
)


@dataclass(frozen=True, eq=False)
class Baseline:
    """On raw records, of one configuration's splits.

    Attributes:
        attacker: Balanced accuracy of the strongest attacker, and its standard error.
        log_utility: Log probabilities of each test record's utility label, shape [n, C]; empty
            when there is none.
    """

    attacker: tuple[float, float]
    log_utility: NDArray[np.float64]


def baselines(
    problem: Problem, configs: Sequence[AdversarialConfig], raw: Sequence[Evidence]
) -> Generator[object, None, list[Baseline]]:
    """Each configuration's baseline, pausing between attackers.

    Args:
        problem: What is released.
        configs: Of one structure.
        raw: Each one's unreleased records.
    """
    keys = [_key(problem, config) for config in configs]
    found = {key: held for key in dict.fromkeys(keys) if (held := _read(key)) is not None}
    missing = [i for i, key in enumerate(keys) if key not in found and keys.index(key) == i]
    if missing:
        made = yield from _computed(
            problem, [configs[i] for i in missing], [raw[i] for i in missing]
        )
        for i, baseline in zip(missing, made, strict=True):
            found[keys[i]] = baseline
            _write(keys[i], baseline)
    return [found[key] for key in keys]


def _computed(
    problem: Problem, configs: Sequence[AdversarialConfig], raw: Sequence[Evidence]
) -> Generator[object, None, list[Baseline]]:
    first, seeds = configs[0], [config.seed for config in configs]
    utility = yield from inference.utility(problem, configs, raw, "baseline utility")
    attackers: list[tuple[float, float]] = []
    for verdict in judging(
        raw,
        networks=problem.attacking_networks(first),
        analytic=problem.analytic_attackers(first),
        alphas=[1.0] * len(configs),
        seeds=seeds,
        attack_steps=first.attack_steps,
        inferred=[inference.labels(log_p) for log_p in utility],
    ):
        yield None
        if verdict is not None:
            key = "privacy/attacker_balanced_accuracy"
            attackers.append((verdict.metrics[key], verdict.standard_errors.get(key, math.nan)))
    return [Baseline(a, u) for a, u in zip(attackers, utility, strict=True)]


def _key(problem: Problem, config: AdversarialConfig) -> str:
    identity = {
        "version": _VERSION,
        "data": problem.fingerprint(config),
        "torch": torch.__version__,
        "scikit-learn": version("scikit-learn"),
        **config.model_dump(mode="json", include=set(_FIELDS)),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


def _read(key: str) -> Baseline | None:
    held = cache.read(cache.directory() / f"baseline-{key}")
    if held is None:
        return None
    value, error = held["attacker"].tolist()
    return Baseline((value, error), held["log_utility"])


def _write(key: str, baseline: Baseline) -> None:
    arrays = {"attacker": np.array(baseline.attacker), "log_utility": baseline.log_utility}
    cache.write(cache.directory() / f"baseline-{key}", arrays)
