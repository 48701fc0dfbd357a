"""Tables, the strongest attack, exposed records, ROC curves, the verdict and the page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from audit_support import gaussian_scores, many_models
from scipy.special import ndtr
from sklearn.metrics import roc_auc_score, roc_curve

import privnets
from privnets.statistics.roc import CONVENTIONS, METRICS


@pytest.fixture(scope="module")
def audit() -> privnets.AuditResult:
    signal, member = many_models(1.5, 9, records=200)
    return privnets.audit_signals({"logit": signal}, member)


def test_the_table_has_every_metric_with_its_interval(audit: privnets.AuditResult) -> None:
    assert METRICS == ("advantage", "auc", "tpr_at_fpr_0.1", "tpr_at_fpr_0.01", "tpr_at_fpr_0.001")
    for metric in METRICS:
        low, high = (audit.table[f"{metric}.ci_{end}"] for end in ("low", "high"))
        assert (low <= audit.table[metric] + 1e-12).all()
        assert (audit.table[metric] <= high + 1e-12).all()
    table = audit.table
    for rate in ("0.1", "0.01", "0.001"):
        expected = float(rate) * table["non_members"]
        assert (table[f"expected_false_positives_at_fpr_{rate}"] == expected).all()
    assert set(table["family"]) == {"threshold", "offline", "online"}
    assert audit.unavailable["loss"] == "this signal was not given"


def test_areas_and_advantages_of_gaussian_scores_are_the_closed_forms() -> None:
    scores, member = gaussian_scores(2.0, 20_000)
    row = privnets.audit_signals({"score": scores[0]}, member[0]).table.loc["score"]
    assert row["auc"] == pytest.approx(roc_auc_score(member[0], scores[0]), abs=1e-12)
    # Four standard errors of at most 0.005, and the threshold's own error of second order.
    assert row["auc"] == pytest.approx(ndtr(2 / np.sqrt(2)), abs=0.01)
    assert row["advantage"] == pytest.approx(2 * ndtr(1) - 1, abs=0.025)
    assert row["auc.ci_low"] < ndtr(2 / np.sqrt(2)) < row["auc.ci_high"]


def test_advantages_are_not_flattered_where_nothing_leaks() -> None:
    """Best thresholds on the same records would have a mean advantage of about 0.1."""
    found = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        signals = {"loss": random.random(200), "score": random.random(200)}
        audit = privnets.audit_signals(signals, random.permutation(200) < 100, seed=seed)
        found.append(audit.strongest["advantage"])
    assert abs(np.mean(found)) < 4 * np.std(found, ddof=1) / np.sqrt(len(found))


def test_the_strongest_attack_is_chosen_within_one_family(audit: privnets.AuditResult) -> None:
    families = audit.table["family"]
    assert audit.family == "online"
    for family in audit.families:
        names = str(audit.strongest_by("auc", family).name).split(" / ")
        assert set(families[names]) == {family}
    assert audit.strongest.equals(audit.strongest_by("advantage", "online"))


def test_one_attack_that_both_halves_select_is_reported_as_in_the_table() -> None:
    random = np.random.default_rng(0)
    member = np.arange(400) % 2 == 0
    signals = {"loss": random.random(400), "score": random.random(400) + member}
    audit = privnets.audit_signals(signals, member, family="threshold")
    assert audit.strongest.name == "score"
    assert audit.strongest.equals(audit.table.loc["score"])


def test_attacks_that_only_one_half_selects_are_averaged() -> None:
    """Two useless signals: some seed makes the halves disagree."""
    random = np.random.default_rng(0)
    signals = {"loss": random.random(200), "score": random.random(200)}
    member = np.arange(200) % 2 == 0
    for seed in range(20):
        audit = privnets.audit_signals(signals, member, seed=seed)
        row = audit.strongest
        if " / " not in str(row.name):
            continue
        area = row["auc"]
        assert row["auc.ci_low"] < area < row["auc.ci_high"]
        assert 0.3 < area < 0.7
        assert row["expected_false_positives_at_fpr_0.1"] == pytest.approx(10)
        return
    pytest.fail("the halves never disagreed")


def test_halves_that_share_their_models_do_not_narrow_the_interval() -> None:
    """Models differ much more than records do, so a half knows as much as all records."""
    random = np.random.default_rng(0)
    member = random.random((5, 2_000)) < 0.5
    leak = np.linspace(0, 3, 5)[:, None] * member
    signals = {name: random.standard_normal(leak.shape) + leak for name in ("score", "logit")}
    for seed in range(20):
        audit = privnets.audit_signals(signals, member, seed=seed)
        row = audit.strongest_by("auc", "threshold")
        if " / " not in str(row.name):
            continue
        width, (one, two) = (
            table["auc.ci_high"] - table["auc.ci_low"]
            for table in (row, audit.table.loc[["score", "logit"]])
        )
        assert width == pytest.approx((one + two) / 2, rel=0.1)
        return
    pytest.fail("the halves never disagreed")


def test_records_at_risk_are_those_whose_signal_moves_when_they_are_members() -> None:
    random = np.random.default_rng(0)
    member = random.random((20, 300)) < 0.5
    risky = np.arange(300) < 15
    signal = random.standard_normal((20, 300)) + 8.0 * (member & risky)
    audit = privnets.audit_signals({"logit": signal}, member)
    exposed = audit.records.loc[audit.records["exposed"], "record"]
    assert set(exposed) == set(range(15))
    assert (audit.records["false_positive_rate"].dropna().diff().dropna() >= 0).all()


def test_records_of_one_model_state_the_share_of_others_that_score_as_high() -> None:
    scores, member = gaussian_scores(1.0, 100)
    records = privnets.audit_signals({"score": scores[0]}, member[0]).records
    outside = scores[0][~member[0]]
    for _, row in records.iterrows():
        if row["member"]:
            above = (outside >= scores[0][row["record"]]).sum()
            expected = (1 + above) / (1 + len(outside))
            assert row["false_positive_rate"] == pytest.approx(expected)
        else:
            assert np.isnan(row["false_positive_rate"])
            assert not row["exposed"]
    assert len(records) == 100


def test_chance_exposes_the_number_of_members_that_the_verdict_states() -> None:
    """With 150 others, one rank of 151 exposes; counting only the others, two would."""
    found = []
    for seed in range(150):
        scores, member = gaussian_scores(0.0, 300, seed)
        audit = privnets.audit_signals({"score": scores[0]}, member[0])
        found.append(audit.records["exposed"].sum())
    assert abs(np.mean(found) - 150 / 151) < 4 * np.std(found, ddof=1) / np.sqrt(len(found))
    assert np.mean(found) < 1.5
    assert "; chance alone exposes about 0.993." in audit.verdict


def test_no_chance_is_stated_for_medians_over_models(audit: privnets.AuditResult) -> None:
    assert "exposed at that rate. A better attack" in audit.verdict


def test_bounds_of_one_model_are_not_called_certified(audit: privnets.AuditResult) -> None:
    scores, member = gaussian_scores(1.0, 100)
    one = privnets.audit_signals({"score": scores[0]}, member[0])
    assert "as if trials were independent; they are not certified bounds" in one.basis
    assert "if trials are independent. Families" in audit.basis


def test_curves_pass_through_the_table_and_their_bands_hold_them(audit) -> None:
    for _, curve in audit.roc.groupby("attack"):
        assert curve["tpr"].is_monotonic_increasing
        assert (curve["ci_low"] <= curve["tpr"] + 1e-12).all()
        assert (curve["tpr"] <= curve["ci_high"] + 1e-12).all()
        assert curve["tpr"].iloc[-1] == 1


def test_a_verdict_is_careful_where_nothing_leaks() -> None:
    scores, member = gaussian_scores(0.0, 400)
    audit = privnets.audit_signals({"score": scores[0]}, member[0])
    assert "cannot tell the leakage from zero" in audit.verdict
    leaking, member = gaussian_scores(2.0, 400)
    audit = privnets.audit_signals({"score": leaking[0]}, member[0])
    assert "the outputs reveal membership" in audit.verdict
    assert "2 false positives expected" in audit.verdict


def likelihoods() -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the true class that are larger for members; and membership."""
    random, member = np.random.default_rng(0), np.arange(600) % 2 == 0
    return np.where(member, random.beta(8, 1.5, 600), random.beta(4, 2, 600)), member


