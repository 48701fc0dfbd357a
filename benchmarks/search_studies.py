"""The search `frontier` on real studies, at most at a quarter of the trainings of their grids.

`grid` runs a packaged study as it is. `frontier` searches the same ranges, with intervals in place
of listed values: half of its trainings search, the others confirm points with four fresh seeds
each. `plane` is the toy at a dependence of 0.4, over 48 weights. `volume` is the hypervolume of the
true means, as `Result.hypervolume` estimates it, with its 95% interval; the reference is the worst
point of the grid. Of the toy the best linear filters are known, and `of truth` is the share of
their hypervolume. It trains 300 steps instead of 2,000. `replicates` are those that results rest
on: of a confirmed point the fresh seeds alone.
Another round has other seeds.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import torch

import sweeps
import tracking
from benchmarks.harness import publish
from benchmarks.toy import DEPENDENCE
from privnets import measures
from sweeps.analysis.pareto import worst_values
from sweeps.study.loader import load

_REPLICATES: Final = 4


@dataclass(frozen=True)
class Contest:
    """A packaged study, and the space that `frontier` searches in place of its grid.

    Attributes:
        trainings: A quarter of those of the grid.
        changes: Changes of the study, for both.
        true_volume: Hypervolume of the best releases for a reference; None if unknown.
    """

    study: str
    space: Mapping[str, Any]
    trainings: int
    changes: tuple[str, ...] = ()
    true_volume: Callable[[Mapping[str, float]], float] | None = None


_STEPS: Final = "fixed.steps=300"
_PLANE: Final = 0.4
_WEIGHTS: Final = np.linspace(0.1, 0.8, 48).round(4).tolist()


def _plane_volume(reference: Mapping[str, float]) -> float:
    """Hypervolume of the best linear filters at one dependence."""
    _, filters = measures.best_linear_loss(_PLANE, np.array(_WEIGHTS))
    joint = measures.joint_us(torch.tensor(_PLANE, dtype=torch.float64))
    information = measures.filter_information(torch.tensor(filters), 1.0, joint)
    values = {"exact/leakage": information.leakage, "exact/censored": information.censored}
    return sweeps.hypervolume(pd.DataFrame(values), dict.fromkeys(values, "min"), reference)


CONTESTS: Final = {
    "toy": Contest(
        "toy-gaussian-exact",
        {"tradeoff": {"uniform": [0.1, 0.8]}, DEPENDENCE: {"uniform": [0.0, 1.0]}},
        trainings=64,
        changes=(_STEPS,),
        # Where the bits are independent, a release may show all of one and nothing about the other.
        true_volume=lambda reference: math.prod(reference.values()),
    ),
    "plane": Contest(
        "toy-gaussian-exact",
        {"tradeoff": {"uniform": [0.1, 0.8]}},
        trainings=48,
        changes=(
            _STEPS,
            f"fixed.{DEPENDENCE}={_PLANE}",
            f"space={{tradeoff: {{grid: {_WEIGHTS}}}}}",
        ),
        true_volume=_plane_volume,
    ),
    "quickstart": Contest(
        "quickstart",
        {"train_size": {"range": [40, 120]}, "weight_decay": {"loguniform": [0.01, 10.0]}},
        trainings=48,
        changes=(
            "space={train_size: {grid: [40, 50, 60, 80, 100, 120]}, "
            "weight_decay: {grid: [0.01, 0.1, 1.0, 10.0]}}",
            "fixed={dataset: digits, model: logistic, features: 3, draws: 896, records: 20}",
            "claims=[]",
        ),
    ),
}


def compete(name: str, seed: int, storage: str) -> list[dict[str, object]]:
    """Runs a study's grid and the search; returns a row for each."""
    contest = CONTESTS[name]
    common = [*contest.changes, f"fixed.seed={1000 * seed}"]
    search = {
        "algorithm": "frontier",
        "num_points": contest.trainings // 2,
        "confirm": contest.trainings // 2 // _REPLICATES,
        "seed": seed,
    }
    changes = [f"space={dict(contest.space)}", f"search={search}", f"replicates={_REPLICATES}"]
    results = {}
    for contestant, own in (("grid", []), ("frontier", changes)):
        results[contestant] = sweeps.run(
            load(contest.study, [*common, *own]),
            name=f"{name}-{contestant}-{seed}",
            storage=storage,
            tracking_uri=tracking.create(f"sqlite:///{storage}/mlflow.db"),
        )
    reference = worst_values(results["grid"].points, results["grid"].objectives)
    truth = math.nan if contest.true_volume is None else contest.true_volume(reference)
    rows = []
    for contestant, result in results.items():
        volume = result.hypervolume(reference=reference)
        rows.append(
            {
                "study": name,
                "contestant": contestant,
                "rounds": 1,
                "seed": seed,
                "replicates": len(result.replicates),
                "points of front": len(result.front()),
                "volume": f"{volume.value:.4g} [{volume.low:.4g}, {volume.high:.4g}]",
                "of truth": f"{volume.value / truth:.3f}",
            }
        )
    return rows


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="seeds of every sweep")
    parser.add_argument("--only", default=",".join(CONTESTS), help="studies, by comma")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as storage:
        rows = [
            row
            for name in asked.only.split(",")
            for seed in range(asked.rounds)
            for row in compete(name, seed, storage)
        ]
    publish("search_studies", rows)


if __name__ == "__main__":
    main()
