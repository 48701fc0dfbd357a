"""Leakage as a part of the training objective, against independent optimisers and derivatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

import privnets
from privnets.contract import InvalidConfigError
from privnets.membership.models.leakage_penalty import best_shares, output_leakage, ridge_penalty
from privnets.membership.models.mlp import MlpTrainer
from privnets.membership.models.shared import make_batch
from privnets.membership.observations import Universe
from privnets.membership.outputs import TrainingDesign

EXPERIMENT = privnets.experiment("membership")
LINEAR = {"dataset": "diabetes", "model": "linear", "train_size": 40, "noise_std": 5.0}
NETWORK = {"dataset": "digits", "model": "mlp", "hidden_layers": 1, "hidden_units": 12}


@pytest.mark.parametrize("weight", [1e-3, 0.1, 10.0])
def test_shares_of_coefficients_minimise_error_plus_leakage(weight):
    """A fine search over each direction's share, of the leakage of a noisy mean."""
    random = np.random.default_rng(0)
    c, t, s = random.uniform(0.1, 3, (3, 12))
    n, sigma, decay = 30, 0.2, 0.05
    found = best_shares(c, t, s, size=n, weight_decay=decay, leakage_weight=weight, noise_std=sigma)
    for j in range(12):

        def objective(u, j=j):
            v = s[j] * u**2 / c[j] ** 2
            return c[j] * t[j] ** 2 * (1 - u) ** 2 + weight * v / ((n - 1) * v + (n * sigma) ** 2)

        most = c[j] / (c[j] + decay)
        grid = np.linspace(1e-6, most, 2001)
        start = grid[objective(grid).argmin()]
        bounds = max(1e-6, start - 2e-3), min(most, start + 2e-3)
        best = minimize_scalar(objective, bounds=bounds, method="bounded", options={"xatol": 1e-9})
        assert objective(found[j]) <= best.fun + 1e-9
        assert found[j] <= most


def test_without_a_weight_the_penalty_is_weight_decay_and_it_grows_with_the_weight():
    config = EXPERIMENT.Config(**LINEAR)
    data = (universe := Universe.load(config, "cpu")).x, universe.y
    plain = ridge_penalty(*data, 40, 0.3, 0.0, 0.0)
    torch.testing.assert_close(plain, 0.3 * torch.eye(10).double())
    small = torch.linalg.eigvalsh(ridge_penalty(*data, 40, 0.3, 1e-9, 5.0))
    torch.testing.assert_close(small, torch.full((10,), 0.3).double(), rtol=1e-3, atol=1e-3)
    weights = [ridge_penalty(*data, 40, 0.3, w, 5.0).trace() for w in (1.0, 100.0, 1e4)]
    assert 3 - 1e-9 < weights[0] < weights[1] < weights[2]  # the smallest adds nothing


def test_weighing_the_leakage_leaks_less_than_weight_decay_at_equal_error():
    """Leakage of noisy ridge regression, from whole experiments."""
    fields = {**LINEAR, "records": 60, "draws": 200, "paired": True}
    decays = [EXPERIMENT.Config(**fields, weight_decay=w) for w in (0.03, 0.1, 0.3)]
    own = EXPERIMENT.Config(**fields, leakage_weight=300.0)
    *ridge, leaking_less = [p.replicates[0].metrics for p in EXPERIMENT.run([*decays, own])]
    error, leakage = "utility/test_mse", "privacy/rho_kl"
    better = [m for m in ridge if m[error] >= leaking_less[error]]
    assert better
    assert all(m[leakage] > leaking_less[leakage] for m in better)


def test_output_leakage_is_the_divergence_of_two_gaussians():
    torch.manual_seed(0)
    member, reference = torch.randn(3, 50) * 2 + 1, torch.randn(3, 40)
    found = output_leakage(member, reference)
    for own, inside, outside in zip(found, member, reference, strict=True):
        (m1, v1), (m0, v0) = ((s.mean(), s.var(correction=0)) for s in (inside, outside))
        one = torch.distributions.Normal(m1, v1.sqrt())
        two = torch.distributions.Normal(m0, v0.sqrt())
        both = torch.distributions.kl_divergence(one, two) + torch.distributions.kl_divergence(
            two, one
        )
        torch.testing.assert_close(own, both, rtol=1e-5, atol=1e-6)
    assert float(output_leakage(reference, reference).abs().max()) < 1e-6


def test_gradients_of_the_output_leakage_equal_finite_differences_and_spare_references():
    torch.manual_seed(0)
    member = torch.randn(1, 6).double().requires_grad_()
    reference = torch.randn(1, 5).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda m: output_leakage(m, reference.detach()), member)
    output_leakage(member, reference).sum().backward()
    assert reference.grad is None


def _train(*weights, train_size=60):
    fields = {**NETWORK, "train_size": train_size, "records": 20, "draws": 32, "steps": 60}
    configs = [EXPERIMENT.Config(**fields, leakage_weight=weight) for weight in weights]
    universe = Universe.load(configs[0], "cpu")
    designs = [TrainingDesign.draw(config, universe.size) for config in configs]
    return (
        designs,
        universe,
        MlpTrainer().fit(make_batch([(d, range(2)) for d in designs], universe))[0],
    )


def test_a_network_trains_the_same_in_a_stack_of_other_weights():
    *_, together = _train(0.0, 0.3)
    torch.testing.assert_close(together[:2], _train(0.0)[-1], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(together[2:], _train(0.3)[-1], rtol=1e-3, atol=1e-4)


def test_reference_records_are_neither_members_nor_attacked():
    (design,), universe, _ = _train(0.3)
    chosen = design.references(1, universe.size)
    assert len(set(chosen)) == 60
    assert not set(chosen) & {*design.records, *design.sets[1]}


def test_weighing_the_leakage_of_outputs_hides_members():
    fields = {**NETWORK, "dataset": "diabetes", "train_size": 60, "records": 40, "draws": 32}
    configs = [EXPERIMENT.Config(**fields, steps=150, leakage_weight=w) for w in (0.0, 0.1)]
    plain, weighed = (p.replicates[0].metrics for p in EXPERIMENT.run(configs))
    assert weighed["privacy/attack/attack_p/auc"] < plain["privacy/attack/attack_p/auc"] - 0.05
    assert weighed["utility/generalization_gap"] < plain["utility/generalization_gap"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_std": 0.0}, "leakage_weight must be 0 without noise_std"),
        ({"model": "logistic", "dataset": "digits"}, "leakage_weight must be 0.0 with logistic"),
        ({**NETWORK, "train_size": 900, "noise_std": 0.0}, "train_size must be at most"),
        ({**NETWORK, "noise_std": 0.0, "epsilon": 1.0}, "leakage_weight must be 0 with epsilon"),
    ],
)
def test_weights_that_mean_nothing_are_refused(change, message):
    with pytest.raises(InvalidConfigError, match=message):
        EXPERIMENT.run([EXPERIMENT.Config(**{**LINEAR, "leakage_weight": 1.0, **change})])