@pytest.mark.parametrize(
    ("name", "sign", "swapped"),
    [
        ("loss", lambda p: np.log(p), False),  # a log-likelihood
        ("logit", lambda p: np.log(1 - p) - np.log(p), False),
        ("score", lambda p: -p, False),
        ("confidence", lambda p: p, True),  # 1 for records of the hold-out
        ("entropy", lambda p: -p * np.log(p), True),
    ],
)
def test_signals_of_the_wrong_sign_are_named(name, sign, swapped) -> None:
    p, member = likelihoods()
    audit = privnets.audit_signals({name: sign(p)}, member != swapped)
    assert audit.inverted_signals == (name,)
    assert f"Members score LOWER than others on `{name}`" in audit.verdict
    assert "Is the sign right?" in repr(audit)
    expected = roc_auc_score(member, p)
    if name != "entropy":
        assert f"the AUC of `{name}` is {1 - expected:.3f}" in audit.inversion


def test_signals_of_the_right_sign_and_useless_ones_are_not_called_inverted() -> None:
    p, member = likelihoods()
    audit = privnets.audit_signals({"confidence": p}, member)
    assert (audit.inverted_signals, audit.inversion) == ((), "")
    found = []
    for seed in range(200):
        scores, member = gaussian_scores(0.0, 200, seed)
        found.append(bool(privnets.audit_signals({"score": scores[0]}, member[0]).inverted_signals))
    assert 0 < np.mean(found) <= 0.06  # nominal: one side of 95%


