"""The Gaussian mixture: its records, exact measures of filters, and learned filters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from privnets import measures
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackView
from privnets.adversarial.problem import ReleaseDetails
from privnets.adversarial.problems.gaussian_mixture import GaussianMixtureProblem, dependence_of
from privnets.adversarial.records import Pool, Splits, load_pool
from privnets.adversarial.training.game import Game
from privnets.adversarial.training.releasers import build_releaser
from privnets.measures.mixture import DATA_STD
from privnets.networks.layers import stack_parameters
from privnets.randomness import generator
from tests.privnets.adversarial.releases import make_release

MIXTURE = GaussianMixtureProblem()
LN2 = math.log(2)
THETA = torch.tensor([[3.0, 0.5], [-0.2, 1.0]])


def make_config(dependence: float = 1.0, **fields: object) -> AdversarialConfig:
    problem = {"gaussian-mixture": {"dependence": dependence}}
    return AdversarialConfig.model_validate({"problem": problem, **fields})


def small(**fields: object) -> AdversarialConfig:
    return make_config(train_size=64, panel="quick", **fields)


def split_records(
    pool: Pool, splits: Splits, part: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    index = torch.from_numpy(getattr(splits, part))
    assert pool.utility is not None
    return pool.x[index], pool.secret[index], pool.utility[index]


def reference_metrics(
    configs: list[AdversarialConfig],
) -> tuple[Sequence[Mapping[str, float]], int]:
    """Reference metrics, and the number of pauses."""
    work, pauses = MIXTURE.reference_metrics(configs), 0
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return ended.value, pauses
        pauses += 1


def release_details(config: AdversarialConfig, parameters: list[torch.Tensor]) -> ReleaseDetails:
    pool, (splits,) = load_pool(MIXTURE, [config], "cpu")
    x, secret, utility = split_records(pool, splits, "test")
    (limits,), _ = reference_metrics([config])
    original, released = (AttackView(z, secret, utility) for z in (x, x + 1))
    found = MIXTURE.release_details(make_release(config, parameters, original, released))
    assert not set(limits) & set(found.metrics)
    return replace(found, metrics={**limits, **found.metrics})


@pytest.mark.parametrize("k", [0.0, 0.4, 1.0, 2.0])
def test_records_follow_the_distribution(k: float) -> None:
    """Cell counts within four standard errors; X around its bits by Kolmogorov and Smirnov."""
    pool, (splits,) = load_pool(MIXTURE, [small(dependence=k, seed=4)], "cpu")
    x, secret, utility = (part.numpy() for part in split_records(pool, splits, "test"))
    joint, count = measures.joint_us(k), len(x)
    for u, s in np.ndindex(2, 2):
        error = math.sqrt(joint[u, s] * (1 - joint[u, s]) / count)
        share = np.mean((utility == u) & (secret == s))
        assert share == pytest.approx(joint[u, s], abs=4 * error)
    apart = (x - np.stack([utility, secret], axis=1)) / DATA_STD
    assert kstest(apart[:, 0], "norm").pvalue > 1e-3
    assert kstest(apart[:, 1], "norm").pvalue > 1e-3
    assert np.corrcoef(apart.T)[0, 1] == pytest.approx(0, abs=4 / math.sqrt(count))


def test_records_depend_on_seed_and_dependence_alone() -> None:
    """Members that agree in both share records, in any stack."""
    configs = [
        small(seed=1, dependence=0.4),
        small(seed=2, dependence=0.4),
        small(seed=1, dependence=0.5),
        small(seed=1, dependence=0.4, tradeoff=0.9, noise_std=2.0),
    ]
    pool, splits = load_pool(MIXTURE, configs, "cpu")
    assert np.array_equal(splits[0].train, splits[3].train)
    whole = MIXTURE.split_sizes(make_config(train_size=64))
    assert len(pool.x) == 3 * (whole.train + whole.attack + whole.validation + whole.test)
    for config, split in zip(configs, splits, strict=True):
        alone, (own,) = load_pool(MIXTURE, [config], "cpu")
        for part in ("train", "test"):
            for here, there in zip(
                split_records(pool, split, part), split_records(alone, own, part), strict=True
            ):
                assert torch.equal(here, there)
    first, second, third = (split_records(pool, splits[i], "test")[0] for i in range(3))
    assert not torch.equal(first, second)
    assert not torch.equal(first, third)


def test_panels_judge_the_same_records() -> None:
    quick, full = (make_config(train_size=64, panel=panel) for panel in ("quick", "full"))
    records = [load_pool(MIXTURE, [config], "cpu") for config in (quick, full)]
    for part in ("train", "validation", "test"):
        (one, _, _), (other, _, _) = (split_records(p, s, part) for p, (s,) in records)
        assert torch.equal(one, other)
    few, many = (split_records(pool, splits, "attack")[0] for pool, (splits,) in records)
    assert torch.equal(few, many[: len(few)])


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"releaser": "recurrent"}, "releaser"),
        ({"train_size": None}, "train_size"),
        ({"train_size": 2**21}, "train_size"),
    ],
)
def test_unsupported_fields_of_the_mixture_are_reported(
    fields: dict[str, object], complaint: str
) -> None:
    assert [problem.field for problem in MIXTURE.invalid_fields(make_config(**fields))] == [
        complaint
    ]
    assert not MIXTURE.invalid_fields(make_config())
    assert not MIXTURE.invalid_fields(make_config(releaser="mlp"))


@pytest.mark.parametrize(("k", "expected"), [(0.0, LN2), (0.4, 0.192745), (1.0, 0.0)])
def test_the_dependence_bound_is_that_of_the_distribution(k: float, expected: float) -> None:
    bound = MIXTURE.dependence_bound(make_config(dependence=k))
    assert bound == pytest.approx(expected, abs=1e-6)


def test_a_linear_filter_is_measured_exactly() -> None:
    config = small(dependence=0.4, tradeoff=0.8, noise_std=0.5)
    found = release_details(config, [THETA])
    assert set(found.metrics) == set(MIXTURE.spec.extra_metrics)
    assert not found.notes
    exact = measures.filter_information(THETA, 0.5, measures.joint_us(0.4))
    assert found.metrics["exact/leakage"] == pytest.approx(float(exact.leakage))
    assert found.metrics["exact/censored"] == pytest.approx(float(exact.censored))
    loss = 0.2 * float(exact.censored) ** 2 + 0.8 * float(exact.leakage) ** 2
    assert found.metrics["exact/loss"] == pytest.approx(loss)
    assert found.metrics["bound/loss"] == measures.best_loss(0.4, 0.8)
    assert found.metrics["optimum/linear_loss"] == measures.best_linear_loss(0.4, 0.8, 0.5)[0]


def test_reference_metrics_do_not_depend_on_the_stack() -> None:
    knobs = [(0.4, 0.8, "squared-kl"), (0.0, 0.5, "alpha"), (1.7, 0.3, "squared-kl")]
    configs = [small(dependence=k, tradeoff=a, objective=how) for k, a, how in knobs]
    together, _ = reference_metrics(configs)
    for config, found in zip(configs, together, strict=True):
        (own,), _ = reference_metrics([config])
        assert found == pytest.approx(own, nan_ok=True, abs=1e-12)
    assert [math.isnan(found["bound/loss"]) for found in together] == [False, True, False]


def test_reference_metrics_of_a_large_stack_are_computed_with_pauses() -> None:
    """Replicates of a point share their reference metrics."""
    _, alone = reference_metrics([small(seed=seed, objective="squared-kl") for seed in range(100)])
    configs = [small(tradeoff=i / 40, objective="squared-kl") for i in range(41)]
    _, often = reference_metrics(configs)
    assert alone == 1 < often


@pytest.mark.parametrize(
    ("fields", "undefined"),
    [
        ({"releaser": "mlp"}, {"exact/leakage", "exact/censored", "exact/loss"}),
        ({"objective": "alpha"}, {"exact/loss", "bound/loss", "optimum/linear_loss"}),
    ],
)
def test_undefined_metrics_have_a_reason(fields: dict[str, object], undefined: set[str]) -> None:
    config = small(dependence=0.0, **fields)
    random = generator(0, "releaser")
    found = release_details(config, build_releaser(MIXTURE, config).initial(random))
    assert {key for key, value in found.metrics.items() if math.isnan(value)} == undefined
    assert set(found.notes) == undefined


def test_exact_curves_of_a_diverged_member_are_nan_and_others_exact() -> None:
    configs = [small(dependence=k, noise_std=s) for k, s in ((0.4, 0.5), (1.0, 1.0), (0.0, 2.0))]
    parameters = stack_parameters([[THETA], [THETA * math.inf], [2 * THETA]])
    curves = MIXTURE.exact_curves(configs, parameters)
    assert set(curves) == {"exact/leakage", "exact/censored"}
    assert curves["exact/leakage"].isnan().tolist() == [False, True, False]
    for member, theta in ((0, THETA), (2, 2 * THETA)):
        found = release_details(configs[member], [theta])
        for key, values in curves.items():
            assert float(values[member]) == pytest.approx(found.metrics[key], abs=1e-12)
    assert not MIXTURE.exact_curves([small(releaser="mlp")], parameters)


def test_learned_filters_approach_the_best_linear_filter() -> None:
    """Within 5% of its loss, or within 1e-3 if that is 0, where theta would grow without bound."""
    quick = {"steps": 600, "learning_rate": 0.1, "batch_size": 128}
    knobs = ((0.0, 0.5), (0.4, 0.8), (1.0, 0.5))
    configs = [make_config(dependence=k, tradeoff=a, **quick) for k, a in knobs]
    game = Game(MIXTURE, configs, *load_pool(MIXTURE, configs, "cpu"))
    game.advance(600)
    for member, config in enumerate(configs):
        metrics = release_details(config, game.parameters(member)).metrics
        assert metrics["bound/loss"] <= metrics["exact/loss"] + 1e-7
        assert metrics["optimum/linear_loss"] <= metrics["exact/loss"] + 1e-7
        slack = 1e-3 if dependence_of(config) == 1 else 0.0
        assert metrics["exact/loss"] <= 1.05 * metrics["optimum/linear_loss"] + slack
        curve = game.curves(member)["exact/leakage"]
        assert curve.values[-1] == pytest.approx(metrics["exact/leakage"], abs=1e-6)
