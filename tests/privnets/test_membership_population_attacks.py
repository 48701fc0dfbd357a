"""Attacks that use references or a population, against slow definitions and closed forms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from privnets.attacks.bavaria import BavariaOffline
from privnets.attacks.calibrated_loss import AttackP, AttackR
from privnets.attacks.lira import LiraOffline
from privnets.attacks.quantile_regression import QuantileRegression
from privnets.attacks.rmia import RmiaOffline, RmiaOnline
from privnets.attacks.view import AttackerView, References
from privnets.membership.config import MembershipConfig
from privnets.membership.observations import Observations, Universe, regressors
from privnets.membership.outputs import Outputs, Predictor, TrainingDesign, observe_outputs
from privnets.membership.trials import (
    Population,
    Trials,
    guess,
    score_guesses,
    signed_advantage,
    why_unavailable,
)
from privnets.testing import make_trials


def _reference_values() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal((9, 5)), random.random((9, 5)) < 0.5


def test_moments_are_those_of_the_references_of_each_record():
    values, side = _reference_values()
    side[:, 2] = False
    moments = References(side).moments(values, member=True)
    for record in (0, 1, 3, 4):
        chosen = values[side[:, record], record]
        assert moments.count[0, record] == len(chosen)
        assert moments.mean[0, record] == pytest.approx(chosen.mean())
        assert moments.scatter[0, record] == pytest.approx(chosen.var() * len(chosen))
    assert moments.count[0, 2] == 0
    assert np.isnan(moments.mean[0, 2])


def test_log_means_are_those_of_the_probabilities_of_each_record():
    logs, side = _reference_values()
    found = References(side).log_mean(logs - 800, member=True)[0] + 800
    expected = [np.log(np.exp(logs[side[:, r], r]).mean()) for r in range(5)]
    assert found == pytest.approx(expected)


def test_offline_scores_of_residuals_are_two_tails():
    values, side = _reference_values()
    references = References(~side)
    outside = references.moments(values, member=False)
    residual = np.linspace(-3, 3, 10).reshape(2, 5)
    compared = AttackerView(residual, values, residual, values, references, two_sided=True)
    size, mean = np.abs(residual), outside.mean
    deviation = np.sqrt(outside.variance(9))
    normal = stats.norm.sf(size, mean, deviation) + stats.norm.cdf(-size, mean, deviation)
    found = LiraOffline().score(compared)
    np.testing.assert_allclose(found, normal)
    freedom = 3 + outside.count
    spread = (outside.scatter + 4 * outside.pooled_variance) / freedom * (1 + 1 / outside.count)
    student = stats.t(freedom, mean, np.sqrt(spread))
    found = BavariaOffline().score(compared)
    np.testing.assert_allclose(found, np.log(student.sf(size) + student.cdf(-size)))


def test_attack_p_is_the_percentile_among_losses_at_the_population():
    trials = make_trials(1.0)
    outside = torch.from_numpy(np.random.default_rng(1).random((240, 80)) < 0.7)
    population = dataclasses.replace(trials.population, outside=outside)
    trials = dataclasses.replace(trials, population=population)
    score = guess(AttackP(), trials).score
    for record, model in ((0, 0), (7, 50), (59, 79)):
        losses = population.loss[outside[:, model], model]
        share = (losses >= trials.loss[record, model]).double().mean()
        assert float(score[record, model]) == pytest.approx(float(share))


def test_attack_r_is_the_percentile_among_losses_of_shadow_models_without_the_record():
    trials = make_trials(1.0)
    score = guess(AttackR(), trials).score
    for record, model in ((0, 0), (7, 50), (59, 79)):
        shadows = (trials.fold != trials.fold[model]) & ~trials.member[record]
        share = (trials.loss[record, shadows] >= trials.loss[record, model]).double().mean()
        assert float(score[record, model]) == pytest.approx(float(share))


@pytest.mark.parametrize("attack", [RmiaOffline, RmiaOnline])
def test_rmia_ranks_likelihood_ratios_among_the_population(attack):
    """Against its definition, a loop over the records of the population."""
    trials = make_trials(1.0, records=12, draws=10)
    score = guess(attack(), trials).score
    p, p_population = (torch.exp(-t.loss).numpy() for t in (trials, trials.population))
    for record, model in ((0, 0), (5, 12), (11, 19)):
        shadows = (trials.fold != trials.fold[model]).numpy()
        member = trials.member[record].numpy()
        p_out = p[record, shadows & ~member].mean()
        p_in = p[record, shadows & member].mean()
        offline = 0.5 * (1.3 * p_out + 0.7)
        ratio = p[record, model] / (offline if attack is RmiaOffline else (p_in + p_out) / 2)
        below = []
        for z, outside in enumerate(trials.population.outside.numpy()):
            inside = p_population[z, shadows & ~outside]
            if not outside[model] or (attack is RmiaOnline and not len(inside)):
                continue
            average = p_population[z, shadows & outside].mean()
            offline = 0.5 * (1.3 * average + 0.7)
            prior = offline if attack is RmiaOffline else (inside.mean() + average) / 2
            below.append(p_population[z, model] / prior <= ratio)
        assert float(score[record, model]) == pytest.approx(np.mean(below))


@pytest.mark.parametrize("two_sided", [False, True])
def test_quantile_regression_removes_what_features_explain(two_sided):
    """Signals m(x) + s(x) noise: their standardised form separates, and the signal does not."""
    trials = _explained_trials(two_sided)
    guesses = guess(QuantileRegression(), trials)
    found = score_guesses(guesses, trials.member, shared_models=True)
    plain = -trials.signal.abs() if two_sided else trials.signal
    raw = score_guesses(
        dataclasses.replace(guesses, score=plain), trials.member, shared_models=True
    )
    best = stats.norm.cdf(2 / np.sqrt(2))
    assert raw.auc.value < 0.65
    # 1,000 trials: the standard error is 0.009. The fit has 600 records for 3 coefficients.
    assert found.auc.value == pytest.approx(best, abs=0.03)


def _explained_trials(two_sided: bool) -> Trials:
    """Members' standardised signals are larger by 2, in 20 models at 50 records."""
    random = np.random.default_rng(2)
    x, member = random.standard_normal((650, 2)), random.random((50, 20)) < 0.5
    noise = random.standard_normal((650, 20))
    noise[:50] += 2 * member
    if two_sided:
        # The logarithmic size of the residual is m(x) - noise.
        signal = np.exp(4 * x[:, :1] - noise) * random.choice([-1, 1], (650, 20))
    else:
        signal = 8 * x[:, :1] + np.exp(x[:, 1:]) * noise
    values, basis = (
        torch.from_numpy(signal),
        regressors(torch.from_numpy(x), torch.zeros(650, dtype=torch.float64), 1),
    )
    return Trials(
        member=torch.from_numpy(member),
        fold=torch.arange(20) % 2,
        signal=values[:50],
        error=values[:50],
        loss=values[:50].square(),
        train_loss=torch.ones(50, 20).double(),
        two_sided=two_sided,
        population=Population(
            outside=torch.ones(600, 20, dtype=torch.bool),
            signal=values[50:],
            loss=values[50:].square(),
            features=basis[50:],
            features_of_records=basis[:50],
        ),
    )


