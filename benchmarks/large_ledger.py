"""Large ledgers of made-up membership results, written as a sweep writes them.

Run as `python -m benchmarks.large_ledger STORAGE [--points N --metrics M --rows R]` to have
one to look at.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from privnets.points import Curve, Replicate, TradeoffPoint
from sweeps.planning.plan import Plan, PlannedReplicate, create_manifest, make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest
from sweeps.study.spec import Study

SWEEP = "large"
OBJECTIVES = {"privacy/membership_advantage": "min", "utility/test_mse": "min"}
_ATTACKS = ("threshold_gaussian", "threshold_mean_loss", "lira_offline", "lira_online", "white_box")
_STEPS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400, 500, 600, 700, 850)


def large_plan(points: int, replicates: int = 8) -> Plan:
    """A plan over two swept fields; `points` is rounded to a product of two equal numbers."""
    side = max(1, round(math.sqrt(points)))
    grid = [float(value) for value in np.geomspace(1e-4, 1e2, side)]
    return make_plan(
        Study.model_validate(
            {
                "name": "large",
                "experiment": "membership",
                "fixed": {"dataset": "diabetes", "model": "linear", "train_size": 20},
                "space": {"weight_decay": {"grid": grid}, "noise_std": {"grid": grid}},
                "replicates": replicates,
                "objectives": OBJECTIVES,
            }
        )
    )


def write_large(storage: str, planned: Plan, metrics: int, rows: int, sweep: str = SWEEP) -> Ledger:
    """Write a sweep's manifest and all of its packs.

    Args:
        storage: Where sweeps are kept.
        planned: As `large_plan` makes it.
        metrics: How many a replicate has; half of them come with a standard error.
        rows: Of a pack: its replicates.
        sweep: Its name.
    """
    ledger = Ledger(storage, sweep)
    manifest = create_manifest(
        planned, sweep, command="made up", tracking_uri="sqlite:///mlflow.db"
    )
    write_manifest(ledger, manifest)
    for index, points in enumerate(packs(planned, metrics, rows)):
        ledger.write_pack(f"{index:06}", points)
    return ledger


def packs(planned: Plan, metrics: int, rows: int) -> Iterator[list[TradeoffPoint]]:
    """Yields the packs that `write_large` writes."""
    names = metric_names(metrics)
    random = np.random.default_rng(0)
    replicates = planned.replicates()
    for start in range(0, len(replicates), rows):
        part = replicates[start : start + rows]
        values = random.standard_normal((len(part), metrics))
        curves = random.random((len(part), len(_ATTACKS), len(_STEPS)))
        yield [
            _point(planned, part[i], dict(zip(names, row, strict=True)), curves[i], 1.7e9 + start)
            for i, row in enumerate(values.tolist())
        ]


def metric_names(count: int) -> list[str]:
    """The objectives, then attacks' metrics."""
    kinds = range(-(-count // len(_ATTACKS)))
    others = [f"privacy/attack/{name}/metric_{kind}" for kind in kinds for name in _ATTACKS]
    return [*OBJECTIVES, *others][:count]


def _point(
    planned: Plan,
    replicate: PlannedReplicate,
    metrics: dict[str, float],
    curves: NDArray[np.float64],
    finished_at: float,
) -> TradeoffPoint:
    errors = {key: abs(metrics[key]) / 10 for key in list(metrics)[::2]}
    made = Replicate(
        replicate.seed,
        metrics,
        errors,
        curves={
            f"roc/{name}": Curve(_STEPS, tuple(values))
            for name, values in zip(_ATTACKS, curves.tolist(), strict=True)
        },
        finished_at=finished_at,
    )
    config = replicate.config.resolved()
    return TradeoffPoint(replicate.point_id, planned.study.experiment, config, (made,))


def main() -> None:
    """Write one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("storage")
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--metrics", type=int, default=60)
    parser.add_argument("--rows", type=int, default=800)
    given = parser.parse_args()
    ledger = write_large(given.storage, large_plan(given.points), given.metrics, given.rows)
    print(f"{len(ledger.pack_ids())} packs in {ledger.directory.path}")


if __name__ == "__main__":
    main()
