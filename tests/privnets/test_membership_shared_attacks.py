"""Attacks that sweeps and audits share: equal scores, thresholds of left-out shadow models."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.metrics import roc_auc_score

import privnets
from privnets.attacks import ATTACKS
from privnets.audit.model_signals import ModelSignals
from privnets.membership.config import MembershipConfig
from privnets.membership.evaluation import evaluate
from privnets.membership.observations import Universe
from privnets.membership.outputs import Outputs, Predictor, TrainingDesign, observe_outputs
from privnets.membership.trials import Population, Trials, guess, why_unavailable
from privnets.statistics.roc import best_threshold
from privnets.testing import make_trials

SHARED = [
    "lira_offline",
    "lira_online",
    "rmia_offline",
    "rmia_online",
    "bavaria_offline",
    "bavaria_online",
]


def _outputs(models: int, records: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of models that train with each record by chance, and memberships, [R, J] each."""
    random = np.random.default_rng(seed)
    member = random.random((records, models)) < 0.5
    level = 2 * random.standard_normal((records, 1))
    return level + random.standard_normal(member.shape) + 1.5 * member, member


def _trials(signal: np.ndarray, member: np.ndarray, fold: np.ndarray) -> Trials:
    """A sweep's trials; the attacked records are the population, whose target is unknown."""
    values = torch.from_numpy(signal)
    outside = ~member
    outside[:, fold == 0] = True
    loss = torch.nn.functional.softplus(-values)
    return Trials(
        member=torch.from_numpy(member),
        fold=torch.from_numpy(fold),
        signal=values,
        error=torch.sigmoid(-values),
        loss=loss,
        train_loss=torch.ones_like(values),
        two_sided=False,
        population=Population(
            torch.from_numpy(outside), values, loss, values[:, :1] * 0 + 1, values[:, :1] * 0 + 1
        ),
    )


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("models", [7, 21, 81])
def test_sweeps_and_audits_score_the_same_outputs_alike(name: str, models: int) -> None:
    """One target, the same references, and the attacked records as the population of both."""
    signal, member = _outputs(models)
    fold = np.minimum(np.arange(models), 1)
    # The second target of the sweep's fold is the first one again: folds need two models a side.
    twice = [np.concatenate([each[:, :1], each[:, :1], each], 1) for each in (signal, member)]
    trials = _trials(*twice, np.concatenate([[0, 0], fold]))
    audited = ModelSignals(
        {"logit": signal.T},
        signal.T,
        expit(signal.T),
        member.T,
        np.array([0]),
        np.arange(len(signal)).astype(object),
        np.inf,
    )
    by_audit = ATTACKS.get(name).score(audited.view)[0]
    with np.errstate(all="ignore"):
        by_sweep = guess(ATTACKS.get(name), trials).score[:, 2].numpy()
    assert np.isfinite(by_audit).sum() > 40
    np.testing.assert_allclose(by_sweep, by_audit, rtol=1e-12, atol=1e-12)


