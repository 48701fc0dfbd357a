"""Attacks and their scores against closed forms and slow definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from sklearn.metrics import roc_auc_score, roc_curve

from privnets.membership import attacks
from privnets.membership.attacks import FALSE_POSITIVE_RATES, Guesses, Trials, score_guesses


def _trials(inside: np.ndarray, outside: np.ndarray, *, two_sided: bool = True) -> Trials:
    """Signals of models with the record (columns on the right) and without it."""
    signal = torch.from_numpy(np.concatenate([outside, inside], axis=1))
    draws = inside.shape[1]
    column = torch.arange(2 * draws)
    return Trials(
        member=(column >= draws).expand_as(signal),
        fold=(column % draws >= draws // 2).long(),
        signal=signal,
        error=signal,
        loss=signal.square(),
        train_loss=torch.ones_like(signal),
        two_sided=two_sided,
    )


def _random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def _advantage(guesses: Guesses, trials: Trials) -> float:
    return score_guesses(guesses, trials.member, shared_models=False).advantage


@pytest.mark.parametrize(("inside", "outside"), [(1.0, 2.0), (0.3, 0.31), (1.0, 30.0)])
def test_the_threshold_is_where_two_centred_densities_cross(inside, outside):
    found = attacks.gaussian_crossing(inside, outside)
    crossed = optimize.brentq(
        lambda e: stats.norm.logpdf(e, scale=inside) - stats.norm.logpdf(e, scale=outside),
        1e-9,
        1e3,
    )
    assert found == pytest.approx(crossed)


def test_no_threshold_without_smaller_member_errors():
    assert attacks.gaussian_crossing(1.0, 1.0) == 0
    assert attacks.gaussian_crossing(2.0, 1.0) == 0
    assert attacks.gaussian_threshold_advantage(2.0, 1.0) == 0


def test_threshold_attack_on_gaussian_errors_has_its_closed_form():
    """Adv = erf(e*/(s_in sqrt 2)) - erf(e*/(s_out sqrt 2)) within four standard errors."""
    trials = _trials(_random(0, 400, 200), 1.5 * _random(1, 400, 200))
    found = score_guesses(
        attacks.ThresholdGaussian().guess(trials), trials.member, shared_models=False
    )
    expected = attacks.gaussian_threshold_advantage(1.0, 1.5)
    edge = attacks.gaussian_crossing(1.0, 1.5)
    by_cdf = 2 * (stats.norm.cdf(edge) - stats.norm.cdf(edge / 1.5))
    assert expected == pytest.approx(by_cdf)
    assert abs(found.advantage - expected) < 4 * found.advantage_error


def test_mean_loss_attack_accepts_losses_up_to_the_training_loss():
    trials = _trials(np.array([[0.5, 1.0]]), np.array([[2.0, 1.01]]))
    guesses = attacks.ThresholdMeanLoss().guess(trials)
    assert guesses.decision.tolist() == [[False, False, True, True]]
    assert (guesses.score[0] >= 0).tolist() == [False, False, True, True]


@pytest.mark.parametrize("shift", [0.5, 2.0])
def test_online_lira_reaches_the_best_advantage_between_two_gaussians(shift):
    """2 Phi(shift/2) - 1 for unit Gaussians, whatever each record's own mean."""
    place = 10 * _random(2, 100, 1)
    trials = _trials(place + shift + _random(3, 100, 400), place + _random(4, 100, 400))
    best = 2 * stats.norm.cdf(shift / 2) - 1
    found = _advantage(attacks.LiraOnline().guess(trials), trials)
    # 40,000 trials a side: standard error below 0.0036; fitting costs a little more.
    assert found == pytest.approx(best, abs=0.015)


def test_online_lira_uses_the_variance_of_each_side():
    """Equal means, deviations 1 and 3: only a test with two variances separates them."""
    trials = _trials(_random(5, 100, 400), 3 * _random(6, 100, 400))
    edge = attacks.gaussian_crossing(1.0, 3.0)
    best = 2 * (stats.norm.cdf(edge) - stats.norm.cdf(edge / 3))
    assert _advantage(attacks.LiraOnline().guess(trials), trials) == pytest.approx(best, abs=0.015)


@pytest.mark.parametrize("two_sided", [True, False])
def test_offline_lira_scores_outsiders_uniformly_and_members_higher(two_sided):
    if two_sided:
        inside, outside = 0.3 * _random(7, 80, 400), 1 + 2 * _random(8, 80, 400)
    else:
        inside, outside = 2 + _random(7, 80, 400), _random(8, 80, 400)
    trials = _trials(inside, outside, two_sided=two_sided)
    guesses = attacks.LiraOffline().guess(trials)
    of_outsiders = guesses.score[~trials.member]
    if not two_sided:
        of_outsiders = torch.special.ndtr(of_outsiders)
    # Fitted on 200 draws each, so uniform up to that fit.
    assert stats.kstest(of_outsiders.numpy(), "uniform").statistic < 0.02
    assert _advantage(guesses, trials) > 0.5


