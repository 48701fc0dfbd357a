"""Differentially private target models in the experiment."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import privnets
from privnets import measures
from privnets.contract import InvalidConfigError
from privnets.differential_privacy.accounting import (
    PrivateTraining,
    composed_epsilon,
    noise_multiplier_for,
)
from privnets.membership import guarantee as guarantees
from privnets.membership.config import MECHANISM
from privnets.membership.guarantee import guarantee_of

EXPERIMENT = privnets.experiment("membership")
SMALL = {"dataset": "digits", "train_size": 60, "features": 4, "records": 20, "draws": 32}
OUTPUT = {**SMALL, "model": "logistic", "weight_decay": 0.1}
STEPS = {**SMALL, "model": "mlp", "hidden_layers": 1, "hidden_units": 8, "steps": 30}


def _config(**fields):
    return EXPERIMENT.Config(**fields)


def _run(*configs):
    return [point.replicates[0] for point in EXPERIMENT.run(configs)]


@pytest.fixture(scope="module")
def private_replicates():
    fields = ({**OUTPUT, "epsilon": 2.0}, {**OUTPUT, "epsilon": 50.0})
    steps = ({**STEPS, "epsilon": 2.0}, {**STEPS, "epsilon": 50.0, "clip": 0.5, "seed": 3})
    return {
        "output": ([_config(**each) for each in fields], _run(*(_config(**f) for f in fields))),
        "steps": ([_config(**each) for each in steps], _run(*(_config(**f) for f in steps))),
    }


@pytest.mark.parametrize("kind", ["output", "steps"])
def test_private_points_report_epsilon_its_lower_bound_and_the_bound_on_attacks(
    private_replicates, kind
):
    configs, replicates = private_replicates[kind]
    for config, replicate in zip(configs, replicates, strict=True):
        metrics = replicate.metrics
        assert metrics["privacy/epsilon"] == pytest.approx(config.epsilon, rel=0.01)
        assert metrics["privacy/epsilon"] <= config.epsilon
        assert metrics["privacy/epsilon_lower_bound"] <= config.epsilon
        assert metrics["flag/epsilon_contradicted"] == 0
        assert metrics["flag/attack_beats_bound"] == 0
        limit = float(measures.privacy_advantage_bound(config.epsilon, config.delta))
        assert metrics["bound/advantage_dp"] <= limit
        tighter = np.nanmin([metrics["bound/advantage_dp"], metrics["bound/advantage_rho_kl"]])
        assert metrics["bound/advantage"] == tighter
        noise, rate, steps = (metrics[key] for key in MECHANISM)
        training = PrivateTraining(noise, rate, round(steps))
        alone = composed_epsilon({training: 1}, config.delta, config.neighbours)
        assert alone == pytest.approx(metrics["privacy/epsilon"], rel=2e-3)
        assert "delta 1e-05; neighbours: replace one record" in replicate.notes["privacy/epsilon"]
    assert ("Poisson" in replicates[0].notes["privacy/epsilon"]) == (kind == "steps")


@pytest.mark.parametrize("kind", ["output", "steps"])
def test_private_points_do_not_depend_on_their_stack(private_replicates, kind):
    configs, replicates = private_replicates[kind]
    for config, stacked in zip(configs, replicates, strict=True):
        (alone,) = _run(config)
        for key in ("utility/test_accuracy", "privacy/rho_kl_output", "bound/advantage"):
            assert alone.metrics[key] == pytest.approx(
                stacked.metrics[key], rel=1e-3, abs=0.01, nan_ok=True
            )


def test_more_epsilon_gives_more_accuracy(private_replicates):
    for kind in ("output", "steps"):
        low, high = (r.metrics["utility/test_accuracy"] for r in private_replicates[kind][1])
        assert high > low + 0.05


def test_points_without_epsilon_have_no_guarantee():
    (replicate,) = _run(_config(**OUTPUT))
    for key in ("privacy/epsilon", "privacy/epsilon_lower_bound", "flag/epsilon_contradicted"):
        assert math.isnan(replicate.metrics[key])
        assert replicate.notes[key] == "training is not differentially private"


def test_missing_noise_contradicts_epsilon(monkeypatch):
    """Noise of a thousandth of what epsilon needs, as by a wrong sensitivity."""
    right = guarantees.guarantee_of
    monkeypatch.setattr(
        guarantees,
        "guarantee_of",
        lambda config: replace(right(config), noise=right(config).noise / 1000),
    )
    weak = {**OUTPUT, "train_size": 20, "records": 20, "draws": 400, "weight_decay": 0.01}
    (replicate,) = _run(_config(**weak, epsilon=0.5))
    assert replicate.metrics["flag/epsilon_contradicted"] == 1
    assert replicate.metrics["privacy/epsilon_lower_bound"] > 0.5
    assert "attacks show an epsilon of at least" in replicate.notes["flag/epsilon_contradicted"]


def test_the_training_loss_is_no_evidence_against_epsilon():
    """Parameters are noise; with the exact training loss, the lower bound would be 0.45."""
    tiny = {**OUTPUT, "train_size": 4, "records": 100, "draws": 400}
    (replicate,) = _run(_config(**tiny, epsilon=0.001))
    metrics, strongest = replicate.metrics, "privacy/membership_advantage"
    assert abs(metrics[strongest]) < 4 * replicate.standard_errors[strongest]
    assert metrics["privacy/epsilon_lower_bound"] <= 0.001
    assert metrics["flag/epsilon_contradicted"] == 0
    assert not math.isnan(metrics["privacy/attack/threshold_mean_loss/advantage"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight_decay": 0.0}, "weight_decay must be above 0 with output perturbation"),
        ({"noise_std": 0.5}, "noise_std must be 0 with epsilon"),
        ({"model": "linear", "dataset": "diabetes"}, "dataset must be a data set of classes"),
    ],
)
def test_values_without_a_guarantee_are_refused(change, message):
    with pytest.raises(InvalidConfigError, match=message):
        EXPERIMENT.run([_config(**{**OUTPUT, "epsilon": 1.0, **change})])


def test_a_delta_that_needs_no_noise_is_refused():
    """A record is in one of 5 batches of rate 0.01 with probability 0.049."""
    with pytest.raises(ValueError, match=r"delta must be below 0\.04901"):
        noise_multiplier_for(1.0, 0.1, 0.01, 5)
    schedule = {"sample_rate": 0.01, "steps": 5, "delta": 0.1}
    with pytest.raises(InvalidConfigError, match=r"delta must be below 0\.04901"):
        EXPERIMENT.run([_config(**{**STEPS, "epsilon": 1.0, **schedule})])
    assert noise_multiplier_for(1.0, 0.048, 0.01, 5) > 0


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 1.0},
        {"clip": 0.0},
        {"sample_rate": 1.5},
        {"epsilon": 0.0},
        {"sampling": "shuffled"},
        {"neighbours": "group"},
    ],
)
def test_values_out_of_range_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        _config(**{**STEPS, "epsilon": 1.0, **change})


def test_private_and_other_points_share_no_stack():
    assert _config(**STEPS).structure() != _config(**STEPS, epsilon=1.0).structure()
    many = [_config(**STEPS, epsilon=1.0 + i, clip=1.0 + i, delta=1e-6 * (1 + i)) for i in range(2)]
    assert many[0].structure() == many[1].structure()
    bounds = [_config(**OUTPUT, epsilon=1.0, clip=1.0 + i) for i in range(2)]
    assert bounds[0].structure() != bounds[1].structure()


@pytest.mark.parametrize(
    ("fields", "redundant"),
    [
        (OUTPUT, {"delta", "neighbours", "mechanism", "clip", "sample_rate", "steps"}),
        ({**OUTPUT, "epsilon": 1.0}, {"sample_rate", "steps", "learning_rate"}),
        ({**STEPS, "epsilon": 1.0}, {"mechanism"}),
        ({**OUTPUT, "epsilon": 1.0, "mechanism": "dp_sgd"}, {"hidden_units", "hidden_layers"}),
    ],
)
def test_fields_without_effect_are_redundant(fields, redundant):
    found = _config(**fields).redundant_fields()
    assert redundant <= found
    assert "epsilon" not in found


@pytest.mark.parametrize(
    "fields", [OUTPUT, STEPS, {**SMALL, "dataset": "adult", "model": "linear", "weight_decay": 0.1}]
)
def test_guarantees_for_both_kinds_of_neighbours(fields):
    strict = guarantee_of(_config(**fields, epsilon=1.0))
    loose = guarantee_of(_config(**fields, epsilon=1.0, neighbours="add_or_remove_one"))
    assert strict.replace_one_epsilon == pytest.approx(strict.epsilon, rel=1e-9)
    assert loose.noise < strict.noise
    assert 1.5 < loose.replace_one_epsilon < 2.5
    for each in (strict, loose):
        limit = float(measures.privacy_advantage_bound(each.replace_one_epsilon, 1e-5))
        assert each.advantage < limit
    assert loose.advantage > strict.advantage
