"""Search algorithms on simulated trade-offs: hypervolume against the number of trainings.

Every search proposes packs of 16 with two in flight, and each training has one seed, whose noise
is in its values. `at 64` and so on are hypervolumes of the noiseless values of all trained points,
as shares of that of a noiseless grid of about 400 points. `confirmed` is that of 16 points chosen
to be trained again with four fresh seeds: on the front of posterior means by `frontier`, of the
values seen by the others. `bias seen` is by how much the values seen overstate these points, and
`bias` by how much the means of the fresh seeds do, in standard deviations of one seed. Rows are
medians over seeds, and the lowest.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.samplers import BaseSampler, GridSampler, NSGAIISampler, QMCSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState

from benchmarks.harness import publish
from benchmarks.search_problems import PROBLEMS, Problem
from sweeps import FrontierSampler
from sweeps.planning.frontier.volume import (
    find_front_box,
    select_points,
    spread_rays,
)

PACK: Final = 16
IN_FLIGHT: Final = 2
TRAININGS: Final = 192
CONFIRMED: Final = 16
REPLICATES: Final = 4
STEPS: Final = (64, 128, 192)

SAMPLERS: Final[Mapping[str, Callable[[Problem, int], BaseSampler]]] = {
    "frontier": lambda problem, seed: FrontierSampler(seed),
    "grid": lambda problem, seed: GridSampler(problem.grid_axes, seed=seed),
    "sobol": lambda problem, seed: QMCSampler(seed=seed, scramble=True),
    "tpe": lambda problem, seed: TPESampler(seed=seed),
    "nsga2": lambda problem, seed: NSGAIISampler(seed=seed, population_size=24),
}


@dataclass(frozen=True)
class Outcome:
    """One simulated search.

    Attributes:
        volumes: Number of trainings to the share of the grid's hypervolume.
        failed: Share of failed trainings.
        seconds: Processor time of the slowest pack of proposals.
        confirmed: Share of the grid's hypervolume that the chosen points have.
        bias_seen: Standard deviations by which values seen overstate the chosen points.
        bias: The same of the means of fresh seeds.
    """

    volumes: Mapping[int, float]
    failed: float
    seconds: float
    confirmed: float
    bias_seen: float
    bias: float


def simulate(problem: Problem, sampler: BaseSampler, seed: int) -> Outcome:
    """Searches a problem, chooses points of the front, and trains them with fresh seeds."""
    signs = np.array([-1.0, 1.0])
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
    random = np.random.default_rng((seed, 1))
    packs: deque[list[Trial]] = deque()
    seconds, volumes, asked = 0.0, {}, 0
    for told in range(PACK, TRAININGS + 1, PACK):
        while asked < TRAININGS and len(packs) < IN_FLIGHT:
            start = time.process_time()
            packs.append([study.ask(problem.space) for _ in range(PACK)])
            seconds, asked = max(seconds, time.process_time() - start), asked + PACK
        for trial in packs.popleft():
            if (values := problem.values(trial.params)) is None:
                study.tell(trial, state=TrialState.FAIL)
            else:
                noise = problem.noise_std * random.standard_normal(2)
                study.tell(trial, (np.array(values) + noise).tolist())
        if told in STEPS:
            volumes[told] = problem.hypervolume([t.params for t in _complete(study)])
    chosen = _choose(study)
    truth = np.array([problem.values(trial.params) for trial in chosen])
    seen = np.array([trial.values for trial in chosen])
    fresh = truth + problem.noise_std * random.standard_normal((REPLICATES, *truth.shape))
    return Outcome(
        volumes,
        1 - len(_complete(study)) / TRAININGS,
        seconds,
        problem.hypervolume([trial.params for trial in chosen]),
        float((signs * (seen - truth) / problem.noise_std).mean()),
        float((signs * (fresh.mean(axis=0) - truth) / problem.noise_std).mean()),
    )


def _complete(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])


def _choose(study: optuna.Study) -> list[FrozenTrial]:
    """Points of the front to confirm, at most 16."""
    if isinstance(study.sampler, FrontierSampler):
        numbers = study.sampler.estimated_front(study, CONFIRMED)
        return [study.get_trials(deepcopy=False)[number] for number in numbers]
    trials = _complete(study)
    values: NDArray[np.float64] = np.array([t.values for t in trials]) * [1.0, -1.0]
    reach = find_front_box(values).reach(values, spread_rays(2, 512))
    return [trials[place] for place in select_points(reach, CONFIRMED)]


def _row(name: str, problem: str, outcomes: Sequence[Outcome]) -> dict[str, object]:
    def text(values: Sequence[float]) -> str:
        return f"{np.median(values):.3f} [{min(values):.3f}]"

    volumes = {f"at {n}": text([o.volumes[n] for o in outcomes]) for n in STEPS}
    return {
        "problem": problem,
        "contestant": name,
        "rounds": len(outcomes),
        **volumes,
        "confirmed": text([o.confirmed for o in outcomes]),
        "bias seen": f"{np.mean([o.bias_seen for o in outcomes]):.2f}",
        "bias": f"{np.mean([o.bias for o in outcomes]):.2f}",
        "failed": f"{np.mean([o.failed for o in outcomes]):.3f}",
        "slowest pack": f"{max(o.seconds for o in outcomes):.2f}",
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="seeds of every search")
    parser.add_argument("--only", default=",".join(SAMPLERS), help="searches, by comma")
    asked = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rows = []
    for problem_name, problem in PROBLEMS.items():
        for name in asked.only.split(","):
            outcomes = [
                simulate(problem, SAMPLERS[name](problem, seed), seed)
                for seed in range(asked.rounds)
            ]
            rows.append(_row(name, problem_name, outcomes))
    publish("search", rows)


if __name__ == "__main__":
    main()
