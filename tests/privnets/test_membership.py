"""The experiment as a whole: stacks, definitions, exact limits on real data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import privnets
from privnets import TradeoffPoint, data
from privnets.contract import Stage
from tests.support import requires_data

MEMBERSHIP = privnets.experiment("membership")


def _config(**fields):
    return MEMBERSHIP.Config(**{"records": 12, "draws": 64, **fields})


def _linear(**fields):
    return _config(**{"dataset": "diabetes", "model": "linear", "train_size": 30, **fields})


STACKS = {
    "linear": [
        _linear(features=4, weight_decay=decay, noise_std=noise, seed=seed)
        for decay, noise, seed in [(0.0, 0.0, 1), (0.1, 0.0, 1), (0.1, 0.2, 2), (1.0, 0.2, 1)]
    ],
    "logistic": [
        _config(dataset="digits", model="logistic", train_size=40, features=3,
                weight_decay=decay, noise_std=noise, seed=seed)
        for decay, noise, seed in [(0.01, 0.0, 1), (0.1, 0.3, 1), (0.01, 0.0, 2)]
    ],
    "mlp": [
        _config(dataset="diabetes", model="mlp", train_size=20, features=3, hidden_layers=2,
                hidden_units=8, steps=60, draws=24, weight_decay=decay, learning_rate=rate,
                noise_std=noise, seed=seed)
        for decay, rate, noise, seed in [
            (0.0, 0.01, 0.0, 1), (0.1, 0.05, 0.1, 1), (0.0, 0.01, 0.0, 2),
        ]
    ],
}  # fmt: skip


def _close(one: TradeoffPoint, other: TradeoffPoint, tolerance: float = 1e-9) -> None:
    assert one.point_id == other.point_id
    first, second = one.replicates[0], other.replicates[0]
    assert first.metrics.keys() == second.metrics.keys()
    for key, value in first.metrics.items():
        assert value == pytest.approx(second.metrics[key], rel=tolerance, abs=tolerance,
                                      nan_ok=True), key  # fmt: skip
    assert first.notes == second.notes
    assert first.curves == second.curves


@pytest.mark.parametrize("model", STACKS)
def test_a_stack_gives_what_separate_runs_give(model):
    configs = STACKS[model]
    together = MEMBERSHIP.run(configs)
    backwards = MEMBERSHIP.run(configs[::-1])[::-1]
    for config, point, other in zip(configs, together, backwards, strict=True):
        assert point.config == config.resolved()
        assert point.replicates[0].seed == config.seed
        _close(MEMBERSHIP.run([config])[0], point)
        _close(other, point)


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_a_stack_resumed_from_any_stage_ends_the_same(model):
    """48 models each: a stage ends in the middle of both configurations."""
    first, *_, last = STACKS[model]
    chosen = [config.model_copy(update={"draws": 48}) for config in (first, last)]
    whole = {p.replicates[0].seed: p for p in MEMBERSHIP.run(chosen)}
    stages: list[tuple[Stage, dict[str, torch.Tensor], int]] = []
    finished = 0
    for stage in MEMBERSHIP.stages(chosen):
        finished += len(stage.points)
        stages.append((stage, dict(stage.state()), finished))
    assert [stage.done for stage, *_ in stages] == pytest.approx([1 / 3, 2 / 3, 1.0])
    for _, state, count in stages[:-1]:
        rest = [p for s in MEMBERSHIP.stages(chosen[count:], state=state) for p in s.points]
        assert len(rest) == len(chosen) - count
        for point in rest:
            _close(point, whole[point.replicates[0].seed])


@pytest.mark.parametrize("model", STACKS)
def test_every_replicate_reports_every_key_and_a_reason_for_each_undefined_one(model):
    for point in MEMBERSHIP.run(STACKS[model]):
        replicate = point.replicates[0]
        assert tuple(sorted(replicate.metrics)) == MEMBERSHIP.metric_keys(STACKS[model][0])
        for key, value in replicate.metrics.items():
            assert not math.isinf(value), key
            if math.isnan(value):
                assert replicate.notes.get(key), key


def test_different_structures_do_not_stack():
    with pytest.raises(ValueError, match="a stack needs one structure; got 2"):
        MEMBERSHIP.run([_linear(features=2), _linear(features=3)])


def test_the_seed_alone_tells_replicates_of_a_point_apart():
    first, second = MEMBERSHIP.run([_linear(features=3, seed=1), _linear(features=3, seed=2)])
    assert first.point_id == second.point_id
    assert first.metrics["privacy/rho_kl"] != second.metrics["privacy/rho_kl"]
    assert MEMBERSHIP.point_id(_linear(features=4)) != first.point_id


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"features": 10, "train_size": 8}, "every Gram matrix is singular"),
        ({"features": 10, "train_size": 8, "weight_decay": 1e-9}, "interpolates"),
        ({"features": 10, "train_size": 11}, "the covariance is infinite"),
        ({"features": 10, "train_size": 8, "noise_std": 1.0}, "every Gram matrix is singular"),
        ({"features": 10, "draws": 28}, "raise draws"),
    ],
)
def test_leakage_without_meaning_is_undefined_with_its_reason(fields, reason):
    replicate = MEMBERSHIP.run([_linear(**fields)])[0].replicates[0]
    for key in ("privacy/rho_kl", "privacy/rho_mi", "bound/advantage",
                "privacy/attack/white_box/advantage"):  # fmt: skip
        assert math.isnan(replicate.metrics[key])
        assert reason in replicate.notes[key]
    assert not math.isnan(replicate.metrics["privacy/membership_advantage"])


def test_few_records_beyond_the_features_raise_a_caution():
    replicate = MEMBERSHIP.run([_linear(features=4, train_size=7)])[0].replicates[0]
    assert not math.isnan(replicate.metrics["privacy/rho_kl"])
    assert "infinite variance" in replicate.notes["privacy/rho_kl"]


def test_training_that_diverges_fails_alone():
    good, bad = (
        _config(dataset="diabetes", model="mlp", train_size=20, features=3, hidden_layers=1,
                hidden_units=4, steps=30, draws=16, weight_decay=decay, seed=1)
        for decay in (0.0, 1e300)
    )  # fmt: skip
    points = MEMBERSHIP.run([good, bad])
    assert points[0].status == "finished"
    assert points[1].status == "failed"
    assert "diverged" in (points[1].failure or "")
    _close(points[0], MEMBERSHIP.run([good])[0])


def test_an_interpolating_model_betrays_its_members():
    """Training error 0: the mean-loss and threshold attacks all but always tell a member."""
    config = _linear(features=10, train_size=8, draws=100, records=30)
    metrics = MEMBERSHIP.run([config])[0].replicates[0].metrics
    assert metrics["utility/train_mse"] < 1e-12
    assert metrics["privacy/attack/threshold_gaussian/advantage"] > 0.95


def test_utility_is_that_of_models_trained_one_by_one():
    """Against numpy, over the same law of training sets; tolerance is four standard errors."""
    config = _linear(features=4, train_size=20, weight_decay=0.1, records=100, draws=100)
    found = MEMBERSHIP.run([config])[0].replicates[0]
    prepared = data.prepare("diabetes", 4)
    random, test, train = np.random.default_rng(0), [], []
    for _ in range(3000):
        inside = random.permutation(len(prepared.x))[:20]
        outside = np.setdiff1d(np.arange(len(prepared.x)), inside)
        x, y = prepared.x[inside], prepared.y[inside]
        theta = np.linalg.solve(x.T @ x / 20 + 0.1 * np.eye(4), x.T @ y / 20)
        train.append(((y - x @ theta) ** 2).mean())
        test.append(((prepared.y[outside] - prepared.x[outside] @ theta) ** 2).mean())
    for key, values in (("utility/test_mse", test), ("utility/train_mse", train)):
        error = math.hypot(np.std(values) / math.sqrt(3000), found.standard_errors[key])
        assert abs(found.metrics[key] - np.mean(values)) < 4 * error


@requires_data("adult")
def test_heavy_regularisation_leaves_p_over_n_minus_1_on_adult():
    """As weight decay grows theta tends to a mean of n draws of xy: rho_KL -> p/(n - 1).

    The draws of xy are not Gaussian, which enters through a record's squared distance: the limit
    is the average over records, p/(n - 1) in all, and holds for any law.
    """
    configs = [
        MEMBERSHIP.Config(dataset="adult", model="linear", train_size=30, features=5,
                          weight_decay=1e6, records=1500, draws=200, seed=seed)
        for seed in range(3)
    ]  # fmt: skip
    point = privnets.merge_replicates(MEMBERSHIP.run(configs))[0]
    errors = [r.standard_errors["privacy/rho_kl"] for r in point.replicates]
    error = math.sqrt(sum(e**2 for e in errors)) / 3
    assert abs(point.metrics["privacy/rho_kl"] - 5 / 29) < 4 * error
    assert error < 0.02


@requires_data("adult")
def test_adult_leaks_less_with_more_records_and_with_more_noise():
    def rho(**fields):
        config = MEMBERSHIP.Config(dataset="adult", model="linear", features=5, records=300,
                                   draws=200, **fields)  # fmt: skip
        replicate = MEMBERSHIP.run([config])[0].replicates[0]
        key = "privacy/rho_kl"
        return replicate.metrics[key], 2 * replicate.standard_errors[key]

    (few, e_few), (many, e_many) = rho(train_size=30), rho(train_size=300)
    assert few - e_few > many + e_many
    (clean, e_clean), (noisy, e_noisy) = rho(train_size=30), rho(train_size=30, noise_std=1.0)
    assert clean - e_clean > noisy + e_noisy


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"train_size": 442}, "train_size"),
        ({"records": 443}, "records"),
        ({"features": 11}, "features"),
        ({"model": "logistic"}, "model"),
        ({"dataset": "digits"}, "model"),
    ],
)
def test_what_a_data_set_cannot_serve_is_named(fields, field):
    assert [p.field for p in MEMBERSHIP.problems(_linear(**fields))] == [field]
    assert MEMBERSHIP.problems(_linear(features=4)) == []


@pytest.mark.gpu
@pytest.mark.parametrize("model", STACKS)
def test_a_gpu_gives_what_a_cpu_gives(model):
    for one, other in zip(
        MEMBERSHIP.run(STACKS[model], "cuda"), MEMBERSHIP.run(STACKS[model]), strict=True
    ):
        _close(one, other, tolerance=0.02 if model == "mlp" else 1e-6)


@requires_data("adult")
def test_a_mean_that_few_records_make_says_so():
    """Six components of Adult at n = 10: now and then a Gram matrix is all but singular."""
    config = MEMBERSHIP.Config(
        dataset="adult", model="linear", train_size=10, features=6, records=200, draws=200
    )
    replicate = MEMBERSHIP.run([config])[0].replicates[0]
    assert "of 200 records make" in replicate.notes["privacy/rho_kl"]
    median = replicate.metrics["privacy/median_record_rho_kl"]
    assert replicate.metrics["privacy/rho_kl"] > 5 * median
