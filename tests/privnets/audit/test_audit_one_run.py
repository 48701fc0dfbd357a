"""One-run audits against JAX-Privacy's figures, simulations and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from privnets.audit.one_run import epsilon_of_guesses, one_run_epsilon
from privnets.differential_privacy.accounting import noise_multiplier_for
from privnets.differential_privacy.dp_sgd import PrivateSchedule, train_privately
from privnets.differential_privacy.per_example import dense_gradients
from privnets.networks.training import StackedAdam
from privnets.randomness import generator


@pytest.mark.parametrize(
    ("guesses", "expected"),
    [
        ((45, 50, 100, 1e-5, 0.95), 1.3927909762894455),
        ((240, 300, 1000, 1e-5, 0.95), 1.1416994045106883),
        ((100, 100, 1000, 1e-5, 0.95), 3.465376229385335),
        ((600, 1000, 5000, 1e-6, 0.90), 0.32069627654538213),
        ((140, 200, 200, 0.0, 0.95), 0.5849182004831572),
        ((200, 250, 500, 1e-3, 0.99), 0.0),
        ((5, 10, 64, 1e-5, 0.95), 0.0),
    ],
)
def test_bounds_equal_those_of_jax_privacy(guesses, expected):
    """JAX-Privacy 2.0.0, `auditing._epsilon_one_run(0, m, guesses, correct, 1 - level, delta)`."""
    assert epsilon_of_guesses(*guesses) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(0.5, 0.7387425540141654), (1.5, 1.472737431853844), (2.5, 1.4891306546343053)],
)
def test_scores_at_a_threshold_equal_those_of_jax_privacy(threshold, expected):
    """JAX-Privacy 2.0.0, `CanaryScoreAuditor.epsilon_one_run` with `Explicit(threshold)`."""
    random = np.random.default_rng(7)
    member = random.random(400) < 0.5
    score = random.standard_normal(400) + 1.5 * member
    assert one_run_epsilon(score, member, threshold) == pytest.approx(expected, abs=1e-5)


def test_bound_holds_for_randomised_response():
    """Each coin is released, flipped with probability 1 / (1 + e^epsilon): the worst case."""
    epsilon, canaries, runs = 1.0, 300, 2000
    correct = generator(0, "response").binomial(canaries, 1 / (1 + math.exp(-epsilon)), runs)
    bounds = {c: epsilon_of_guesses(int(c), canaries, canaries, 0.0) for c in np.unique(correct)}
    values = np.array([bounds[c] for c in correct])
    # At most 5% of bounds may exceed epsilon; 6.3% is five standard errors above.
    assert (values > epsilon).mean() <= 0.063
    assert values.mean() > 0.7 * epsilon


def test_more_delta_weakens_the_bound():
    bounds = [epsilon_of_guesses(90, 100, 1000, delta) for delta in (0.0, 1e-6, 1e-4, 1e-2)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1]


@pytest.mark.parametrize(("correct", "guesses"), [(0, 0), (0, 10), (5, 10)])
def test_guesses_no_better_than_a_coin_prove_nothing(correct, guesses):
    assert epsilon_of_guesses(correct, guesses, 20) == 0


def test_the_bound_is_where_the_chance_is_the_error():
    found = epsilon_of_guesses(80, 90, 100, 0.0, 0.95)
    assert binom.sf(79, 90, 1 / (1 + math.exp(-found))) == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, 1.0], [True], 0.5), "score and member must be a vector"),
        (([0.0, 1.0], [1, 0], 0.5), "score and member must be a vector"),
        (([0.0, math.nan], [True, False], 0.5), "score must not be NaN"),
        (([0.0, 1.0], [True, False], 0.5, 1.0), "delta must be at least 0 and below 1"),
        (([0.0, 1.0], [True, False], 0.5, 0.0, 95.0), "confidence between 0 and 1"),
    ],
)
def test_wrong_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        one_run_epsilon(*arguments)


def test_more_correct_guesses_than_guesses_are_refused():
    with pytest.raises(ValueError, match=r"must not decrease.*got 5, 4 and 10"):
        epsilon_of_guesses(5, 4, 10)


def _audited_bounds(epsilon: float, seeds: int) -> list[float]:
    """Bounds from 200 canaries, far apart and with random labels, for each seed."""
    features, records, canaries, rate, steps = 500, 200, 200, 0.5, 60
    x = torch.zeros(seeds, records, features)
    y = torch.zeros(seeds, records, dtype=torch.int64)
    coins = np.zeros((seeds, canaries), dtype=bool)
    for seed in range(seeds):
        random = generator(seed, "canaries")
        rows = random.standard_normal((records, features))
        x[seed] = torch.from_numpy(rows)
        y[seed] = torch.from_numpy(random.integers(0, 2, records))
        coins[seed] = random.random(canaries) < 0.5
    # A record of zeros has no gradient: it is absent.
    present = torch.ones(seeds, records, 1)
    present[:, :canaries, 0] = torch.from_numpy(coins).float()
    noise = noise_multiplier_for(epsilon, 1e-5, rate, steps, "add_or_remove_one")
    schedule = PrivateSchedule(
        steps, rate, torch.ones(seeds), torch.full((seeds,), noise), torch.zeros(seeds)
    )

    def losses(logits, targets):
        sign = 2 * targets - 1
        return torch.nn.functional.softplus(-sign * logits[..., 0])

    optimiser = StackedAdam([torch.zeros(seeds, features, 1)], torch.full((seeds,), 0.05))
    train_privately(
        optimiser,
        dense_gradients(lambda tape, p, rows: tape.dense(rows, p[0]), losses),
        x * present,
        y,
        schedule,
        [generator(seed, "training") for seed in range(seeds)],
    )
    score = -losses(x @ optimiser.parameters[0], y)[:, :canaries].numpy()
    return [
        one_run_epsilon(each, coin, float(np.quantile(each, 0.75)))
        for each, coin in zip(score, coins, strict=True)
    ]


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 16.0])
def test_audits_of_dp_sgd_stay_below_the_accountant_in_each_of_20_seeds(epsilon):
    bounds = _audited_bounds(epsilon, 20)
    assert max(bounds) <= epsilon


def test_audits_expose_training_with_a_fraction_of_the_noise():
    """A canary audit that could not fail would prove nothing."""
    bounds = _audited_bounds(100.0, 20)
    assert np.median(bounds) > 0.5
