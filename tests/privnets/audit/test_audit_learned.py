"""Attacks that learn from half of the records: what they find, and that nothing is flattered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import rankdata

import privnets
from privnets.attacks import ATTACKS, attack_names, learned
from privnets.attacks.view import AttackerView
from privnets.audit.model_signals import ModelSignals
from privnets.audit.selection import cross_fit
from privnets.audit.signals import load_signals
from privnets.statistics.roc import ScoredTrials

LEARNED = [name for name in attack_names("audits") if ATTACKS.get(name).family == "learned"]


def with_known(view: AttackerView, known: np.ndarray, member: np.ndarray | None = None):
    """The view of an attacker who knows the memberships of these records."""
    outputs = replace(view.outputs, known=known)
    return replace(view, outputs=outputs if member is None else replace(outputs, member=member))


def hidden_leak(records: int, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Signals of which members have a middle value: thresholds find nothing; and membership.

    Others have -3 or 3, members 0, with unit Gaussian noise and the class in {0, 1, 2}.
    """
    random, member = np.random.default_rng(seed), np.arange(records) % 2 == 0
    score = np.where(member, 0, random.choice([-3.0, 3.0], records))
    score += random.standard_normal(records)
    return {"score": score, "labels": random.integers(0, 3, records)}, member


def leak_by_class(records: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Scores whose level differs by class much more than by membership; and membership."""
    random, member = np.random.default_rng(0), np.arange(records) % 2 == 0
    labels = random.integers(0, 4, records)
    score = 10 * labels + 2 * member + random.standard_normal(records)
    return {"score": score, "labels": labels}, member


def test_boosting_finds_a_leak_that_no_threshold_finds() -> None:
    signals, member = hidden_leak(2_000)
    table = privnets.audit_signals(signals, member).table
    # The best region is |score| < 1.5 but for terms of exp(-4.5).
    best = 2 * ndtr(1.5) - 1 - (ndtr(4.5) - ndtr(1.5))
    assert table.loc["score", "auc"] == pytest.approx(0.5, abs=0.05)
    assert table.loc["boosting", "advantage"] == pytest.approx(best, abs=0.05)
    assert (
        table.loc["boosting", "advantage.ci_low"]
        <= best
        <= table.loc["boosting", "advantage.ci_high"]
    )


def test_thresholds_of_classes_remove_the_level_of_the_class() -> None:
    signals, member = leak_by_class(2_000)
    areas = privnets.audit_signals(signals, member).table["auc"]
    assert areas["score"] < 0.6
    for name in ("class_thresholds", "quantile_regression", "logistic"):
        assert areas[name] == pytest.approx(ndtr(np.sqrt(2)), abs=0.03), name


def test_class_thresholds_are_moments_of_known_non_members() -> None:
    signals, member = leak_by_class(400)
    models = load_signals(signals, member, "labels")
    known = np.arange(400) < 200
    found = learned.ClassThresholds().score(with_known(models.view, known))[0]
    values, labels = signals["score"], signals["labels"]
    others = known & ~member
    for label in range(4):
        part = values[others & (labels == label)]
        mean = (part.sum() + 5 * values[others].mean()) / (len(part) + 5)
        spread = (np.square(part - mean).sum() + 5 * values[others].var()) / (len(part) + 5)
        expected = (values[labels == label] - mean) / np.sqrt(spread)
        np.testing.assert_allclose(found[labels == label], expected)


@pytest.mark.parametrize("name", LEARNED)
def test_scores_depend_on_memberships_of_known_records_alone(name: str) -> None:
    signals, member = leak_by_class(160)
    known = np.arange(160) < 80
    view, attack = load_signals(signals, member, "labels").view, ATTACKS.get(name)
    scores, of_others, of_known = (
        attack.score(with_known(view, known, np.where(changed, ~member, member)[None]))
        for changed in (False, ~known, known)
    )
    np.testing.assert_array_equal(scores, of_others)
    assert not np.array_equal(scores, of_known)


def test_cross_fitted_scores_are_ranks_within_halves() -> None:
    signals, member = leak_by_class(200)
    models = load_signals(signals, member, "labels")
    first = np.random.default_rng(0).random(200) < 0.5
    found = cross_fit(learned.ClassThresholds(), models.view, (first, ~first))[0]
    for half in (first, ~first):
        scores = learned.ClassThresholds().score(with_known(models.view, ~half))[0, half]
        np.testing.assert_allclose(found[half], rankdata(scores, "max") / half.sum())


def test_halves_that_fit_each_other_need_wider_intervals() -> None:
    """Without leakage both halves err in one direction; the truth is an AUC of 1/2."""
    found, holds, narrow = [], [], []
    for seed in range(200):
        random = np.random.default_rng(seed)
        values = {f"score {i}": random.standard_normal((1, 160)) for i in range(20)}
        member = random.permutation(160)[None] < 80
        first = np.isin(random.permutation(80), np.arange(40))
        half = np.empty(160, bool)
        half[member[0]], half[~member[0]] = first, ~first
        models = ModelSignals(
            values, values["score 0"], None, member, np.array([0]), np.arange(160), np.inf,
            labels=np.zeros(160, dtype=int),
        )  # fmt: skip
        scores = cross_fit(learned.LogisticAttack(), models.view, (half, ~half))
        for inflation, answers in ((2.0, holds), (1.0, narrow)):
            area = ScoredTrials(scores, member, inflation=inflation).area()
            answers.append(area.low <= 0.5 <= area.high)
        found.append(area.value)
    assert abs(np.mean(found) - 0.5) < 4 * np.std(found, ddof=1) / np.sqrt(200)
    assert np.mean(holds) >= 0.93
    assert np.mean(narrow) < 0.92


@pytest.mark.slow
@pytest.mark.parametrize("models", [1, 3])
def test_learned_attacks_find_nothing_where_nothing_leaks(models: int) -> None:
    """Were halves to share what they learn, advantages would lie above 0 on average."""
    found, holds = [], []
    for seed in range(60 if models == 1 else 20):
        random = np.random.default_rng(seed)
        outputs = random.standard_normal((models, 240, 3))
        signals = {"loss": outputs[..., 0], "score": outputs[..., 1], "logit": outputs[..., 2]}
        member = random.permuted(np.tile(np.arange(240) < 120, (models, 1)), axis=1)
        options = {"labels": random.integers(0, 2, 240), "family": "learned", "seed": seed}
        given = {name: each[0] if models == 1 else each for name, each in signals.items()}
        audit = privnets.audit_signals(given, member[0] if models == 1 else member, **options)
        for row in (*(audit.table.loc[name] for name in LEARNED), audit.strongest):
            found.append((row["advantage"], row["auc"] - 0.5))
            for metric, truth in (("advantage", 0.0), ("auc", 0.5)):
                holds.append(row[f"{metric}.ci_low"] <= truth <= row[f"{metric}.ci_high"])
    seeds = len(found) // (len(LEARNED) + 1)
    means = np.array(found).reshape(seeds, -1, 2).mean(1)
    assert (np.abs(means.mean(0)) < 4 * means.std(0, ddof=1) / np.sqrt(seeds)).all()
    assert np.mean(holds) >= 0.93


def test_quantile_regression_uses_the_other_outputs() -> None:
    """Probabilities of three classes: the share of the second class sets the level of the first."""
    random, member = np.random.default_rng(0), np.arange(2_000) % 2 == 0
    share = random.uniform(0.05, 0.95, 2_000)
    true = 1 / (1 + np.exp(-(8 * share - 4 + member + 0.5 * random.standard_normal(2_000))))
    table = np.column_stack([true, (1 - true) * share, (1 - true) * (1 - share)])
    labels = np.zeros(2_000, int)
    found = privnets.audit_signals({"probabilities": table}, member, labels=labels).table["auc"]
    assert found["loss"] < 0.65
    assert found["quantile_regression"] == pytest.approx(ndtr(2 / np.sqrt(2)), abs=0.04)


@pytest.mark.parametrize(
    ("signals", "records", "reason"),
    [
        ({"score": 1.0}, 100, "it needs the true classes"),
        ({"score": 1.0, "labels": 0}, 70, "at least 40 members and 40 others"),
    ],
)
def test_what_cannot_be_learned_says_why(signals, records, reason) -> None:
    random = np.random.default_rng(0)
    given = {
        name: random.random(records) if value else random.integers(0, 2, records)
        for name, value in signals.items()
    }
    audit = privnets.audit_signals(given, np.arange(records) % 2 == 0)
    assert audit.families == ("threshold",)
    assert all(reason in audit.unavailable[name] for name in LEARNED)


def test_many_classes_and_many_records_are_learned_from_in_part(monkeypatch) -> None:
    monkeypatch.setattr(learned, "_MAX_FITTED", 500)
    random, member = np.random.default_rng(0), np.arange(1_000) % 2 == 0
    labels = random.integers(0, 150, 1_000)
    logits = random.standard_normal((1_000, 150))
    logits[np.arange(1_000), labels] += 4 + 4 * member
    table = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    audit = privnets.audit_signals({"probabilities": table}, member, labels=labels)
    assert (audit.table.loc[["boosting", "logistic"], "auc"] > 0.95).all()


def test_correctness_is_that_of_the_largest_probability() -> None:
    random, member = np.random.default_rng(0), np.arange(300) % 2 == 0
    table = random.dirichlet(np.ones(3), 300)
    labels = np.where(member, table.argmax(1), random.integers(0, 3, 300))
    audit = privnets.audit_signals({"probabilities": table}, member, labels=labels)
    wrong = (table.argmax(1) != labels)[~member].mean()
    assert audit.table.loc["correctness", "advantage"] == pytest.approx(wrong)
