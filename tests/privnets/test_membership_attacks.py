"""Attacks and their scores against closed forms and slow definitions."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from sklearn.metrics import roc_auc_score, roc_curve

from privnets.attacks.bavaria import BavariaOffline, BavariaOnline
from privnets.attacks.calibrated_loss import AttackR
from privnets.attacks.lira import LiraOffline, LiraOnline
from privnets.attacks.rmia import RmiaOffline, RmiaOnline
from privnets.attacks.thresholds import (
    ThresholdGaussian,
    ThresholdMeanLoss,
    gaussian_crossing,
    gaussian_threshold_advantage,
)
from privnets.attacks.white_box import WhiteBox, gaussian_log_ratios, left_out_log_ratios
from privnets.membership.config import FALSE_POSITIVE_RATES
from privnets.membership.trials import Guesses, Trials, guess, score_guesses, why_unavailable


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
        parameters=signal[..., None],
    )


def _random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def _advantage(guesses: Guesses, trials: Trials) -> float:
    return score_guesses(guesses, trials.member, shared_models=False).advantage.value


@pytest.mark.parametrize(("inside", "outside"), [(1.0, 2.0), (0.3, 0.31), (1.0, 30.0)])
def test_the_threshold_is_where_two_centred_densities_cross(inside, outside):
    found = gaussian_crossing(inside, outside)
    crossed = optimize.brentq(
        lambda e: stats.norm.logpdf(e, scale=inside) - stats.norm.logpdf(e, scale=outside),
        1e-9,
        1e3,
    )
    assert found == pytest.approx(crossed)


def test_no_threshold_without_smaller_member_errors():
    assert gaussian_crossing(1.0, 1.0) == 0
    assert gaussian_crossing(2.0, 1.0) == 0
    assert gaussian_threshold_advantage(2.0, 1.0) == 0


def test_threshold_attack_on_gaussian_errors_has_its_closed_form():
    """Adv = erf(e*/(s_in sqrt 2)) - erf(e*/(s_out sqrt 2)) within four standard errors."""
    trials = _trials(_random(0, 400, 200), 1.5 * _random(1, 400, 200))
    found = score_guesses(guess(ThresholdGaussian(), trials), trials.member, shared_models=False)
    expected = gaussian_threshold_advantage(1.0, 1.5)
    edge = gaussian_crossing(1.0, 1.5)
    by_cdf = 2 * (stats.norm.cdf(edge) - stats.norm.cdf(edge / 1.5))
    assert expected == pytest.approx(by_cdf)
    assert abs(found.advantage.value - expected) < 4 * found.advantage.error


def test_mean_loss_attack_accepts_losses_up_to_the_training_loss():
    trials = _trials(np.array([[0.5, 1.0]]), np.array([[2.0, 1.01]]))
    guesses = guess(ThresholdMeanLoss(), trials)
    assert guesses.decision.tolist() == [[False, False, True, True]]
    assert (guesses.score[0] >= 0).tolist() == [False, False, True, True]


@pytest.mark.parametrize("shift", [0.5, 2.0])
def test_online_lira_reaches_the_best_advantage_between_two_gaussians(shift):
    """2 Phi(shift/2) - 1 for unit Gaussians, whatever each record's own mean."""
    place = 10 * _random(2, 100, 1)
    trials = _trials(place + shift + _random(3, 100, 400), place + _random(4, 100, 400))
    best = 2 * stats.norm.cdf(shift / 2) - 1
    found = _advantage(guess(LiraOnline(), trials), trials)
    # 40,000 trials a side: standard error below 0.0036; fitting costs a little more.
    assert found == pytest.approx(best, abs=0.015)


def test_online_lira_uses_the_variance_of_each_side():
    """Equal means, deviations 1 and 3: only a test with two variances separates them."""
    trials = _trials(_random(5, 100, 400), 3 * _random(6, 100, 400))
    edge = gaussian_crossing(1.0, 3.0)
    best = 2 * (stats.norm.cdf(edge) - stats.norm.cdf(edge / 3))
    assert _advantage(guess(LiraOnline(), trials), trials) == pytest.approx(best, abs=0.015)


@pytest.mark.parametrize("two_sided", [True, False])
def test_offline_lira_scores_outsiders_uniformly_and_members_higher(two_sided):
    if two_sided:
        inside, outside = 0.3 * _random(7, 80, 400), 1 + 2 * _random(8, 80, 400)
    else:
        inside, outside = 2 + _random(7, 80, 400), _random(8, 80, 400)
    trials = _trials(inside, outside, two_sided=two_sided)
    guesses = guess(LiraOffline(), trials)
    of_outsiders = guesses.score[~trials.member]
    if not two_sided:
        of_outsiders = torch.special.ndtr(of_outsiders)
    # Fitted on 200 draws each, so uniform up to that fit.
    assert stats.kstest(of_outsiders.numpy(), "uniform").statistic < 0.02
    assert _advantage(guesses, trials) > 0.5


