"""A pack with early stopping against the same pack without: work, and what was given up for it.

One pack of the toy game, 15 points of 4 replicates by exact information, in processor time of one
core. Both sides train the same stack by the same code; the one stops dominated points at an eighth,
a quarter and half of training. A stopped point counts as rightly stopped if, trained to its end on
the other side, another point is better in both objectives.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from tempfile import TemporaryDirectory

import torch

import privnets
from privnets import TradeoffPoint, merge_replicates
from sweeps.engine.early_stopping import StoppingRule
from sweeps.engine.pack_trainer import PackTrainer
from sweeps.planning.packing import Pack
from sweeps.planning.plan import Plan, make_plan
from sweeps.store.ledger import Ledger
from sweeps.study.loader import load
from tests.benchmarks.harness import alternate, publish

_CHANGES = ("fixed.evaluation=exact", "early_stopping=true", "claims=[]", "objectives=null")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    study = make_plan(load("toy-gaussian", [*_CHANGES, f"fixed.steps={asked.steps}"]))
    sides = {"to the end": None, "early stopping": StoppingRule.from_plan(study)}
    found: dict[str, Mapping[str, TradeoffPoint]] = {}

    def run(name: str) -> None:
        found[name] = _train_pack(study, sides[name])

    work = {name: lambda name=name: run(name) for name in sides}
    timings = alternate(work, asked.rounds, time.process_time)
    whole, early = found["to the end"], found["early stopping"]
    stopped = [name for name, point in early.items() if point.status == "stopped"]
    right = sum(_is_dominated(whole[name], whole, study) for name in stopped)
    publish(
        "early_stopping",
        [
            {
                "contestant": name,
                "steps": asked.steps,
                "rounds": asked.rounds,
                "seconds": f"{timing.median:.1f}",
                "lowest": f"{timing.low:.1f}",
                "highest": f"{timing.high:.1f}",
                "stopped": len(stopped) if sides[name] else 0,
                "rightly": right if sides[name] else 0,
                "points": len(whole),
            }
            for name, timing in timings.items()
        ],
    )


def _train_pack(study: Plan, stopping: StoppingRule | None) -> dict[str, TradeoffPoint]:
    experiment = privnets.experiment(study.study.experiment)
    pack = Pack("pack", experiment.name, tuple(study.replicates()))
    with TemporaryDirectory() as folder:
        ledger = Ledger(folder, "sweep")
        run = PackTrainer(pack, experiment, ledger, stopping=stopping)
        while not run.advance().committed:
            pass
        return {point.point_id: point for point in merge_replicates(ledger.read_points())}


def _is_dominated(point: TradeoffPoint, others: Mapping[str, TradeoffPoint], study: Plan) -> bool:
    def better(other: TradeoffPoint) -> bool:
        return all(
            (other.metrics[m] < point.metrics[m]) == (direction == "min")
            and other.metrics[m] != point.metrics[m]
            for m, direction in study.objectives.items()
        )

    return any(better(other) for other in others.values())


if __name__ == "__main__":
    main()
