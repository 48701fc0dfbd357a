"""Attacks and their scores against closed forms and slow definitions."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats

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
from privnets.statistics.roc import ScoredTrials


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


@pytest.mark.parametrize("shared_models", [True, False])
def test_guesses_are_scored_by_their_roc_curve_with_models_shared_or_not(shared_models):
    random = np.random.default_rng(16)
    member = random.random((40, 30)) < 0.5
    score = random.standard_normal((40, 30)) + 3 * member * random.random((1, 30))
    guesses = Guesses(torch.from_numpy(score), torch.from_numpy(score > 0))
    found = score_guesses(guesses, torch.from_numpy(member), shared_models=shared_models)
    expected, other = (
        ScoredTrials(score.T, member.T, shared_models=shared)
        for shared in (shared_models, not shared_models)
    )
    assert found.advantage == expected.advantage_estimate(score.T > 0)
    assert found.auc == expected.area_estimate != other.area_estimate
    for rate in FALSE_POSITIVE_RATES:
        assert found.low_rates[rate] == expected.rate_estimate(rate)


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