@pytest.mark.parametrize("attack", [AttackR, LiraOffline, BavariaOffline])
def test_offline_attacks_fit_without_members(attack):
    """Their scores stay the same when the shadows trained with the record change."""
    outside = _random(9, 10, 40)
    first = _trials(_random(10, 10, 40), outside)
    second = _trials(5 + 9 * _random(11, 10, 40), outside)
    scores = [guess(attack(), t).score[~t.member].numpy() for t in (first, second)]
    # Only the pooled variance could change, and it comes from outsiders alone.
    np.testing.assert_allclose(*scores)


@pytest.mark.parametrize(
    "attack",
    [AttackR, LiraOffline, LiraOnline, RmiaOffline, RmiaOnline, BavariaOffline, BavariaOnline],
)
def test_a_target_model_is_not_among_its_shadows(attack):
    """Scores of one fold's models do not move when another model of that fold does."""
    inside, outside = 1 + _random(12, 5, 40), _random(13, 5, 40)
    before = guess(attack(), _trials(inside, outside)).score
    outside[:, 0] += 100
    after = guess(attack(), _trials(inside, outside)).score
    fold = _trials(inside, outside).fold
    same = (fold == 0) & (torch.arange(80) != 0)
    torch.testing.assert_close(before[:, same], after[:, same])
    assert not torch.allclose(before[:, fold == 1], after[:, fold == 1])


@pytest.mark.parametrize(
    "attack",
    [
        ThresholdGaussian,
        ThresholdMeanLoss,
        AttackR,
        LiraOffline,
        LiraOnline,
        RmiaOffline,
        RmiaOnline,
        BavariaOffline,
        BavariaOnline,
        WhiteBox,
    ],
)
def test_models_without_leakage_give_no_advantage(attack):
    trials = _trials(_random(14, 300, 100), _random(15, 300, 100))
    score = score_guesses(guess(attack(), trials), trials.member, shared_models=False)
    assert abs(score.advantage.value) < 4 * score.advantage.error
    assert score.auc.value == pytest.approx(0.5, abs=0.01)


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
    assert found.auc.value == pytest.approx(roc_auc_score(member, values))
    false, true, _ = roc_curve(member, values, drop_intermediate=False)
    for rate in FALSE_POSITIVE_RATES:
        allowed = false <= rate + 1e-12
        assert found.low_rates[rate].value == pytest.approx(true[allowed].max())


def test_a_rate_met_exactly_counts_its_false_positives():
    """Among 1,001 outsiders, one of the two at the top is a false positive at a rate of 0.001."""
    score = torch.arange(2000.0).view(2, 1000)
    member = torch.zeros(2, 1000, dtype=torch.bool)
    member[1, :] = True
    member[1, -3] = member[1, -1] = False
    found = score_guesses(Guesses(score, score > 0), member, shared_models=False)
    assert found.non_members == 1002
    assert found.low_rates[0.001].value == pytest.approx(1 / 998)


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
        found.append(score.advantage.value)
        errors.append(score.advantage.error)
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.15)


@pytest.mark.parametrize("shared_models", [True, False])
def test_errors_of_the_roc_curve_are_its_spread_over_experiments(shared_models):
    """Records, and models if shared, that differ in how far they shift the score of a member."""
    random = np.random.default_rng(19)
    found, errors = [], []
    for _ in range(80):
        leaky = random.exponential(1.0, (40, 1))
        model = random.standard_normal((1, 30)) if shared_models else 0.0
        member = torch.from_numpy(random.random((40, 30)) < 0.5)
        noise = random.standard_normal((40, 30))
        score = torch.from_numpy(np.where(member.numpy(), leaky, 0.0) + model + noise)
        scored = score_guesses(Guesses(score, score > 0), member, shared_models=shared_models)
        estimates = [scored.auc, scored.low_rates[0.1]]
        found.append([estimate.value for estimate in estimates])
        errors.append([estimate.error for estimate in estimates])
    np.testing.assert_allclose(np.mean(errors, axis=0), np.std(found, axis=0), rtol=0.2)


def _parameters(shift: float, records: int, draws: int, numbers: int, seed: int) -> Trials:
    """Trials whose members have unit Gaussian parameters moved by `shift` in one direction."""
    random = np.random.default_rng(seed)
    direction = random.standard_normal((records, 1, numbers))
    direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    values = random.standard_normal((records, 2 * draws, numbers))
    values[:, draws:] += shift * direction
    trials = _trials(_random(seed, records, draws), _random(seed + 1, records, draws))
    return dataclasses.replace(trials, parameters=torch.from_numpy(values))


