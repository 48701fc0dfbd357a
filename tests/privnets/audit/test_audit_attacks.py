"""Attacks of audits against slow versions written from their papers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from audit_support import (
    many_models,
    sides,
    slow_bavaria,
    slow_lira,
    slow_pooled_variance,
    slow_rmia,
)
from scipy import stats
from scipy.special import expit, logsumexp
from scipy.stats import entropy

import privnets
from privnets.attacks import ATTACKS, attack_names
from privnets.audit.model_signals import (
    ModelSignals,
    choose_limit,
    derive_from_probabilities,
    logit_of_loss,
)
from privnets.statistics.roc import ScoredTrials
from privnets.testing import make_model_signals

WITH_REFERENCES = [
    name for name in attack_names("audits") if ATTACKS.get(name).family in ("offline", "online")
]


def make_signals(log_odds: np.ndarray, member: np.ndarray, target: int | None = None):
    models, records = log_odds.shape
    targets = np.arange(models) if target is None else np.array([target])
    names = np.arange(records).astype(object)
    values = {"logit": log_odds, "score": log_odds, "loss": -np.logaddexp(0, -log_odds)}
    values |= dict.fromkeys(("confidence", "entropy", "modified_entropy"), expit(log_odds))
    return ModelSignals(values, log_odds, expit(log_odds), member, targets, names, np.inf)


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        ("lira_online", lambda signal, member: slow_lira(signal, member, online=True)),
        ("lira_offline", lambda signal, member: slow_lira(signal, member, online=False)),
        ("rmia_online", lambda signal, member: slow_rmia(expit(signal), member, online=True)),
        ("rmia_offline", lambda signal, member: slow_rmia(expit(signal), member, online=False)),
        ("bavaria_online", slow_bavaria),
    ],
)
@pytest.mark.parametrize("models", [4, 9])
def test_an_attack_equals_its_paper_s_definition(name, slow, models) -> None:
    """Four models leave some records without references of one side."""
    signal, member = many_models(1.0, models, records=40)
    scores = ATTACKS.get(name).score(make_signals(signal, member).view)
    np.testing.assert_allclose(scores, slow(signal, member), rtol=1e-9, atol=1e-9)


def test_own_variances_are_used_from_64_references_on() -> None:
    signal, member = many_models(1.0, 65, records=12)
    scores = ATTACKS.get("lira_offline").score(make_signals(signal, member, target=3).view)
    others = np.arange(65) != 3
    for record in range(12):
        outside = signal[others & ~member[:, record], record]
        expected = (signal[3, record] - outside.mean()) / outside.std(ddof=1)
        assert scores[0, record] == pytest.approx(expected)


def test_bavaria_offline_is_the_tail_of_a_student_distribution() -> None:
    signal, member = many_models(1.0, 12, records=25)
    scores = ATTACKS.get("bavaria_offline").score(make_signals(signal, member).view)
    pooled = slow_pooled_variance(signal, member, 5, 1)
    for record in range(25):
        _, outside = sides(signal, member, 5, record)
        freedom = 4 + len(outside) - 1
        squares = np.square(outside - np.mean(outside)).sum()
        scale = np.sqrt((4 * pooled + squares) / freedom * (1 + 1 / len(outside)))
        tail = stats.t.logsf(signal[5, record], freedom, np.mean(outside), scale)
        assert scores[5, record] == pytest.approx(-tail)


def test_difference_subtracts_the_mean_log_probability_without_the_record() -> None:
    signal, member = many_models(1.0, 16, records=10)
    logs = np.log(expit(signal))
    scores = ATTACKS.get("difference").score(make_signals(signal, member).view)
    others = np.arange(16) != 2
    expected = [logs[2, r] - logs[others & ~member[:, r], r].mean() for r in range(10)]
    assert scores[2] == pytest.approx(expected)


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_a_named_target_gets_the_scores_that_it_gets_among_all(name: str) -> None:
    signal, member = many_models(1.0)
    attack = ATTACKS.get(name)
    everyone = attack.score(make_signals(signal, member).view)
    alone = attack.score(make_signals(signal, member, target=4).view)
    np.testing.assert_allclose(alone[0], everyone[4])


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_a_target_s_own_membership_does_not_affect_its_scores(name: str) -> None:
    signal, member = many_models(1.0)
    other = member.copy()
    other[4] = ~other[4]
    attack = ATTACKS.get(name)
    one, two = (attack.score(make_signals(signal, m, target=4).view) for m in (member, other))
    np.testing.assert_allclose(one, two)


def test_offline_attacks_ignore_references_trained_with_the_record() -> None:
    signal, member = many_models(1.0)
    changed = np.where(member & (np.arange(len(signal)) != 4)[:, None], signal + 3, signal)
    for name in WITH_REFERENCES:
        attack = ATTACKS.get(name)
        before, after = (
            attack.score(make_signals(each, member, target=4).view) for each in (signal, changed)
        )
        assert np.allclose(before, after) == (attack.family == "offline")


def test_signals_of_probabilities_follow_their_definitions() -> None:
    random = np.random.default_rng(0)
    table = random.dirichlet(np.ones(4), size=(2, 30))
    labels = random.integers(0, 4, 30)
    derived = derive_from_probabilities(table, labels)
    for model in range(2):
        for record, label in enumerate(labels):
            p = table[model, record]
            true, rest = p[label], np.delete(p, label)
            modified = -(1 - true) * np.log(true) - (rest * np.log(1 - rest)).sum()
            expected = {
                "loss": np.log(true),
                "confidence": true,
                "entropy": -entropy(p),
                "modified_entropy": -modified,
                "logit": np.log(true / (1 - true)),
            }
            for name, value in expected.items():
                assert derived[name][model, record] == pytest.approx(value), name


def test_log_odds_of_a_loss_are_those_of_its_probability() -> None:
    loss = np.array([1e-12, 1e-3, 0.7, 5.0, 80.0])
    assert logit_of_loss(loss) == pytest.approx(np.log(np.exp(-loss)) - np.log(-np.expm1(-loss)))
    assert logit_of_loss(np.zeros(1))[0] == np.inf


def test_clip_is_half_the_step_of_a_forest_s_votes() -> None:
    votes = np.random.default_rng(0).integers(0, 51, 5_000) / 50
    with np.errstate(divide="ignore"):
        log_odds = np.log(votes) - np.log(1 - votes)
    assert expit(-choose_limit(log_odds)) == pytest.approx(0.01)
    assert expit(-choose_limit(np.array([np.inf, -np.inf]))) == pytest.approx(0.25)


@pytest.mark.parametrize("form", ["loss", "logit", "squared"])
def test_large_losses_leak_as_much_as_the_same_numbers_as_scores(form: str) -> None:
    """Summed losses of sequences have log-odds of hundreds; errors have any size."""
    random = np.random.default_rng(0)
    member = random.random((9, 200)) < 0.5
    loss = 600 + 5 * (random.standard_normal(200) + random.standard_normal(member.shape) * 0.7)
    loss -= 12 * member
    loss *= 100 if form == "squared" else 1
    signals = {"logit": -loss} if form == "logit" else {"loss": loss}
    table = privnets.audit_signals(signals, member).table["auc"]
    expected = privnets.audit_signals({"score": -loss}, member).table["auc"]
    shared = expected.index.drop("score")
    assert (expected[shared] > 0.95).all()
    # The limit of log-odds moves the largest 1%, which holds no record apart.
    assert table[shared].to_numpy() == pytest.approx(expected[shared].to_numpy(), abs=0.01)
    assert ("rmia_online" in table) == (form != "squared")
    if form != "squared":
        assert table["rmia_online"] > 0.95
        assert table["rmia_offline"] > 0.8


def test_rmia_ratios_are_exact_where_probabilities_underflow() -> None:
    signal, member = many_models(1.0, 6, records=30)
    low = make_signals(100 * signal - 900, member)
    scores = ATTACKS.get("rmia_online").score(low.view)
    values = 100 * signal - 900
    ratios = np.full(values.shape, np.nan)
    for target in range(6):
        for record in range(30):
            inside, outside = sides(values, member, target, record)
            if inside and outside:
                means = [logsumexp(side) - np.log(len(side)) for side in (inside, outside)]
                ratios[target, record] = values[target, record] - np.logaddexp(*means)
    for row, ratio in zip(scores, ratios, strict=True):
        known = ~np.isnan(ratio)
        assert row[known] == pytest.approx(stats.rankdata(ratio[known], "max") / known.sum())


@pytest.mark.parametrize("name", WITH_REFERENCES)
@pytest.mark.parametrize("noise", [0.0, 0.7])
@pytest.mark.parametrize("target", [None, 0])
def test_counts_of_references_tell_no_membership_in_balanced_designs(name, noise, target) -> None:
    """Each record is in four of eight models: a member has one reference less with the record."""
    models = make_model_signals(0.0, 8, 3_000, balanced=True, noise=noise)
    if target is not None:
        models = replace(models, targets=np.array([target]))
    scores = ATTACKS.get(name).score(models.view)
    area = ScoredTrials(scores, models.target_member).area()
    assert abs(area.value - 0.5) <= 1.5 * (area.high - area.value)
    for side in (True, False):
        assert (models.view.moments(member=side).count == 3).all()


def test_references_of_independent_memberships_are_all_used() -> None:
    models = make_model_signals(0.0)
    count = sum(models.view.moments(member=side).count for side in (True, False))
    assert (count == 15).all()


def test_a_signal_that_is_no_number_is_refused() -> None:
    signal, member = many_models(1.0)
    models = make_signals(signal, member)
    wrong = np.where(np.arange(signal.shape[1]) == 3, np.nan, signal)
    with pytest.raises(privnets.AuditError, match="must be numbers; got nan"):
        replace(models, signal=wrong)
    with pytest.raises(privnets.AuditError, match="'logit' must be numbers; got nan"):
        replace(models, values={"logit": wrong})


def test_an_attack_with_equal_scores_is_named() -> None:
    member = many_models(1.0, models=1)[1]
    audit = privnets.audit_signals({"score": np.ones(member.shape), "loss": member * 1.0}, member)
    assert "Equal scores for all trials: score." in audit.basis
