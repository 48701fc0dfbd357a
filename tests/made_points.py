"""Points with everything in them that recording must preserve, computed from an index alone."""

from __future__ import annotations

import math

from privnets.points import Curve, Replicate, Scalar, TradeoffPoint

ADVANTAGE = "privacy/membership_advantage"
LOG_SCALED = frozenset({"weight_decay"})


def made_point(index: int, *, replicates: int = 2, failed: bool = False) -> TradeoffPoint:
    """A point of the membership experiment; its numbers have no short decimal form.

    Every third has files.
    """
    config: dict[str, Scalar] = {
        "dataset": "adult",
        "train_size": 10 * (1 + index % 5),
        "weight_decay": (0.0, 1e-6, 1e-2)[index % 3],
        "features": None if index % 2 else 5,
        "exact": index % 2 == 0,
        "note": f'it\'s "no. {index}" — λ',
    }
    made = tuple(_replicate(index, seed, failed) for seed in range(replicates))
    return TradeoffPoint(f"{index:020x}", "membership", config, made)


def made_points(count: int, *, replicates: int = 2) -> list[TradeoffPoint]:
    """Points 0 to `count` - 1."""
    return [made_point(index, replicates=replicates) for index in range(count)]


def _replicate(index: int, seed: int, failed: bool) -> Replicate:
    value = math.sin(1 + index + seed / 3)
    metrics = {
        ADVANTAGE: value,
        "privacy/rho_kl": math.nan,
        "utility/test_mse": math.inf if index == 2 else value**2,
        "privacy/attack/lira/tpr_at_fpr_0.1": abs(value) / 7,
    }
    finished = 1.7e9 + index + seed / 7
    if failed:
        return Replicate(seed, {}, failure=f"loss is NaN at step {seed}", finished_at=finished)
    return Replicate(
        seed,
        metrics,
        notes={"privacy/rho_kl": "the covariance is singular"},
        curves={"loss": Curve((0, 10, 20), (value, value / 2, value / 3))},
        artifacts=_files(index) if index % 3 == 0 else {},
        finished_at=finished,
    )


def _files(index: int) -> dict[str, bytes]:
    return {"roc.json": b"{}", "samples/0.bin": bytes([index % 256])}
