"""Epsilon of having searched: counts, assumptions, and numbers of the library's accountants."""

from __future__ import annotations

import math
from pathlib import Path

from stored_sweeps import write_sweep

import sweeps
from privnets.differential_privacy.accounting import (
    PrivateTraining,
    composed_epsilon,
    selected_epsilon,
)
from sweeps.analysis.remarks import search_privacy

NOISE = [(1.0, 2.0), (10.0, 0.8)]
METRICS = [(epsilon, noise, 0.1, 100.0) for epsilon, noise in NOISE]
OBJECTIVES = {
    "privacy/epsilon": "min",
    "mechanism/noise_multiplier": "max",
    "mechanism/sample_rate": "min",
    "mechanism/steps": "min",
}
FIXED = {"dataset": "digits", "model": "logistic", "train_size": 50, "mechanism": "dp_sgd"}
SPACE = {"epsilon": {"grid": [1.0, 10.0]}}


def _sentences(storage: Path, metrics=METRICS, space=SPACE, fixed=FIXED, **more) -> list[str]:
    write_sweep(storage, "one", OBJECTIVES, metrics, space=space, fixed=fixed, **more)
    return search_privacy(sweeps.open_result("one", storage=str(storage)))


def test_a_grid_composes_over_settings_and_over_replicates(tmp_path: Path) -> None:
    (sentence,) = _sentences(tmp_path, replicates=3)
    kinds = [PrivateTraining(noise, 0.1, 100) for _, noise in NOISE]
    single, every = (
        composed_epsilon(dict.fromkeys(kinds, count), 1e-5, "replace_one") for count in (1, 3)
    )
    assert f"{single:.4g} for one training of each of 2 settings" in sentence
    assert f"{every:.4g} for all 6 trainings" in sentence
    assert "delta 1e-05, neighbours: replace one record" in sentence
    assert 10 < single < every


def test_a_random_search_may_select_among_a_random_number_of_trainings(tmp_path: Path) -> None:
    fixed = {**FIXED, "neighbours": "add_or_remove_one"}
    _, sentence = _sentences(
        tmp_path,
        fixed=fixed,
        space={"epsilon": {"uniform": [1.0, 10.0]}},
        search={"algorithm": "random", "num_points": 2},
    )
    kinds = [PrivateTraining(noise, 0.1, 100) for _, noise in NOISE]
    for name, shape in (("Poisson", math.inf), ("geometric", 1.0)):
        bound = selected_epsilon(kinds, 2.0, shape, 1e-5, "add_or_remove_one")
        assert f"{bound:.4g} ({name})" in sentence
    assert "with mean 2" in sentence


def test_a_search_with_a_training_that_is_not_private_has_no_epsilon(tmp_path: Path) -> None:
    metrics = [METRICS[0], (math.nan,) * 4]
    (sentence,) = _sentences(tmp_path, metrics)
    assert sentence == (
        "The search as a whole has no epsilon: 1 of 2 points was trained without differential "
        "privacy."
    )


def test_a_search_over_delta_has_no_epsilon(tmp_path: Path) -> None:
    space = {"delta": {"grid": [1e-6, 1e-5]}}
    (sentence,) = _sentences(tmp_path, space=space, fixed={**FIXED, "epsilon": 1.0})
    assert sentence.endswith("its points differ in delta or neighbours.")


def test_a_sweep_without_privacy_says_nothing(tmp_path: Path) -> None:
    metrics = [(math.nan,) * 4] * 2
    fixed = {"dataset": "digits", "model": "logistic"}
    assert _sentences(tmp_path, metrics, {"train_size": {"grid": [50, 60]}}, fixed) == []
