"""Fronts that `FrontierSampler` must find in the simulated problems of the benchmark."""

import numpy as np
import optuna
import pytest

from benchmarks.search import SAMPLERS, simulate
from benchmarks.search_problems import PROBLEMS

SEEDS = range(10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:QMCSampler is experimental")
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_front_is_found_with_half_the_trainings_of_a_grid(name):
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        frontier, sobol = (
            [simulate(PROBLEMS[name], SAMPLERS[each](PROBLEMS[name], s), s) for s in SEEDS]
            for each in ("frontier", "sobol")
        )
    finally:
        optuna.logging.set_verbosity(verbosity)
    assert sum(outcome.volumes[128] >= 0.95 for outcome in frontier) >= 9
    assert np.median([outcome.volumes[192] for outcome in frontier]) >= 0.965
    pairs = zip(frontier, sobol, strict=True)
    assert all(mine.volumes[192] >= theirs.volumes[192] for mine, theirs in pairs)
    assert np.mean([outcome.failed for outcome in frontier]) <= 0.1
    assert min(outcome.confirmed for outcome in frontier) >= 0.93
    # 16 points, two objectives, four seeds and ten sweeps: a standard error of 0.03.
    assert abs(np.mean([outcome.bias for outcome in frontier])) <= 0.15
    assert max(outcome.seconds for outcome in frontier) <= 1.0
