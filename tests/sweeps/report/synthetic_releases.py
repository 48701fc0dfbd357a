"""Made-up sweeps of the adversarial experiment: real images, numbers of real shapes invented."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from synthetic_sweep import SyntheticSweep

from privnets.points import Curve, Replicate, TradeoffPoint
from sweeps.study.spec import Study

ATTACKERS = ("network", "large_network", "trees", "neighbours", "logistic")
STRONGEST, FLOOR = "privacy/attacker_balanced_accuracy", "floor/attacker_balanced_accuracy"
IMAGES = {STRONGEST: "min", "utility/accuracy": "max"}
POWER = {STRONGEST: "min", "utility/normalized_error": "min"}
DEPENDENCE = "problem.gaussian-mixture.dependence"
SIDE_INFORMATION = "problem.eco.side_information"
TOY = {"privacy/leakage": "min", "utility/censored": "min"}


def build_sweep(
    study: Mapping[str, Any], objectives: Mapping[str, str], points: Sequence[TradeoffPoint]
) -> SyntheticSweep:
    content = {"experiment": "adversarial", "replicates": 4, **study}
    return SyntheticSweep(
        Study.model_validate(content),
        points,
        sweep=f"{content['name']}-synthetic",
        objectives=dict(objectives),
        log_fields=frozenset({"privacy_weight"}),
    )


def image_sweep(
    alphas: Sequence[float] = (0.5, 1.0, 2.0, math.inf),
    gradients: Sequence[str] = ("posterior", "label"),
    weights: Sequence[float] = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0),
    seeds: int = 4,
) -> SyntheticSweep:
    space = {
        "gradient": {"choice": list(gradients)},
        "alpha": {"grid": list(alphas)},
        "privacy_weight": {"grid": list(weights)},
    }
    points = []
    for gradient in gradients:
        for alpha in alphas:
            for weight in weights:
                config = {
                    "problem": "digits", "objective": "alpha", "alpha": alpha,
                    "gradient": gradient, "privacy_weight": weight,
                }  # fmt: skip
                points.append(_point(config, [_image_replicate(config, s) for s in range(seeds)]))
    return build_sweep({"name": "digits-alpha", "space": space}, IMAGES, points)


def power_sweep(
    alphas: Sequence[float] = (0.5, 1.0), weights: Sequence[float] = (0.0, 0.3, 1.0, 3.0, 10.0)
) -> SyntheticSweep:
    space = {
        "alpha": {"grid": list(alphas)},
        SIDE_INFORMATION: {"choice": [False, True]},
        "privacy_weight": {"grid": list(weights)},
    }
    points = []
    for alpha in alphas:
        for side in (False, True):
            for weight in weights:
                config = {
                    "problem": "eco", "alpha": alpha, SIDE_INFORMATION: side,
                    "privacy_weight": weight,
                }  # fmt: skip
                points.append(_point(config, [_power_replicate(config, s) for s in range(4)]))
    return build_sweep({"name": "eco-alpha", "space": space}, POWER, points)


def toy_sweep(
    tradeoffs: Sequence[float] = (0.1, 0.5, 0.8), dependences: Sequence[float] = (0.0, 0.4, 1.0)
) -> SyntheticSweep:
    space = {"tradeoff": {"grid": list(tradeoffs)}, DEPENDENCE: {"grid": list(dependences)}}
    points = []
    for tradeoff in tradeoffs:
        for dependence in dependences:
            config = {
                "problem": "gaussian-mixture", "objective": "squared-kl", "tradeoff": tradeoff,
                DEPENDENCE: dependence, "noise_std": 1.0,
            }  # fmt: skip
            points.append(_point(config, [_toy_replicate(config, s) for s in range(4)]))
    return build_sweep({"name": "toy-gaussian", "space": space}, TOY, points)


def with_artifact(point: TradeoffPoint, name: str, content: bytes | None) -> TradeoffPoint:
    """The point with another file in its first replicate, or without it."""
    first, *others = point.replicates
    files = {key: value for key, value in first.artifacts.items() if key != name}
    if content is not None:
        files[name] = content
    return replace(point, replicates=(replace(first, artifacts=files), *others))


def with_metrics(point: TradeoffPoint, **changes: float) -> TradeoffPoint:
    """The point with metrics of every replicate set, `__` standing for `/`."""
    found = {key.replace("__", "/"): value for key, value in changes.items()}
    return replace(
        point,
        replicates=tuple(replace(r, metrics={**r.metrics, **found}) for r in point.replicates),
    )


def _point(config: Mapping[str, Any], replicates: Sequence[Replicate]) -> TradeoffPoint:
    name = sha256(str(sorted(config.items())).encode()).hexdigest()[:20]
    return TradeoffPoint(name, "adversarial", config, tuple(replicates))


def _noise(config: Mapping[str, Any], seed: int) -> NDArray[np.float64]:
    numbers = [round(1000 * float(v)) for v in config.values() if isinstance(v, float) and v < 1e9]
    return np.random.default_rng([seed, len(str(config)), *numbers]).normal(0, 1, 16)


def _attacker_metrics(
    strongest: float, floor: float, noise: NDArray[np.float64], baseline: float
) -> dict[str, float]:
    weaker = np.abs(noise[: len(ATTACKERS)]) * 0.02
    weaker[int(abs(noise[6]) * 10) % 2] = 0
    return {
        STRONGEST: strongest,
        FLOOR: floor,
        "floor/attainable": floor,
        "floor/prior": 0.5,
        "floor/utility_label": floor,
        "floor/side_information": math.nan,
        "baseline/attacker_balanced_accuracy": baseline,
        "diagnostic/adversary_balanced_accuracy": max(0.5, strongest - 0.08),
        "flag/attacker_below_floor": float(strongest < floor),
        "flag/attacker_not_converged": 0.0,
        **{
            f"privacy/attacker/{name}/balanced_accuracy": strongest - gap
            for name, gap in zip(ATTACKERS, weaker, strict=True)
        },
    }


def _image_replicate(config: Mapping[str, Any], seed: int) -> Replicate:
    noise, weight, alpha = _noise(config, seed), config["privacy_weight"], config["alpha"]
    strength = weight / (weight + 2 / (0.5 + min(alpha, 8.0) / 4))
    lag = 0.75 if config["gradient"] == "posterior" else 1.0
    strongest = 0.565 + 0.36 * (1 - lag * strength) ** 1.5 + 0.008 * noise[7]
    if config["gradient"] == "label" and weight >= 30:
        strongest = 0.54 + 0.01 * noise[7]
    metrics = {
        **_attacker_metrics(strongest, 0.562, noise, 0.931),
        "utility/accuracy": 0.982 - 0.06 * strength**2 + 0.003 * noise[8],
        "baseline/utility_accuracy": 0.985,
    }
    files = {"release.safetensors": _images(lag * strength)} if seed == 0 else {}
    return Replicate(seed, metrics, artifacts=files, finished_at=1.7e9 + seed)


@cache
def _digits() -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    from sklearn.datasets import load_digits

    data = load_digits()
    images, digits = data.images / 16, data.target
    ink = images.sum((1, 2))
    secret = np.array([ink[i] > np.median(ink[digits == digits[i]]) for i in range(len(ink))])
    return images, digits, secret


@cache
def _images(strength: float) -> bytes:
    images, digits, secret = _digits()
    rows = [
        np.flatnonzero((digits == d) & (secret == s))[3] for d in range(10) for s in (False, True)
    ]
    means = np.stack([images[digits == d].mean(0) for d in range(10)])
    released = (1 - strength) * images[rows] + strength * means[digits[rows]]
    tensors = {
        "original": images[rows][:, None].astype(np.float32),
        "released": released[:, None].astype(np.float32),
        "secret": secret[rows].astype(np.int64),
        "utility": digits[rows].astype(np.int64),
    }
    return save(tensors)


def _power_replicate(config: Mapping[str, Any], seed: int) -> Replicate:
    noise, weight = _noise(config, seed), config["privacy_weight"]
    strength = weight / (weight + 1.5 / config["alpha"])
    floor = 0.578 if config[SIDE_INFORMATION] else 0.5
    strongest = floor + (0.86 - floor) * (1 - strength) + 0.012 * noise[7]
    metrics = {
        **_attacker_metrics(strongest, floor, noise, 0.861),
        "utility/normalized_error": max(0.01 + 0.55 * strength + 0.01 * noise[8], 0.01),
    }
    files = {"week.safetensors": _week(strength)} if seed == 0 else {}
    return Replicate(seed, metrics, artifacts=files, finished_at=1.7e9 + seed)


@cache
def _week(strength: float, days: int = 7, steps: int = 24) -> bytes:
    random = np.random.default_rng(5)
    hour = np.arange(steps) * 24 / steps
    home = (hour < 8) | (hour > 17.5)
    secret = np.tile(home, (days, 1)).astype(np.int64)
    secret[5:] = 1
    secret[5, 10:16] = 0
    base = 120 + 250 * np.exp(-((hour - 19) ** 2) / 6) + 150 * np.exp(-((hour - 7) ** 2) / 2)
    original = base * (0.4 + secret) + random.gamma(2, 40, (days, steps))
    released = (
        (1 - strength) * original + strength * original.mean() + random.normal(0, 15, (days, steps))
    )
    present = np.ones((days, steps), np.uint8)
    present[2, 9:15] = 0
    secret[2, 9:15] = -1
    secret[3, 12:] = -1
    tensors = {
        "original": np.where(present, original, 0).astype(np.float32),
        "released": released.astype(np.float32),
        "secret": secret,
        "present": present,
        "day": np.arange(15510, 15510 + days),
    }
    return save(tensors)


def _toy_replicate(config: Mapping[str, Any], seed: int) -> Replicate:
    from privnets.measures.best_release import release_boundary

    noise, a = _noise(config, seed), config["tradeoff"]
    leakage, censored = release_boundary(config[DEPENDENCE], 501)
    best = int(np.argmin((1 - a) * censored**2 + a * leakage**2))
    exact = float(leakage[best]) + 0.004, float(censored[best]) + 0.006
    progress = 1 - np.exp(-np.arange(41) / 8)
    bound = float(leakage[0])
    paths = {
        "exact/leakage": 0.05 + (exact[0] - 0.05) * progress + 0.3 * progress * (1 - progress),
        "exact/censored": 0.67 + (exact[1] - 0.67) * progress,
    }
    metrics = {
        "privacy/leakage": exact[0] + 0.006 * noise[0] - 0.004,
        "utility/censored": exact[1] + 0.008 * noise[1],
        "exact/leakage": exact[0],
        "exact/censored": exact[1],
        "exact/loss": (1 - a) * exact[1] ** 2 + a * exact[0] ** 2,
        "bound/release": bound,
        "bound/loss": (1 - a) * censored[best] ** 2 + a * leakage[best] ** 2,
        "optimum/linear_loss": 0.98 * ((1 - a) * exact[1] ** 2 + a * exact[0] ** 2),
        STRONGEST: 0.5 + exact[0] / 2,
        FLOOR: 0.5,
    }
    curves = {
        key: Curve(tuple(range(0, 2050, 50)), tuple(values.tolist()))
        for key, values in paths.items()
    }
    return Replicate(seed, metrics, curves=curves, finished_at=1.7e9 + seed)