def test_white_box_reaches_the_best_advantage_between_two_gaussians():
    """2 Phi(shift/2) - 1; fitting 3 numbers to 400 shadow models costs little."""
    trials = _parameters(1.5, records=60, draws=400, numbers=3, seed=20)
    found = _advantage(guess(WhiteBox(), trials), trials)
    assert found == pytest.approx(2 * stats.norm.cdf(0.75) - 1, abs=0.02)


def test_white_box_uses_the_covariance_of_each_side():
    """Members vary a tenth as much along one direction, as where models interpolate."""
    trials = _parameters(0.0, records=60, draws=400, numbers=3, seed=22)
    assert trials.parameters is not None
    parameters = trials.parameters.clone()
    parameters[:, 400:, 0] *= 0.1
    edge = gaussian_crossing(0.1, 1.0)
    best = 2 * (stats.norm.cdf(10 * edge) - stats.norm.cdf(edge))
    trials = dataclasses.replace(trials, parameters=parameters)
    assert _advantage(guess(WhiteBox(), trials), trials) == pytest.approx(best, abs=0.02)


@pytest.mark.parametrize("draws", [12, 40])
def test_white_box_is_defined_with_more_parameters_than_models(draws):
    """60 parameters: no side has a covariance, and members are far apart all the same."""
    trials = _parameters(8.0, records=30, draws=draws, numbers=60, seed=24)
    assert why_unavailable(WhiteBox(), trials) is None
    assert _advantage(guess(WhiteBox(), trials), trials) > 0.8
    none = _parameters(0.0, records=200, draws=draws, numbers=60, seed=26)
    score = score_guesses(guess(WhiteBox(), none), none.member, shared_models=False)
    assert abs(score.advantage.value) < 4 * score.advantage.error


def test_white_box_sees_many_parameters_of_shared_models():
    """3,000 parameters of 80 models; each of 5 records moves the models that trained on it."""
    random = np.random.default_rng(28)
    member = torch.from_numpy(random.random((5, 80)) < 0.5)
    moves = 12 * random.standard_normal((5, 3000)) / math.sqrt(3000)
    values = member.numpy().T @ moves + random.standard_normal((80, 3000)) / math.sqrt(3000)
    trials = dataclasses.replace(
        _trials(_random(29, 5, 40), _random(30, 5, 40)),
        member=member,
        fold=(torch.arange(80) >= 40).long(),
        parameters=torch.from_numpy(values),
    )
    assert _advantage(guess(WhiteBox(), trials), trials) > 0.8


@pytest.mark.parametrize("shrinkage", [1e-9, 0.1, 10.0])
@pytest.mark.parametrize("paired", [False, True])
def test_log_ratios_of_shadows_come_from_fits_without_them(shrinkage, paired):
    """Against a refit of both Gaussians without each shadow model, or pair of them, in turn."""
    random = np.random.default_rng(31)
    member = np.array([True] * (8 if paired else 7) + [False] * (8 if paired else 9))
    partner = (np.arange(16) + 8) % 16
    shadows = random.standard_normal((16, 3)) * [1.0, 3.0, 0.2] + 0.5 * member[:, None]
    target = random.standard_normal((1, 3))
    fitted = [torch.from_numpy(values[None]) for values in (shadows, member)]
    of_target = gaussian_log_ratios(*fitted, torch.from_numpy(target[None]), shrinkage)
    found = left_out_log_ratios(
        *fitted, [shrinkage], torch.from_numpy(partner) if paired else None
    )[shrinkage]
    own = np.where(member[:, None], shadows[member].mean(0), shadows[~member].mean(0))
    scale = np.sqrt(((shadows - own) ** 2).sum(0) / 14)

    def log_ratio(values: np.ndarray, is_member: np.ndarray, at: np.ndarray) -> float:
        values, at, count = values / scale, at / scale, len(values)
        groups = [values[~is_member], values[is_member]]
        scatters = [(g - g.mean(0)).T @ (g - g.mean(0)) for g in groups]
        pooled = sum(scatters) + 1.6 * np.eye(3)
        logs = []
        for group, scatter in zip(groups, scatters, strict=True):
            freedom = len(group) - 1 + shrinkage * (count - 2)
            covariance = (scatter + shrinkage * pooled) / freedom
            logs.append(stats.multivariate_normal.logpdf(at, group.mean(0), covariance))
        return logs[1] - logs[0]

    assert float(of_target[0, 0]) == pytest.approx(log_ratio(shadows, member, target[0]))
    for k in range(16):
        kept = np.arange(16) != k
        kept[partner[k]] &= not paired
        expected = log_ratio(shadows[kept], member[kept], shadows[k])
        assert float(found[0, k]) == pytest.approx(expected, rel=1e-6)


def test_advantage_is_signed():
    trials = _trials(_random(17, 50, 40), _random(18, 50, 40))
    wrong = Guesses(-trials.member.double(), ~trials.member)
    score = score_guesses(wrong, trials.member, shared_models=False)
    assert score.advantage.value == -1
    assert math.isclose(score.auc.value, 0.0)
