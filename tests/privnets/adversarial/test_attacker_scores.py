"""Scores and calibration of posteriors against closed forms, scikit-learn and the jackknife."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit, log_softmax
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from privnets import measures
from privnets.adversarial.attackers import scores
from privnets.adversarial.attackers.scores import calibrate
from privnets.adversarial.evidence import KnownRows
from privnets.adversarial.problem import class_frequencies

ORDERS = [0.01, 0.5, 0.9, 1 - 1e-7, 1.0, 1 + 1e-7, 1.1, 2.0, 30.0, math.inf]


def _rows(secret: np.ndarray, cluster: np.ndarray | None = None) -> KnownRows:
    records = np.arange(len(secret))
    return KnownRows(
        secret, records, np.zeros_like(records), records if cluster is None else cluster
    )


def _beliefs(count: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Informative posteriors, and secrets drawn from them."""
    random = np.random.default_rng(seed)
    log_p = log_softmax(1.5 * random.standard_normal((count, classes)), axis=1)
    return log_p, np.array([random.choice(classes, p=p) for p in np.exp(log_p)])


def _prior(prior: np.ndarray, secret: np.ndarray) -> np.ndarray:
    """Log probabilities of the prior for every secret."""
    return np.tile(np.log(prior), (len(secret), 1))


@settings(max_examples=40)
@given(
    arrays(np.int64, (3, 4), elements=st.integers(1, 20)),
    st.one_of(st.floats(0, 50), st.just(math.inf)),
)
def test_exact_posterior_on_every_record_of_a_table_gives_arimoto_information(counts, alpha):
    secret, seen = np.divmod(np.repeat(np.arange(12), counts.ravel()), 4)
    joint = counts / counts.sum()
    log_posterior = np.log(joint / joint.sum(0)).T[seen]
    found = scores.leakage(log_posterior, _prior(joint.sum(1), secret), _rows(secret), alpha)
    truth = float(measures.arimoto_mutual_information(joint, alpha))
    assert found.value == pytest.approx(truth, abs=1e-9)


@settings(max_examples=40)
@given(st.integers(0, 50), st.sampled_from(ORDERS))
def test_no_posterior_leaks_more_than_the_exact_one(seed, alpha):
    random = np.random.default_rng(seed)
    counts = random.integers(1, 20, (2, 5))
    secret, seen = np.divmod(np.repeat(np.arange(10), counts.ravel()), 5)
    joint = counts / counts.sum()
    guessed = log_softmax(random.standard_normal((2, 5)), axis=0).T[seen]
    found = scores.leakage(guessed, _prior(joint.sum(1), secret), _rows(secret), alpha)
    assert found.value <= float(measures.arimoto_mutual_information(joint, alpha)) + 1e-9


@pytest.mark.parametrize("alpha", ORDERS)
def test_the_prior_alone_leaks_nothing(alpha):
    prior = np.array([0.7, 0.2, 0.1])
    secret = np.random.default_rng(0).choice(3, 200, p=prior)
    known = _prior(prior, secret)
    assert scores.leakage(known, known, _rows(secret), alpha).value == pytest.approx(0)


@pytest.mark.parametrize("classes", [2, 4])
def test_balanced_accuracy_and_area_agree_with_scikit_learn(classes):
    log_p, secret = _beliefs(500, classes)
    log_p = np.round(log_p, 1)  # ties
    decision = log_p.argmax(1)
    accuracy = scores.balanced_accuracy(decision, _rows(secret), classes)
    assert accuracy.value == pytest.approx(balanced_accuracy_score(secret, decision))
    area = scores.area_under_curve(log_p, _rows(secret)).value
    if classes == 2:
        assert area == pytest.approx(roc_auc_score(secret, log_p[:, 1] - log_p[:, 0]))
    else:
        each = [roc_auc_score(secret == c, log_p[:, c]) for c in range(classes)]
        assert area == pytest.approx(np.mean(each))


def _accuracy(log_p, prior, rows):
    decision = scores.balanced_decision(log_p, prior)
    return scores.balanced_accuracy(decision, rows, len(prior))


def _leakage(log_p, prior, rows, alpha):
    return scores.leakage(log_p, _prior(prior, rows.secret), rows, alpha)