def test_regressors_are_components_of_each_class():
    random = np.random.default_rng(3)
    x, y = torch.from_numpy(random.standard_normal((40, 3))), torch.arange(40.0) % 2
    basis = regressors(x, y, 2)
    assert basis.shape == (40, 8)
    assert bool((basis[y == 0][:, 4:] == 0).all())
    assert bool((basis[y == 1][:, :4] == 0).all())
    assert basis[y == 1][:, 4].tolist() == [1.0] * 20


class _NoisePredictor(Predictor):
    """Log-odds that are noise, whatever the training sets are."""

    classifies = True

    def __init__(self, log_odds: torch.Tensor) -> None:
        self._log_odds = log_odds

    def at(self, index: torch.Tensor) -> Outputs:
        chosen = index.expand(len(self._log_odds), -1)
        value = self._log_odds.gather(1, chosen)
        return Outputs(-torch.nn.functional.logsigmoid(value), (value > 0).double(), value)

    def predict(self, index: torch.Tensor, models: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The second of two classes where log-odds are above 0, and log-probabilities."""
        value = self.at(index).value[:models]
        both = torch.stack([-value, value], -1)
        return (value > 0).long(), torch.nn.functional.logsigmoid(both)


def _noise_observations(records: int, models: int = 100) -> Observations:
    """Observations of 300 records, half of which train each model."""
    random = np.random.default_rng(4)
    config = MembershipConfig(
        dataset="digits", model="logistic", train_size=150, records=records, draws=models
    )
    x = torch.from_numpy(random.standard_normal((300, 8)))
    universe = Universe(x, (x[:, 0] > 0).double(), 2)
    noise = torch.from_numpy(random.standard_normal((models, 300)))
    return observe_outputs(TrainingDesign.draw(config, 300), _NoisePredictor(noise), universe)


@pytest.mark.parametrize("attack", [AttackP, QuantileRegression, RmiaOffline, RmiaOnline])
def test_signals_that_are_noise_reveal_nothing_through_the_population(attack):
    """200 of 300 records are attacked, so that most test records are among them."""
    trials = _noise_observations(200).trials
    assert why_unavailable(attack(), trials) is None
    decision = guess(attack(), trials).decision
    found = signed_advantage(decision, trials.member, shared_models=True)
    assert abs(found.value) < 4 * found.error
    assert found.error < 0.01


@pytest.mark.parametrize("attack", [AttackP, QuantileRegression, RmiaOffline, RmiaOnline])
def test_population_attacks_need_records_that_are_not_attacked(attack):
    reason = why_unavailable(attack(), _noise_observations(300).trials)
    assert reason is not None
    assert reason.startswith("0 records are neither attacked nor in the training set")


def test_signals_of_very_confident_models_differ():
    predictor = _NoisePredictor(torch.tensor([[40.0, 60.0, -60.0]]).double())
    value = predictor.at(torch.arange(3)).value
    assert predictor.signal(value, torch.zeros(3)).tolist() == [[40.0, 60.0, -60.0]]
