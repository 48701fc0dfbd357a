"""The experiment as a whole: stacks, definitions, exact limits on real data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import privnets
from privnets import TradeoffPoint, data
from privnets.attacks import attack_names
from privnets.contract import Stage
from privnets.membership.config import MODELS
from privnets.membership.evaluation import MetricTable, flag_beaten_bounds
from privnets.membership.observations import attacked_records
from privnets.membership.trials import AttackScore
from privnets.statistics.estimates import Estimate
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
    "linear, paired": [
        _linear(features=4, weight_decay=decay, noise_std=noise, seed=seed, paired=True)
        for decay, noise, seed in [(0.0, 0.0, 1), (0.1, 0.0, 1), (0.1, 0.2, 2), (1.0, 0.2, 1)]
    ],
    "logistic": [
        _config(dataset="digits", model="logistic", train_size=40, features=3,
                weight_decay=decay, noise_std=noise, seed=seed)
        for decay, noise, seed in [(0.01, 0.0, 1), (0.1, 0.3, 1), (0.01, 0.0, 2)]
    ],
    "mlp": [
        _config(dataset="diabetes", model="mlp", train_size=20, features=3, hidden_layers=2,
                hidden_units=8, steps=60, draws=32, weight_decay=decay, learning_rate=rate,
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
def test_a_stack_gives_the_same_results_as_separate_runs(model):
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
    """Three stages of equal size: one ends in the middle of both configurations."""
    first, *_, last = STACKS[model]
    draws = 3 * first.target_model.cpu_models // 2
    chosen = [config.model_copy(update={"draws": draws}) for config in (first, last)]
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


def test_replicates_of_a_point_differ_only_in_the_seed():
    first, second = MEMBERSHIP.run([_linear(features=3, seed=1), _linear(features=3, seed=2)])
    assert first.point_id == second.point_id
    assert first.metrics["privacy/rho_kl"] != second.metrics["privacy/rho_kl"]
    assert MEMBERSHIP.point_id(_linear(features=4)) != first.point_id


UNDEFINED = {
    "singular": ({"features": 10, "train_size": 8}, "every Gram matrix is singular", True),
    "interpolating": (
        {"features": 10, "train_size": 8, "weight_decay": 1e-9},
        "interpolates",
        True,
    ),
    "infinite": ({"features": 10, "train_size": 11}, "the covariance is infinite", False),
    "noisy": (
        {"features": 10, "train_size": 8, "noise_std": 1.0},
        "every Gram matrix is singular",
        True,
    ),
    "few draws": ({"features": 10, "draws": 28}, "raise draws", False),
    "one set only": (
        {"features": 3, "train_size": 441, "noise_std": 1e-9},
        "all but singular",
        True,
    ),
}


@pytest.mark.parametrize("case", UNDEFINED)
def test_undefined_leakage_has_a_reason(case):
    fields, reason, of_output_too = UNDEFINED[case]
    replicate = MEMBERSHIP.run([_linear(**fields)])[0].replicates[0]
    keys = ["privacy/rho_kl", "privacy/rho_mi", "bound/advantage"]
    if of_output_too:
        keys += ["privacy/rho_kl_output", "bound/advantage_output"]
    for key in keys:
        assert math.isnan(replicate.metrics[key]), key
        assert reason in replicate.notes[key]
    for name in attack_names("sweeps"):
        key = f"privacy/attack/{name}/advantage"
        reason = MODELS.get("linear").unavailable.get(name)
        assert math.isnan(replicate.metrics[key]) == (reason is not None), name
        assert replicate.notes.get(key) == reason
        assert (key in MEMBERSHIP.unsupported_objectives(_linear(**fields))) == (reason is not None)


def test_the_utility_of_other_models_is_undefined_with_the_reason():
    reasons = MEMBERSHIP.unsupported_objectives(_linear())
    assert reasons["utility/test_accuracy"] == "linear predicts numbers of diabetes"


def test_rates_that_rest_on_few_false_positives_are_undefined():
    """12 records and 64 pairs: 768 trials of outsiders, so 77, 7.7 and 0.8 false positives."""
    config = _linear(features=3)
    metrics = MEMBERSHIP.run([config])[0].replicates[0].metrics
    unsupported = MEMBERSHIP.unsupported_objectives(config)
    for name in attack_names("sweeps"):
        prefix = f"privacy/attack/{name}"
        for rate in (0.1, 0.01, 0.001):
            expected = metrics[f"privacy/expected_false_positives_at_fpr_{rate}"]
            assert expected == pytest.approx(768 * rate)
            key = f"{prefix}/tpr_at_fpr_{rate}"
            is_undefined = rate < 0.1 or name in MODELS.get("linear").unavailable
            assert math.isnan(metrics[key]) == is_undefined == (key in unsupported)
            if rate < 0.1:
                assert unsupported[key].startswith("too few non-members")


def test_trials_of_outsiders_are_as_many_as_planned():
    for configs in STACKS.values():
        config = configs[0]
        metrics = MEMBERSHIP.run([config])[0].replicates[0].metrics
        found = 10 * metrics["privacy/expected_false_positives_at_fpr_0.1"]
        info = data.info(config.dataset)
        assert found == pytest.approx(MODELS.get(config.model).non_members(config, info), rel=0.05)


def test_mutual_information_needs_more_draws_than_divergence():
    replicate = MEMBERSHIP.run([_linear(features=4, draws=64)])[0].replicates[0]
    assert not math.isnan(replicate.metrics["privacy/rho_kl"])
    assert math.isnan(replicate.metrics["privacy/rho_mi"])
    assert "80 draws" in replicate.notes["privacy/rho_mi"]


def test_online_lira_without_shadows_on_one_side_is_undefined():
    config = _config(
        dataset="digits", model="logistic", train_size=10, features=3, weight_decay=0.1,
        records=40, draws=16,
    )  # fmt: skip
    *_, last = MEMBERSHIP.stages([config])
    replicate = last.points[0].replicates[0]
    assert math.isnan(replicate.metrics["privacy/attack/lira_online/advantage"])
    assert "too few shadow models" in replicate.notes["privacy/attack/lira_online/advantage"]
    assert [p.field for p in MEMBERSHIP.invalid_fields(config)] == ["draws"]


def test_an_attack_above_its_bound_raises_the_flag():
    """Gaussian moments that understate: parameters with two values, separated without error.

    Draws with the record alternate between -1 and 1, without it between -0.9 and 0.9: the Gaussian
    divergence is small and a threshold between separates them all the same.
    """
    table = MetricTable(
        {
            "bound/advantage": 0.1,
            "bound/advantage_output": 0.2,
            "flag/attack_beats_bound": math.nan,
        },
        errors={"bound/advantage": 0.01, "bound/advantage_output": 0.01},
    )
    curve = privnets.Curve((), ())
    scores = {
        name: AttackScore(Estimate(advantage, error), Estimate(0.9, 0.01), {}, 100, curve)
        for name, advantage, error in [
            ("white_box", 0.9, 0.02),
            ("threshold_mean_loss", 0.99, 0.001),
            ("lira_online", 0.12, 0.02),
        ]
    }
    flag_beaten_bounds(table, scores)
    assert table.metrics["flag/attack_beats_bound"] == 1
    assert "white_box: 0.9000 over bound/advantage 0.1000" in table.notes["flag/attack_beats_bound"]
    for unbounded_or_within in ("threshold_mean_loss", "lira_online"):
        assert unbounded_or_within not in table.notes["flag/attack_beats_bound"]


def test_few_records_beyond_the_features_raise_a_caution():
    replicate = MEMBERSHIP.run([_linear(features=4, train_size=7)])[0].replicates[0]
    assert not math.isnan(replicate.metrics["privacy/rho_kl"])
    assert "infinite variance" in replicate.notes["privacy/rho_kl"]


def test_training_that_diverges_fails_alone():
    good, bad = (
        _config(dataset="diabetes", model="mlp", train_size=20, features=3, hidden_layers=1,
                hidden_units=4, steps=30, draws=32, weight_decay=decay, seed=1)
        for decay in (0.0, 1e300)
    )  # fmt: skip
    points = MEMBERSHIP.run([good, bad])
    assert points[0].status == "finished"
    assert points[1].status == "failed"
    assert "diverged" in (points[1].failure or "")
    _close(points[0], MEMBERSHIP.run([good])[0])


def test_an_interpolating_model_reveals_its_members():
    """Training error 0, up to rounding: both threshold attacks all but always tell a member."""
    config = _linear(features=10, train_size=8, draws=100, records=30)
    metrics = MEMBERSHIP.run([config])[0].replicates[0].metrics
    assert metrics["utility/train_mse"] < 1e-12
    assert metrics["privacy/attack/threshold_gaussian/advantage"] > 0.95
    assert metrics["privacy/attack/threshold_mean_loss/advantage"] > 0.95


def test_utility_equals_that_of_models_trained_separately():
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
    """For large weight decay, theta tends to a mean of n draws of xy: rho_KL -> p/(n - 1).

    Exactly for any law: J = (p ((n-1)/n + n/(n-1) - 2) + m (n + n^2/(n-1))/n^2)/2 for a record
    whose xy lies at squared Mahalanobis distance m, which is p on average over all records.
    """
    n, seeds = 30, range(3)
    configs = [
        MEMBERSHIP.Config(dataset="adult", model="linear", train_size=n, features=5,
                          weight_decay=1e6, records=500, draws=200, seed=seed)
        for seed in seeds
    ]  # fmt: skip
    prepared = data.prepare("adult", 5)
    moment = prepared.x * prepared.y[:, None]
    centred = moment - moment.mean(0)
    distance = np.einsum("ni,ij,nj->n", centred, np.linalg.inv(np.cov(centred.T)), centred)
    exact = (5 * ((n - 1) / n + n / (n - 1) - 2) + distance * (n + n**2 / (n - 1)) / n**2) / 2
    assert exact.mean() == pytest.approx(5 / (n - 1), rel=1e-3)
    apart = []
    for config, point in zip(configs, MEMBERSHIP.run(configs), strict=True):
        asked = attacked_records(config, len(moment))
        apart.append(point.metrics["privacy/rho_kl"] / exact[asked].mean() - 1)
    # Over seeds the ratio spreads by some 0.02.
    assert abs(np.mean(apart)) < 0.04


@requires_data("adult")
def test_adult_leaks_less_with_more_records_and_with_more_noise():
    def rho(**fields):
        config = MEMBERSHIP.Config(dataset="adult", model="linear", features=5, records=150,
                                   draws=200, **fields)  # fmt: skip
        replicate = MEMBERSHIP.run([config])[0].replicates[0]
        key = "privacy/rho_kl"
        return replicate.metrics[key], 2 * replicate.standard_errors[key]

    few, error = rho(train_size=30)
    for other, other_error in (rho(train_size=300), rho(train_size=30, noise_std=1.0)):
        assert few - error > other + other_error


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
def test_values_beyond_a_data_set_are_invalid_fields(fields, field):
    assert [p.field for p in MEMBERSHIP.invalid_fields(_linear(**fields))] == [field]
    assert MEMBERSHIP.invalid_fields(_linear(features=4)) == []


@pytest.mark.gpu
@pytest.mark.parametrize("model", STACKS)
def test_gpu_and_cpu_give_equal_metrics(model):
    for one, other in zip(
        MEMBERSHIP.run(STACKS[model], "cuda"), MEMBERSHIP.run(STACKS[model]), strict=True
    ):
        _close(one, other, tolerance=0.02 if model == "mlp" else 1e-6)


@requires_data("adult")
def test_a_heavy_tailed_mean_has_a_note():
    """Six components of Adult at n = 10: now and then a Gram matrix is all but singular."""
    config = MEMBERSHIP.Config(
        dataset="adult", model="linear", train_size=10, features=6, records=200, draws=200, seed=1
    )
    replicate = MEMBERSHIP.run([config])[0].replicates[0]
    assert "of 200 records contribute" in replicate.notes["privacy/rho_kl"]
    median = replicate.metrics["privacy/median_record_rho_kl"]
    assert replicate.metrics["privacy/rho_kl"] > 5 * median


def test_run_lists_every_invalid_field_in_one_error():
    config = _config(dataset="diabetes", model="logistic", train_size=500, features=11)
    with pytest.raises(ValueError, match="invalid configuration of 'membership'") as caught:
        MEMBERSHIP.run([config, config])
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert any("model must be linear or mlp with diabetes; got logistic." in x for x in lines)
    assert any("train_size must be at most 441" in x for x in lines)


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_fields_of_networks_do_not_distinguish_points_of_other_models(model):
    fields = {"dataset": "digits", "model": model, "train_size": 40}
    plain, other = _config(**fields), _config(**fields, hidden_units=7, steps=3, learning_rate=0.5)
    assert other.canonical() == plain
    assert other.structure() == plain.structure()
    assert MEMBERSHIP.point_id(other) == MEMBERSHIP.point_id(plain)
    assert other.model_copy(update={"model": "mlp"}).canonical().hidden_units == 7
