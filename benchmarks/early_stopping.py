"""A pack with early stopping against the same pack without: work, and what was given up for it.

One pack, in processor time of one core: the toy game, 15 points of 4 replicates by exact
information, or digits, 12 points of 4 replicates that a judge and then attackers evaluate. Both
sides train the same stack by the same code; the one stops dominated points at an eighth, a quarter
and half of training. A stopped point counts as rightly stopped if, trained to its end on the other
side, another point is better in both objectives. `judging` is the time of the estimates at rungs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import torch

import privnets
from benchmarks.harness import alternate, publish
from privnets import TradeoffPoint, merge_replicates
from privnets.adversarial import stages
from privnets.adversarial.evaluation.interim import estimate_objectives
from privnets.statistics.estimates import Estimate
from sweeps.engine.early_stopping import StoppingRule
from sweeps.engine.pack_trainer import PackTrainer
from sweeps.planning.packing import Pack
from sweeps.planning.plan import Plan, make_plan
from sweeps.store.ledger import Ledger
from sweeps.study.loader import load

_CHANGES = {
    "toy-gaussian": ("fixed.evaluation=exact", "claims=[]", "objectives=null"),
    "digits-quick": ("fixed.panel=quick",),
}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--study", choices=_CHANGES, default="toy-gaussian")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    changes = (*_CHANGES[asked.study], "early_stopping=true", f"fixed.steps={asked.steps}")
    study = make_plan(load(asked.study, changes))
    sides = {"to the end": None, "early stopping": StoppingRule.from_plan(study)}
    found: dict[str, Mapping[str, TradeoffPoint]] = {}
    judging: dict[str, float] = {}

    def run(name: str) -> None:
        with _timed_estimates() as seconds:
            found[name] = _train_pack(study, sides[name])
        judging[name] = sum(seconds)

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
                "study": asked.study,
                "steps": asked.steps,
                "rounds": asked.rounds,
                "seconds": f"{timing.median:.1f}",
                "lowest": f"{timing.low:.1f}",
                "highest": f"{timing.high:.1f}",
                "judging": f"{judging[name]:.1f}",
                "stopped": len(stopped) if sides[name] else 0,
                "rightly": right if sides[name] else 0,
                "points": len(whole),
            }
            for name, timing in timings.items()
        ],
    )


@contextmanager
def _timed_estimates() -> Iterator[list[float]]:
    """Collects the processor time of every call that estimates a member's objectives."""
    seconds: list[float] = []

    def estimate(*args: Any) -> dict[str, Estimate]:
        start = time.process_time()
        estimates = estimate_objectives(*args)
        seconds.append(time.process_time() - start)
        return estimates

    with mock.patch.object(stages, "estimate_objectives", estimate):
        yield seconds


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