STATISTICS = {
    "balanced_accuracy": _accuracy,
    "auc": lambda log_p, prior, rows: scores.area_under_curve(log_p, rows),
    "leakage": lambda log_p, prior, rows: _leakage(log_p, prior, rows, 1.0),
    "order_half": lambda log_p, prior, rows: _leakage(log_p, prior, rows, 0.5),
    "order_four": lambda log_p, prior, rows: _leakage(log_p, prior, rows, 4.0),
}


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("classes", [2, 3])
def test_errors_are_those_of_the_jackknife_over_clusters(name, classes):
    log_p, secret = _beliefs(400, classes)
    cluster, prior = np.arange(400) // 4, class_frequencies(secret, classes)
    statistic = STATISTICS[name]

    def without(left_out: int) -> float:
        kept = cluster != left_out
        return float(statistic(log_p[kept], prior, _rows(secret[kept], cluster[kept])).value)

    values = np.array([without(c) for c in range(100)])
    jackknife = math.sqrt(99 * values.var())
    assert statistic(log_p, prior, _rows(secret, cluster)).error == pytest.approx(
        jackknife, rel=0.05
    )


@pytest.mark.parametrize("name", STATISTICS)
def test_copies_of_a_record_add_no_certainty(name):
    log_p, secret = _beliefs(300, 2)
    prior, statistic = class_frequencies(secret, 2), STATISTICS[name]
    once = statistic(log_p, prior, _rows(secret))
    twice, origin = np.repeat(log_p, 3, axis=0), np.repeat(np.arange(300), 3)
    clustered = statistic(twice, prior, _rows(secret[origin], origin))
    naive = statistic(twice, prior, _rows(secret[origin]))
    assert clustered.value == pytest.approx(once.value)
    assert clustered.error == pytest.approx(once.error)
    assert naive.error == pytest.approx(once.error / math.sqrt(3), rel=0.01)


def test_the_error_of_a_difference_removes_the_common_error():
    log_p, secret = _beliefs(500, 2)
    prior = class_frequencies(secret, 2)
    estimate = _accuracy(log_p, prior, _rows(secret))
    assert (estimate - estimate).error == 0


def test_balanced_decisions_do_not_depend_on_class_frequencies():
    prior = np.array([0.9, 0.1])
    assert scores.balanced_decision(np.log([[0.85, 0.15], [0.95, 0.05]]), prior).tolist() == [1, 0]


def _gaussian(count: int, seed: int, share: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Exact posteriors of a class from a number that it shifts by 1.5, and the classes."""
    random = np.random.default_rng(seed)
    secret = (random.random(count) < share).astype(np.int64)
    seen = random.standard_normal(count) + 1.5 * secret
    logit = 1.5 * seen - 1.5**2 / 2 + math.log(share / (1 - share))
    return np.log(np.stack([expit(-logit), expit(logit)], 1)), secret


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_calibration_leaves_exact_posteriors_unchanged(share):
    log_p, secret = _gaussian(20_000, 0, share)
    calibrated = calibrate(log_p, secret, np.array([1 - share, share]), 20_000)(log_p)
    assert np.abs(np.exp(calibrated) - np.exp(log_p)).max() < 0.03


def test_calibration_corrects_overconfidence():
    log_p, secret = _gaussian(20_000, 0)
    prior = np.array([0.5, 0.5])
    exaggerated = log_softmax(8 * log_p, axis=1)
    fresh, truth = _gaussian(20_000, 1)
    calibrated = calibrate(exaggerated, secret, prior, 20_000)(log_softmax(8 * fresh, axis=1))
    exact = scores.leakage(fresh, _prior(prior, truth), _rows(truth)).value
    # A few records lie beyond the evidence that calibration believes in.
    found = scores.leakage(calibrated, _prior(prior, truth), _rows(truth)).value
    assert found == pytest.approx(exact, abs=0.01)


def test_calibrated_random_guesses_leak_almost_nothing():
    random = np.random.default_rng(0)
    certain = np.where(random.random((2000, 1)) < 0.5, [[0.0, -np.inf]], [[-np.inf, 0.0]])
    secret = random.integers(0, 2, 2000)
    prior = np.array([0.5, 0.5])
    calibrated = calibrate(certain[:1000], secret[:1000], prior, 1000)(certain[1000:])
    unseen = secret[1000:]
    assert scores.leakage(calibrated, _prior(prior, unseen), _rows(unseen)).value > -0.01


def test_copies_of_a_record_calibrate_as_one():
    """Rows of one origin count as one row."""
    log_p, secret = _gaussian(30, 3)
    prior = np.array([0.5, 0.5])
    once = calibrate(log_p, secret, prior, 30)
    copied = calibrate(np.repeat(log_p, 20, 0), np.repeat(secret, 20), prior, 30)
    np.testing.assert_allclose(copied(log_p), once(log_p), atol=1e-4)
    taken_for_independent = calibrate(np.repeat(log_p, 20, 0), np.repeat(secret, 20), prior, 600)
    assert np.abs(taken_for_independent(log_p) - once(log_p)).max() > 1e-2


def test_class_frequencies_are_positive():
    shares = class_frequencies(np.zeros(9, dtype=np.int64), 2)
    assert shares.tolist() == [0.95, 0.05]
