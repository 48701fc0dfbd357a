"""Success rates against scikit-learn, SciPy and closed forms; coverage of their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from audit_support import gaussian_scores
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr, ndtri
from sklearn.metrics import roc_auc_score, roc_curve

from privnets.statistics.roc import (
    ScoredTrials,
    epsilon_bounds,
    wilson,
)

DISTANCE = 1.5
AREA = ndtr(DISTANCE / math.sqrt(2))
ADVANTAGE = 2 * ndtr(DISTANCE / 2) - 1


def tied_scores(seed: int, models: int = 1, records: int = 90) -> ScoredTrials:
    random = np.random.default_rng(seed)
    member = np.tile(np.arange(records) % 2 == 0, (models, 1))
    return ScoredTrials(random.integers(0, 12, (models, records)) + 2.0 * member, member)


@pytest.mark.parametrize("seed", range(5))
def test_area_equals_that_of_scikit_learn_with_ties(seed: int) -> None:
    trials = tied_scores(seed, models=3)
    expected = roc_auc_score(trials.member.ravel(), trials.score.ravel())
    assert trials.area().value == pytest.approx(expected, abs=1e-12)
    assert trials.area_estimate.value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rate", [0.0, 0.001, 0.01, 0.1, 0.5, 1.0])
def test_rates_equal_those_of_scikit_learn_with_ties(rate: float) -> None:
    for seed in range(5):
        trials = tied_scores(seed)
        false, true, _ = roc_curve(
            trials.member.ravel(), trials.score.ravel(), drop_intermediate=False
        )
        best = true[false <= rate + 1e-12].max()
        assert trials.true_positive_rate(rate).value == pytest.approx(best, abs=1e-12)
        assert trials.rate_estimate(rate).value == pytest.approx(best, abs=1e-12)


def test_best_threshold_has_the_largest_difference_of_the_roc_curve() -> None:
    trials = tied_scores(1)
    false, true, _ = roc_curve(trials.member.ravel(), trials.score.ravel())
    advantage, threshold = trials.best_threshold()
    assert advantage == pytest.approx((true - false).max(), abs=1e-12)
    decided = trials.advantage(trials.score >= threshold)
    assert decided.value == pytest.approx(advantage, abs=1e-12)
    estimate = trials.advantage_estimate(trials.score >= threshold)
    assert estimate.value == pytest.approx(advantage, abs=1e-12)


def test_gaussian_scores_have_their_closed_forms() -> None:
    scores, member = gaussian_scores(DISTANCE, 40_000)
    trials = ScoredTrials(scores, member)
    # Standard errors are at most 1 / sqrt(20,000) each; four of them.
    assert trials.area().value == pytest.approx(AREA, abs=0.012)
    decided = trials.advantage(scores >= DISTANCE / 2)
    assert decided.value == pytest.approx(ADVANTAGE, abs=0.02)
    power = ndtr(DISTANCE - ndtri(0.9))
    assert trials.true_positive_rate(0.1).value == pytest.approx(power, abs=0.025)


def coverage(distance: float, records: int, repeats: int = 400) -> dict[str, float]:
    """Share of intervals that hold the closed form, for one model."""
    area, advantage = ndtr(distance / math.sqrt(2)), 2 * ndtr(distance / 2) - 1
    powers = {rate: ndtr(distance - ndtri(1 - rate)) for rate in (0.1, 0.01)}
    hits = dict.fromkeys(("area", "advantage", *powers), 0.0)
    for seed in range(repeats):
        scores, member = gaussian_scores(distance, records, seed)
        trials = ScoredTrials(scores, member)
        found = {"area": (trials.area(), area)}
        found["advantage"] = (trials.advantage(scores >= distance / 2), advantage)
        found |= {rate: (trials.true_positive_rate(rate), powers[rate]) for rate in powers}
        for key, (interval, truth) in found.items():
            hits[key] += (interval.low <= truth <= interval.high) / repeats
    return hits


@pytest.mark.parametrize(("distance", "records"), [(0.0, 600), (1.0, 600), (1.0, 60), (3.0, 60)])
def test_intervals_of_one_model_hold_the_truth_nearly_always(distance: float, records: int) -> None:
    # Below 0.92 with probability 0.003 if the coverage is 0.95 (400 repeats).
    assert min(coverage(distance, records).values()) > 0.92


def test_intervals_over_models_hold_the_truth_where_records_and_models_differ() -> None:
    hits = np.zeros(2)
    for seed in range(150):
        random = np.random.default_rng(seed)
        member = random.random((12, 150)) < 0.5
        noise = [random.standard_normal(shape) for shape in ((12, 150), (1, 150), (12, 1))]
        trials = ScoredTrials(sum(noise) + member, member)
        spread = math.sqrt(3)  # of a score, given the membership
        for index, (interval, truth) in enumerate(
            [
                (trials.area(), ndtr(1 / spread / math.sqrt(2))),
                (trials.true_positive_rate(0.1), ndtr(1 / spread - ndtri(0.9))),
            ]
        ):
            hits[index] += interval.low <= truth <= interval.high
    assert hits.min() / 150 > 0.9


@pytest.mark.parametrize("shared_models", [True, False])
def test_standard_errors_are_the_spread_of_repeated_trials(shared_models: bool) -> None:
    values, errors = [], []
    for seed in range(150):
        random = np.random.default_rng(seed)
        member = random.random((12, 250)) < 0.5
        of_record, of_model = random.standard_normal((1, 250)), random.standard_normal((12, 1))
        score = random.standard_normal(member.shape) + of_record + 1.2 * member
        trials = ScoredTrials(score + shared_models * of_model, member, shared_models=shared_models)
        estimates = [trials.area_estimate, *(trials.rate_estimate(r) for r in (0.1, 0.05))]
        estimates.append(trials.advantage_estimate(score > 0.6))
        values.append([each.value for each in estimates])
        errors.append([each.error for each in estimates])
    # The relative error of a spread over 150 repeats is 6%.
    assert np.std(values, axis=0) == pytest.approx(np.sqrt(np.mean(np.square(errors), 0)), rel=0.2)


@pytest.mark.parametrize("share", [0.09, 0.11])
def test_a_rate_of_tied_scores_has_an_error_that_holds_the_truth(share: float) -> None:
    """By chance, the highest scores are of more than a tenth of the others, or of fewer."""
    member, rate, held = np.arange(400)[None] < 200, 0.1, 0
    truth = 0.5 if share < rate else 0.0
    for seed in range(300):
        random = np.random.default_rng(seed)
        score = random.random(member.shape) < np.where(member, 0.5, share)
        found = ScoredTrials(score.astype(float), member).rate_estimate(rate)
        held += abs(found.value - truth) <= 1.96 * found.error
    assert held / 300 >= 0.95


def test_an_interval_is_wider_where_models_share_records() -> None:
    random = np.random.default_rng(0)
    member = random.random((10, 200)) < 0.5
    shared = random.standard_normal((1, 200)) + 0.1 * random.standard_normal((10, 200)) + member
    together = ScoredTrials(shared, member).area()
    apart = ScoredTrials(shared.reshape(1, -1), member.reshape(1, -1)).area()
    assert together.high - together.low > 1.15 * (apart.high - apart.low)


@given(
    scores=st.lists(st.floats(-5, 5), min_size=20, max_size=40),
    seed=st.integers(0, 2**16),
    transform=st.sampled_from([np.exp, np.arctan, lambda x: 3 * x - 7, lambda x: x**3]),
)
def test_order_and_increasing_transforms_change_nothing(scores, seed, transform) -> None:
    # Coarse enough that no transform merges two scores.
    values = np.round(np.array([scores]), 2)
    member = np.arange(len(scores))[None] % 2 == 0
    order = np.random.default_rng(seed).permutation(len(scores))
    plain = ScoredTrials(values, member)
    moved = ScoredTrials(values[:, order], member[:, order])
    transformed = ScoredTrials(transform(values), member)
    for other in (moved, transformed):
        for one, two in (
            (plain.area(), other.area()),
            (plain.true_positive_rate(0.1), other.true_positive_rate(0.1)),
        ):
            assert (one.value, one.low, one.high) == pytest.approx((two.value, two.low, two.high))
        assert plain.best_threshold()[0] == pytest.approx(other.best_threshold()[0])
    reversed_area = ScoredTrials(-values, member).area().value
    assert plain.area().value + reversed_area == pytest.approx(1)


@pytest.mark.parametrize(("successes", "size"), [(0, 30), (3, 30), (15, 30), (30, 30)])
def test_wilson_s_interval_is_scipy_s(successes: int, size: int) -> None:
    expected = stats.binomtest(successes, size).proportion_ci(0.95, "wilson")
    found = wilson(successes / size, size, float(ndtri(0.975)))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
@pytest.mark.parametrize(("true", "false"), [(40, 0), (40, 5), (45, 45), (3, 20), (50, 50)])
def test_epsilon_bound_follows_from_clopper_pearson_limits(
    true: int, false: int, delta: float
) -> None:
    size = 50
    # A one-sided limit at 0.025 is an end of the two-sided interval at 0.95.
    ends = [stats.binomtest(k, size).proportion_ci(0.95, "exact") for k in (true, false)]
    least, most = ends[0].low, ends[1].high
    candidates = [0.0]
    for top, base in ((least, most), (1 - most, 1 - least)):
        if top > delta:
            candidates.append(math.log((top - delta) / base))
    found = epsilon_bounds(true / size, false / size, size, size, delta, 0.95)
    assert float(found) == pytest.approx(max(candidates), abs=1e-10)


def test_epsilon_bound_stays_below_the_truth_of_randomised_response() -> None:
    """Randomised response is epsilon-private: an answer is wrong with 1 / (exp(epsilon) + 1)."""
    epsilon, above = 1.0, 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        member = np.arange(400)[None] < 200
        lies = random.random(member.shape) < 1 / (math.exp(epsilon) + 1)
        trials = ScoredTrials((member ^ lies).astype(float), member)
        above += trials.epsilon_at(0.5, 0.0, 0.95) > epsilon
    assert above / 300 <= 0.05


def test_scores_that_are_nan_are_left_out() -> None:
    trials = tied_scores(0, records=40)
    score = trials.score.copy()
    score[0, :10] = np.nan
    kept = ScoredTrials(trials.score[:, 10:], trials.member[:, 10:])
    assert ScoredTrials(score, trials.member).area().value == kept.area().value


def test_a_perfect_attack_has_an_interval_below_one() -> None:
    scores, member = gaussian_scores(50.0, 60)
    trials = ScoredTrials(scores, member)
    for interval in (trials.area(), trials.advantage(scores > 25), trials.true_positive_rate(0.3)):
        assert interval.value == interval.high == 1
        assert 0.5 < interval.low < 0.95


def test_no_lower_end_rests_on_a_rate_without_false_positives() -> None:
    scores, member = gaussian_scores(50.0, 60)
    assert ScoredTrials(scores, member).true_positive_rate(0.001).low == 0


@pytest.mark.parametrize("models", [1, 10])
def test_inflation_widens_every_interval_as_fewer_trials_do(models: int) -> None:
    plain = tied_scores(0, models, records=4_000)
    wide = ScoredTrials(plain.score, plain.member, inflation=4.0)
    decision = plain.score > 6
    pairs = [(each.area(), each.advantage(decision)) for each in (plain, wide)]
    for one, four in zip(*pairs, strict=True):
        assert four.value == one.value
        # Wilson's intervals grow with the root of the variance, but for their centres.
        assert four.high - four.low == pytest.approx(2 * (one.high - one.low), rel=0.05)
    one, four = (each.true_positive_rate(0.2) for each in (plain, wide))
    assert four.value == one.value
    assert four.low < one.low
    assert four.high > one.high