def test_entropies_do_not_say_that_signs_are_wrong_where_the_loss_says_otherwise() -> None:
    """Members with wrong labels are fitted with doubt; others get confident wrong answers."""
    random, member = np.random.default_rng(0), np.arange(600) % 2 == 0
    true = np.where(member, random.uniform(0.4, 0.7, 600), random.choice([0.02, 0.98], 600))
    signals = {"probabilities": np.stack([true, 1 - true], axis=1)}
    audit = privnets.audit_signals(signals, member, labels=np.zeros(600, int))
    assert audit.table.loc["entropy", "auc.ci_high"] < 0.5 < audit.table.loc["loss", "auc.ci_high"]
    assert audit.inverted_signals == ()


@pytest.mark.parametrize(
    ("members", "others", "expected"),
    [
        # The ROC curve has corners (0, 0), (0, .5), (.5, .5), (.5, 1) and (1, 1).
        ([3, 1], [2, 0], (0.5, 0.5, 0.75)),
        # Tied: (0, 0), (.5, 1) and (1, 1).
        ([1, 1], [1, 0], (0.0, 0.5, 0.5)),
    ],
)
def test_each_convention_reads_a_roc_curve_differently(members, others, expected) -> None:
    score = np.repeat([[*members, *others]], 10, axis=1).astype(float)
    audit = privnets.audit_signals({"score": score[0]}, np.repeat([1, 1, 0, 0], 10))
    found = [audit.tpr_at_fpr(0.25, convention)["score"] for convention in CONVENTIONS]
    assert found == pytest.approx(expected)


def test_interpolated_rates_are_those_of_scikit_learns_curve() -> None:
    random = np.random.default_rng(0)
    member, score = random.random(300) < 0.5, random.integers(0, 40, 300) + 0.0
    audit = privnets.audit_signals({"score": score + 5 * member}, member)
    false, true, _ = roc_curve(member, score + 5 * member)
    for rate in (0.01, 0.1, 0.3):
        found = audit.tpr_at_fpr(rate, "interpolated")["score"]
        assert found == pytest.approx(np.interp(rate, false, true))
        assert found <= audit.tpr_at_fpr(rate, "convex-hull")["score"]
    assert audit.tpr_at_fpr(0.1)["score"] == audit.table.loc["score", "tpr_at_fpr_0.1"]


