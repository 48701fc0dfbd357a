"""Leakage by group, values at a prevalence, and the page that shows them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from audit_support import gaussian_scores
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier

import privnets


def leaking_wards(records: int = 2_000, seed: int = 0, gap: float = 2.0) -> pd.DataFrame:
    """Scores of which ward `a` leaks by `gap` more standard deviations than `b`; `c` is small."""
    random, member = np.random.default_rng(seed), np.arange(records) % 2 == 0
    ward = np.array(["a", "b", "c"])[random.choice(3, records, p=[0.5, 0.48, 0.02])]
    score = random.standard_normal(records) + member * np.where(ward == "a", 0.3 + gap, 0.3)
    return pd.DataFrame({"score": score, "member": member, "ward": ward})


def test_each_group_has_the_numbers_of_its_own_records() -> None:
    table = leaking_wards()
    audit = privnets.audit_signals(table, groups="ward")
    for ward in "ab":
        part = table[table["ward"] == ward]
        row = audit.groups.loc[ward]
        assert row["auc"] == pytest.approx(roc_auc_score(part["member"], part["score"]), abs=1e-12)
        assert row["members"] == part["member"].sum()
        assert row["advantage.ci_low"] < row["advantage"] < row["advantage.ci_high"]
        alone = privnets.audit_signals(part).table.loc["score"]
        assert row["tpr_at_fpr_0.1"] == alone["tpr_at_fpr_0.1"]
    # Decisions of all records: group advantages average to the total, weighted by both sides.
    assert audit.groups.loc["a", "advantage"] > audit.strongest["advantage"]


def test_small_groups_have_a_reason_instead_of_numbers() -> None:
    audit = privnets.audit_signals(leaking_wards(), groups="ward")
    row = audit.groups.loc["c"]
    assert row["note"] == "too small: 30 members and 30 others are needed"
    assert np.isnan(row["advantage"])
    assert set(audit.disparity[["highest", "lowest"]].to_numpy().ravel()) == {"a", "b"}


def test_the_largest_disparity_is_that_of_the_groups() -> None:
    audit = privnets.audit_signals(leaking_wards(), groups="ward")
    found, areas = audit.disparity.loc["auc"], audit.groups["auc"]
    assert found["difference"] == pytest.approx(areas["a"] - areas["b"])
    assert found["difference.ci_low"] > 0.2
    assert f"{audit.groups.loc['a', 'advantage']:.3f} for a" in audit.verdict


def test_equal_groups_rarely_seem_to_differ() -> None:
    """Of six groups, the largest of 15 differences is shown; its interval holds for all."""
    apart = []
    for seed in range(100):
        scores, member = gaussian_scores(1.0, 600, seed)
        groups = np.random.default_rng(seed + 1_000).integers(0, 6, 600)
        audit = privnets.audit_signals({"score": scores[0]}, member[0], groups=groups)
        apart.append((audit.disparity["difference.ci_low"] > 0).to_numpy())
    assert np.mean(apart, axis=0).max() <= 0.08  # nominal 0.05


def test_groups_may_be_the_classes_and_follow_learned_attacks() -> None:
    random, member = np.random.default_rng(0), np.arange(800) % 2 == 0
    labels = random.integers(0, 2, 800)
    loss = np.abs(random.standard_normal(800)) * np.where(member & (labels == 1), 0.1, 1)
    table = pd.DataFrame({"loss": loss, "label": labels, "member": member})
    audit = privnets.audit_signals(table, groups="label")
    assert audit.family == "learned"
    assert audit.groups.loc[1, "auc"] > 0.85
    assert audit.groups.loc[0, "auc.ci_low"] < 0.5 < audit.groups.loc[0, "auc.ci_high"]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"] * 99, r"groups must have shape \[100\]"),
        ([None, *"ab" * 49, "a"], "groups must not hold missing values"),
        (list(range(100)), "groups must be at most 50; got 100"),
        ("absent", "groups must name the column that has the group of each record"),
    ],
)
def test_groups_that_cannot_be_used_are_refused(groups, message) -> None:
    scores, member = gaussian_scores(1.0, 100)
    with pytest.raises(privnets.AuditError, match=message):
        privnets.audit_signals({"score": scores[0]}, member[0], groups=groups)


def test_groups_must_be_given_to_be_shown() -> None:
    scores, member = gaussian_scores(1.0, 100)
    with pytest.raises(privnets.AuditError, match="no groups were given"):
        _ = privnets.audit_signals({"score": scores[0]}, member[0]).groups


def test_predictive_values_follow_from_bayes_rule() -> None:
    scores, member = gaussian_scores(2.0, 2_000)
    audit = privnets.audit_signals({"score": scores[0]}, member[0])
    row = audit.table.loc["score"]
    found = audit.positive_predictive_value(0.2, 0.1).loc["score"]
    for end in ("", ".ci_low", ".ci_high"):
        true = row[f"tpr_at_fpr_0.1{end}"]
        assert found[f"ppv{end}"] == pytest.approx(0.2 * true / (0.2 * true + 0.8 * 0.1))
    for arguments in ((0.0, 0.1), (0.2, 0.0), (20, 0.1)):
        with pytest.raises(privnets.AuditError, match="must be above 0 and below 1"):
            audit.positive_predictive_value(*arguments)


def test_the_rate_without_false_positives_is_the_share_above_all_others() -> None:
    scores, member = gaussian_scores(2.0, 400)
    audit = privnets.audit_signals({"score": scores[0]}, member[0])
    share = (scores[member] > scores[~member].max()).mean()
    assert audit.table.loc["score", "tpr_at_fpr_0"] == pytest.approx(share)
    assert audit.tpr_at_fpr(0)["score"] == pytest.approx(share)


def test_records_have_the_rate_of_every_attack() -> None:
    random, member = np.random.default_rng(0), np.arange(400) % 2 == 0
    signals = {"score": random.random(400) + member, "loss": random.random(400)}
    records = privnets.audit_signals(signals, member).records
    assert {"false_positive_rate.score", "false_positive_rate.loss"} <= set(records)
    for name, sign in (("score", 1), ("loss", -1)):
        values = sign * signals[name]
        for _, row in records[records["member"] == 1].head(20).iterrows():
            above = (values[~member] >= values[row["record"]]).sum()
            assert row[f"false_positive_rate.{name}"] == pytest.approx((1 + above) / 201)


def test_the_page_names_what_was_audited(tmp_path: Path) -> None:
    random, member = np.random.default_rng(0), np.arange(200) % 2 == 0
    table = random.dirichlet(np.ones(2), 200)
    path = tmp_path / "saved.npz"
    labels = np.where(member, table.argmax(1), random.integers(0, 2, 200))
    np.savez(path, probabilities=table, labels=labels, member=member)
    audit = privnets.audit_signals(path, groups="labels", seed=7)
    audit.answers = [("advantage 0.3 FAILS 0.1", False), ("auc 0.6 passes 0.8", True)]
    page = audit.report(tmp_path / "page.html", title="Ours <1>", model="net").read_text()
    assert "<h1>Ours &lt;1&gt;</h1>" in page
    accuracy = (table.argmax(1) == labels)[~member].mean()
    for text in ("saved.npz", ">net<", "numpy 2", ">7<", "UTC", "Definitions", ">1.000<"):
        assert text in page, text
    assert f">{accuracy:.3f}<" in page
    assert page.count('class="claim agrees"') == page.count('class="claim disagrees"') == 1
    assert "Largest difference between two groups" in page


def test_groups_of_a_fitted_model_may_be_a_column_of_its_records() -> None:
    random = np.random.default_rng(0)
    x = pd.DataFrame({"age": random.random(300), "sex": random.integers(0, 2, 300)})
    y, member = random.integers(0, 2, 300), np.arange(300) % 2 == 0
    model = DecisionTreeClassifier().fit(x[member], y[member])
    audit = privnets.audit_model(model, x, y, member, 4, map=map, groups="sex")
    assert audit.groups["members"].to_dict() == x["sex"][member].value_counts().to_dict()
    assert audit.model == "DecisionTreeClassifier"
    with pytest.raises(privnets.AuditError, match="name a column of x; got 'ward'; columns: age"):
        privnets.audit_model(model, x, y, member, 4, map=map, groups="ward")


def test_a_page_says_that_groups_are_too_small_to_compare(tmp_path):
    score, member = gaussian_scores(1.0, 60)
    audit = privnets.audit_signals({"score": score}, member, groups=np.arange(60) % 3)
    assert audit.disparity.empty
    assert "too small" in audit.report(tmp_path / "page.html").read_text()