def test_the_public_audit_has_the_area_of_the_sweep_s_scores() -> None:
    signal, member = _outputs(21)
    fold = np.minimum(np.arange(21), 1)
    trials = _trials(signal, member, fold)
    table = privnets.audit_signals({"logit": signal.T}, member.T, target=0, clip=1e-12).table
    for name in ("lira_offline", "lira_online", "rmia_offline", "rmia_online"):
        with np.errstate(all="ignore"):
            scores = guess(ATTACKS.get(name), trials).score[:, 0].numpy()
        expected = roc_auc_score(member[:, 0], scores)
        assert table.loc[name, "auc"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("confidence", [0.02, 1.0])
def test_online_rmia_does_not_depend_on_how_confident_models_are(confidence: float) -> None:
    """All probabilities near 1/2: ranks among a population of the same kind stay informative.

    The best area between two unit Gaussians 2 apart is 0.92; references cost a little of it.
    """
    trials = make_trials(2.0, records=100, draws=24)
    population = trials.population
    assert population is not None

    def scaled(each, signal):
        values = confidence * signal
        loss = torch.nn.functional.softplus(-values)
        return dataclasses.replace(each, signal=values, loss=loss)

    other = scaled(population, population.signal)
    trials = dataclasses.replace(scaled(trials, trials.signal), population=other)
    score = guess(ATTACKS.get("rmia_online"), trials).score
    area = roc_auc_score(trials.member.flatten(), score.flatten())
    assert 0.89 < area < 0.94


def test_online_rmia_needs_shadow_models_that_trained_with_the_population() -> None:
    trials = make_trials(1.0)
    population = trials.population
    assert population is not None
    outside = torch.ones_like(population.outside)
    outside[:9] = population.outside[:9]
    trials = dataclasses.replace(
        trials, population=dataclasses.replace(population, outside=outside)
    )
    reason = why_unavailable(ATTACKS.get("rmia_online"), trials)
    assert reason is not None
    assert "have reference models with and without them, and at least 10 are needed" in reason
    assert why_unavailable(ATTACKS.get("rmia_offline"), trials) is None


@pytest.mark.parametrize("name", ["lira_offline", "bavaria_offline", "rmia_online", "attack_r"])
@pytest.mark.parametrize("paired", [False, True])
def test_shadow_models_choose_the_threshold_each_without_itself(name: str, paired: bool) -> None:
    """Against one call for each shadow model, which makes it the only target of its fold.

    A paired shadow model is left out with the other model of its draw.
    """
    models = 48
    signal, member = _outputs(models, records=30, seed=3)
    draw = None
    if paired:
        member = np.broadcast_to(np.arange(models) % 2 == 1, member.shape).copy()
        draw = torch.arange(models) // 2
    fold = np.arange(models) // 2 % 2
    attack = ATTACKS.get(name)
    trials = dataclasses.replace(_trials(signal, member, fold), draw=draw, population=None)
    guesses = guess(attack, trials)
    left_out = []
    shadows = np.flatnonzero(fold == 1)
    for each in shadows:
        is_away = np.isin(np.arange(models), [each, each ^ 1] if paired else [each])
        alone = np.where(is_away, 0, np.where(fold == 1, 1, 2))
        chosen = np.flatnonzero(alone < 2)
        part = _trials(signal[:, chosen], member[:, chosen], alone[chosen])
        part = dataclasses.replace(part, population=None)
        with np.errstate(all="ignore"):
            score = guess(attack, part).score
        left_out.append(score[:, list(chosen).index(each)])
    inside = torch.from_numpy(member[:, shadows])
    _, threshold = best_threshold(torch.stack(left_out, 1).numpy(), inside.numpy())
    targets = torch.from_numpy(fold == 0)
    expected = guesses.score[:, targets] >= threshold
    assert torch.equal(guesses.decision[:, targets], expected)


def test_two_shadow_models_on_a_side_stay_in_their_own_reference() -> None:
    """Without one of two, no variance is left."""
    member = np.tile([True, True, False, False], (40, 2))
    signal = np.random.default_rng(5).standard_normal(member.shape) + 3 * member
    fold = np.arange(8) // 4
    trials = dataclasses.replace(_trials(signal, member, fold), population=None)
    guesses = guess(ATTACKS.get("lira_offline"), trials)
    assert bool(torch.isfinite(guesses.score).all())
    inside = trials.member
    assert guesses.decision[inside].float().mean() > guesses.decision[~inside].float().mean() + 0.3


class _ConfidentPredictor(Predictor):
    """Log-odds of 800 and more, whose losses all round to 0."""

    classifies = True

    def at(self, index: torch.Tensor) -> Outputs:
        size = index.expand(40, -1).shape
        value = torch.from_numpy(np.random.default_rng(6).uniform(800, 900, size))
        return Outputs(-torch.nn.functional.logsigmoid(value), value.sign(), value)

    def predict(self, index: torch.Tensor, models: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The second of two classes where log-odds are above 0, and log-probabilities."""
        value = self.at(index).value[:models]
        both = torch.stack([-value, value], -1)
        return (value > 0).long(), torch.nn.functional.logsigmoid(both)


def test_an_attack_with_equal_scores_raises_a_flag_that_names_it() -> None:
    config = MembershipConfig(
        dataset="digits", model="logistic", train_size=100, records=40, draws=40
    )
    x = torch.from_numpy(np.random.default_rng(7).standard_normal((300, 3)))
    universe = Universe(x, (x[:, 0] > 0).double(), 2)
    design = TrainingDesign.draw(config, 300)
    point = evaluate(config, observe_outputs(design, _ConfidentPredictor(), universe))
    assert point.metrics["flag/constant_attack"] == 1
    note = point.notes["flag/constant_attack"]
    assert {"attack_p", "rmia_online"} <= set(note.replace(",", "").split())
    assert "lira_online" not in note
    quiet = evaluate(config, observe_outputs(design, _Noise(), universe))
    assert quiet.metrics["flag/constant_attack"] == 0


class _Noise(_ConfidentPredictor):
    def at(self, index: torch.Tensor) -> Outputs:
        value = super().at(index).value - 850
        return Outputs(-torch.nn.functional.logsigmoid(value), value.sign(), value)


class _HalfLeaky(_Noise):
    """Every second model gives its training records far larger log-odds."""

    def __init__(self, design: TrainingDesign) -> None:
        sets = torch.from_numpy(design.sets.astype(np.int64))
        self._trained = torch.zeros(40, 300, dtype=torch.float64).scatter_(1, sets, 1.0)
        self._trained[::2] = 0

    def at(self, index: torch.Tensor) -> Outputs:
        value = super().at(index).value / 100
        value += 50 * self._trained.gather(1, index.expand(40, -1))
        return Outputs(-torch.nn.functional.logsigmoid(value), value.sign(), value)


def test_errors_of_shared_models_hold_the_spread_between_models() -> None:
    """Half the models leak all and the others nothing: an advantage of 1 or 0 for each of 40.

    Records, of which each is attacked in all models, differ far less.
    """
    config = MembershipConfig(
        dataset="digits", model="logistic", train_size=150, records=40, draws=40
    )
    x = torch.from_numpy(np.random.default_rng(7).standard_normal((300, 3)))
    universe = Universe(x, (x[:, 0] > 0).double(), 2)
    design = TrainingDesign.draw(config, 300)
    point = evaluate(config, observe_outputs(design, _HalfLeaky(design), universe))
    for key in ("privacy/membership_advantage", "privacy/attack/attack_p/advantage"):
        assert point.metrics[key] == pytest.approx(0.5, abs=0.1)
        assert point.standard_errors[key] == pytest.approx(0.5 / math.sqrt(40), rel=0.15)