def test_the_basis_states_models_clipping_and_the_bound(audit: privnets.AuditResult) -> None:
    assert "9 audited models, 8 reference models each, 200 records." in audit.basis
    assert "Log-odds are clipped to [-" in audit.basis
    assert "delta 1e-05 with 95% confidence" in audit.basis
    assert audit.verdict in repr(audit)
    assert audit.not_run == (
        "Not run: loss, confidence, entropy, modified_entropy, score, correctness (this signal was "
        "not given); class_thresholds, quantile_regression, logistic, boosting (it needs the true "
        "classes)."
    )
    assert audit.not_run in repr(audit)
    assert "Not run: loss, " in audit._repr_html_()


def test_the_page_and_the_notebook_show_no_markup_of_users(tmp_path: Path) -> None:
    scores, member = gaussian_scores(1.0, 100)
    hostile = "<script>alert(1)</script>"
    frame = pd.DataFrame({"score": scores[0], "member": member[0]})
    frame["record"] = [f"{hostile}{i}" for i in range(100)]
    audit = privnets.audit_signals(frame)
    page = audit.report(tmp_path / "report.html").read_text()
    assert hostile not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "default-src 'none'" in page
    sources = re.findall(r'(?:src|href)="([^"]{1,30})', page)
    assert len(sources) == 1
    assert sources[0].startswith("data:image/png;base64,")
    assert audit.verdict.split(":")[0] in page
    assert "TPR at FPR 0.01" in page
    assert "tpr_at_fpr" not in page
    assert page.index("<h2>Limits") < page.index("<h2>ROC curves") < page.index("<h2>What was")
    assert "<table" in audit._repr_html_()
    assert "<script" not in audit._repr_html_()


def test_no_reference_attack_runs_where_references_never_have_the_record() -> None:
    """Offline references: only the target was trained on any audited record."""
    random = np.random.default_rng(0)
    member = np.zeros((8, 200), dtype=bool)
    member[0] = random.random(200) < 0.5
    signal = random.standard_normal((8, 200)) + 2.0 * member
    audit = privnets.audit_signals({"logit": signal}, member, target=0)
    assert audit.families == ("threshold", "offline")
    assert "too few records have reference models" in audit.unavailable["bavaria_online"]
    assert audit.table.loc["rmia_offline", "auc"] > 0.8


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        *(
            (lambda audit, limit=limit: audit.check({"advantage": limit}), "must be a number, as a")
            for limit in ("0.1", None, [0.1], 1j, False)
        ),
        (lambda audit: audit.check({3: 0.1}), "metric must be one of advantage, .*; got 3"),
        (
            lambda audit: audit.check([("advantage", 0.1)]),
            r"a dict, as \{'advantage': 0\.1\}; got a",
        ),
        (
            lambda audit: audit.check({"advantage": 0.0}, advantage=0.9),
            r"one limit; got 0 and 0\.9",
        ),
        (lambda audit: audit.strongest_by("accuracy"), "metric must be one of advantage"),
        (
            lambda audit: audit.strongest_by("auc", "learned"),
            "family must be one of threshold, off",
        ),
        (lambda audit: audit.tpr_at_fpr(-0.1), "rate must be at least 0"),
        (lambda audit: audit.tpr_at_fpr(10), "rate must be at least 0 and below 1; got 10"),
        (lambda audit: audit.tpr_at_fpr(0.1, "art"), "convention must be one of at-most"),
    ],
)
def test_wrong_questions_get_one_error(audit: privnets.AuditResult, ask, message) -> None:
    with pytest.raises(privnets.AuditError, match=message):
        ask(audit)


def test_a_gate_without_limits_is_not_true() -> None:
    member = np.arange(60) % 2 == 0
    audit = privnets.audit_signals({"score": np.random.default_rng(0).normal(size=60)}, member)
    assert not audit.check()
    assert audit.check(advantage=0.999).has_passed