def test_offline_lira_fits_without_members():
    """Its scores stay the same when the shadows trained with the record change."""
    outside = _random(9, 10, 40)
    first = _trials(_random(10, 10, 40), outside)
    second = _trials(5 + 9 * _random(11, 10, 40), outside)
    scores = [attacks.LiraOffline().guess(t).score[~t.member].numpy() for t in (first, second)]
    # Only the pooled variance could change, and it comes from outsiders alone.
    np.testing.assert_allclose(*scores)


@pytest.mark.parametrize("attack", [attacks.LiraOnline, attacks.LiraOffline])
def test_a_target_model_is_not_among_its_shadows(attack):
    """Scores of one fold's models do not move when another model of that fold does."""
    inside, outside = 1 + _random(12, 5, 40), _random(13, 5, 40)
    before = attack().guess(_trials(inside, outside)).score
    outside[:, 0] += 100
    after = attack().guess(_trials(inside, outside)).score
    fold = _trials(inside, outside).fold
    same = (fold == 0) & (torch.arange(80) != 0)
    torch.testing.assert_close(before[:, same], after[:, same])
    assert not torch.allclose(before[:, fold == 1], after[:, fold == 1])


@pytest.mark.parametrize(
    "attack",
    [
        attacks.ThresholdGaussian,
        attacks.ThresholdMeanLoss,
        attacks.LiraOffline,
        attacks.LiraOnline,
    ],
)
def test_models_without_leakage_give_no_advantage(attack):
    trials = _trials(_random(14, 300, 100), _random(15, 300, 100))
    score = score_guesses(attack().guess(trials), trials.member, shared_models=False)
    assert abs(score.advantage) < 4 * score.advantage_error
    assert score.auc == pytest.approx(0.5, abs=0.01)


@given(
    values=st.lists(st.integers(0, 6), min_size=8, max_size=60),
    seed=st.integers(0, 1000),
)
def test_auc_and_rates_are_those_of_scikit_learn_ties_included(values, seed):
    member = np.random.default_rng(seed).random(len(values)) < 0.5
    member[:2] = [True, False]
    member[2:4] = [True, False]
    shape = (2, len(values) // 2)
    values, member = np.array(values[: shape[0] * shape[1]], float), member[: shape[0] * shape[1]]
    grid = torch.from_numpy(values.reshape(shape)), torch.from_numpy(member.reshape(shape))
    found = score_guesses(Guesses(grid[0], grid[0] > 3), grid[1], shared_models=False)
    assert found.auc == pytest.approx(roc_auc_score(member, values))
    false, true, _ = roc_curve(member, values, drop_intermediate=False)
    for rate in FALSE_POSITIVE_RATES:
        allowed = false <= rate + 1e-12
        assert found.low_rates[f"tpr_at_fpr_{rate}"] == pytest.approx(true[allowed].max())
        assert found.low_rates[f"false_positives_at_fpr_{rate}"] == round(
            false[allowed].max() * (~member).sum()
        )


def test_a_rate_met_exactly_counts_its_false_positives():
    score = torch.arange(2000.0).view(2, 1000)
    member = torch.zeros(2, 1000, dtype=torch.bool)
    member[1, :] = True
    member[1, -1] = False
    found = score_guesses(Guesses(score, score > 0), member, shared_models=False)
    assert found.low_rates["false_positives_at_fpr_0.1"] == 100
    assert found.low_rates["false_positives_at_fpr_0.001"] == 1


@pytest.mark.parametrize("shared_models", [True, False])
def test_the_standard_error_covers_records_that_differ(shared_models):
    """Over repeated experiments the advantage spreads as its standard error says."""
    random = np.random.default_rng(16)
    found, errors = [], []
    for _ in range(300):
        leaky = random.random((60, 1)) * 0.6
        model = 0.2 * random.random((1, 40)) if shared_models else 0.0
        member = torch.from_numpy(random.random((60, 40)) < 0.5)
        chance = np.where(member.numpy(), 0.2 + leaky + model, 0.2)
        decision = torch.from_numpy(random.random((60, 40)) < chance)
        score = score_guesses(
            Guesses(decision.double(), decision), member, shared_models=shared_models
        )
        found.append(score.advantage)
        errors.append(score.advantage_error)
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.15)


def test_advantage_is_signed():
    trials = _trials(_random(17, 50, 40), _random(18, 50, 40))
    wrong = Guesses(-trials.member.double(), ~trials.member)
    score = score_guesses(wrong, trials.member, shared_models=False)
    assert score.advantage == -1
    assert math.isclose(score.auc, 0.0)
