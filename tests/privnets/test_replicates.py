"""Means over replicates: intervals by closed forms, a slow oracle, and simulated coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privnets.points import Replicate, ScoredRecords, TradeoffPoint
from privnets.statistics.replicates import ScoredColumns, Summary, metric_range, summarize_columns

RATE, NUMBER = "utility/accuracy", "privacy/rho_kl"
TRIALS = 3000
LEAST_COVERAGE = 0.93


def summarize(
    values: np.ndarray,
    errors: np.ndarray | float = math.nan,
    sets: np.ndarray | int = -1,
    *,
    key: str = NUMBER,
    size: float = math.nan,
    overlap: float = 1.0,
) -> Summary:
    """Summarises one metric of points with equally many replicates; arrays are [points, R]."""
    count, replicates = values.shape
    own = [np.broadcast_to(each, values.shape).reshape(-1) for each in (errors, sets)]
    scored = ScoredColumns(
        own[1].astype(np.int64), np.full(values.size, size), np.full(values.size, overlap)
    )
    points = np.repeat(np.arange(count), replicates)
    columns = (values.reshape(-1, 1), own[0].astype(float).reshape(-1, 1))
    return summarize_columns([key], *columns, points, count, scored)


def coverage(summary: Summary, truth: float | np.ndarray) -> float:
    """Share of the points whose interval holds the truth."""
    low, high = (end[:, 0] for end in summary.interval())
    return float(((low <= truth) & (truth <= high)).mean())


def plain_coverage(values: np.ndarray, truth: float) -> float:
    """Coverage of Student's interval over replicates, which ignores common test sets."""
    half = stats.t.ppf(0.975, values.shape[1] - 1) * stats.sem(values, axis=1)
    return float((np.abs(values.mean(axis=1) - truth) <= half).mean())


def test_replicates_with_own_test_sets_have_students_interval() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, (1, 9))
    low, high = summarize(values).interval()
    expected = stats.t.interval(0.95, 8, values.mean(), stats.sem(values[0]))
    assert (low[0, 0], high[0, 0]) == pytest.approx(expected)


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0, 5.0])
@pytest.mark.parametrize("replicates", [3, 4, 8])
def test_known_errors_of_own_test_sets_narrow_an_interval_without_losing_its_coverage(
    replicates: int, spread: float
) -> None:
    """Student's interval with the known error as a mere lower limit held the truth always."""
    random = np.random.default_rng(replicates)
    trained = random.normal(0.0, spread, (20_000, replicates))
    values = trained + random.standard_normal(trained.shape)
    assert LEAST_COVERAGE <= coverage(summarize(values, errors=1.0), 0.0) <= 0.99


def test_a_common_test_set_adds_its_error() -> None:
    values = np.array([[0.5, 0.7, 0.9]])
    summary = summarize(values, errors=0.3, sets=0)
    spread = stats.sem(values[0])
    assert summary.error[0, 0] == pytest.approx(math.hypot(spread, 0.3))
    freedom = (spread**2 + 0.09) ** 2 / (spread**4 / 2)
    assert summary.freedom[0, 0] == pytest.approx(freedom), "Satterthwaite"


def test_partly_common_test_sets_add_part_of_the_error() -> None:
    values = np.array([[0.5, 0.7, 0.9]])
    summary = summarize(values, errors=0.3, sets=0, overlap=0.2)
    expected = math.sqrt(stats.sem(values[0]) ** 2 + 0.2 * 0.09)
    assert summary.error[0, 0] == pytest.approx(expected)


def test_replicates_of_one_test_set_count_as_one_cluster() -> None:
    values, sets = np.array([[1.0, 3.0, 6.0, 8.0]]), np.array([[4, 4, 9, 9]])
    summary = summarize(values, errors=0.01, sets=sets)
    assert summary.error[0, 0] == pytest.approx(stats.sem([2.0, 7.0]))
    assert summary.freedom[0, 0] == pytest.approx(1, abs=1e-4)


def test_the_error_is_at_least_that_within_replicates() -> None:
    assert summarize(np.ones((1, 4)), errors=0.2).error[0, 0] == pytest.approx(0.1)


@pytest.mark.parametrize(("right", "records"), [(0, 50), (1, 50), (30, 100), (100, 100)])
def test_a_share_of_one_replicate_has_wilsons_interval(right: int, records: int) -> None:
    share = right / records
    error = math.sqrt(share * (1 - share) / records)
    summary = summarize(np.array([[share]]), errors=error, sets=0, key=RATE, size=records)
    expected = stats.binomtest(right, records).proportion_ci(method="wilson")
    ends = [float(end[0, 0]) for end in summary.interval()]
    assert ends == pytest.approx([expected.low, expected.high], abs=1e-12)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
    st.floats(0, 1),
    st.sampled_from(
        [
            RATE,
            "privacy/attacker_auc",
            "privacy/attacker_recall/women",
            "privacy/attacker_top5_accuracy/observed",
            "privacy/membership_advantage",
            "utility/test_average_precision",
            "floor/utility_label",
            "floor/utility_test_f1",
        ]
    ),
    st.sampled_from([-1, 0]),
)
def test_intervals_of_bounded_metrics_stay_in_range(
    shares: list[float], error: float, key: str, test_set: int
) -> None:
    low_end, high_end = metric_range(key)
    assert math.isfinite(high_end)
    values = low_end + (high_end - low_end) * np.array([shares])
    summary = summarize(values, errors=error, sets=test_set, key=key, size=20)
    narrow, wide = summary.interval(0.5), summary.interval(0.99)
    mean = summary.mean[0, 0]
    ordered = [low_end, wide[0][0, 0], narrow[0][0, 0], mean, narrow[1][0, 0], wide[1][0, 0]]
    assert all(a <= b + 1e-9 for a, b in zip(ordered, [*ordered[1:], high_end], strict=True))


@given(st.integers(0, 2**32 - 1))
def test_columns_equal_a_slow_loop_over_points(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 6, 4)
    points = np.repeat(np.arange(4), sizes)
    values, errors = random.normal(size=(2, len(points), 1))
    sets = random.integers(-1, 3, len(points))
    scored = ScoredColumns(sets, np.full(len(points), np.nan), np.full(len(points), 0.5))
    summary = summarize_columns([NUMBER], values, np.abs(errors), points, 4, scored)
    for point in range(4):
        own = points == point
        expected = slow_error(values[own, 0], np.abs(errors[own, 0]), sets[own].tolist())
        assert summary.error[point, 0] == pytest.approx(expected, nan_ok=True)


def slow_error(values: np.ndarray, errors: np.ndarray, sets: list[int]) -> float:
    """Standard error of one point's mean, in the words of the module."""
    count = len(values)
    if count < 2:
        return float(errors[0]) if count else math.nan
    within = float((errors**2).mean())
    clusters: dict[object, float] = {}
    for row, (value, test_set) in enumerate(zip(values, sets, strict=True)):
        name = ("own", row) if test_set < 0 else ("set", test_set)
        clusters[name] = clusters.get(name, 0.0) + value - values.mean()
    if len(clusters) == 1:
        square = float(values.var(ddof=1)) / count + 0.5 * within
    else:
        total = sum(sum_**2 for sum_ in clusters.values())
        square = total / count**2 * len(clusters) / (len(clusters) - 1)
    return math.sqrt(max(square, within / count))


def test_a_point_summarises_its_replicates_as_a_column_does() -> None:
    scored = ScoredRecords("digits", 300)
    values, error = [0.9, 0.95, 0.93], 0.02
    replicates = tuple(
        Replicate(seed, {RATE: value}, {RATE: error}, scored_on=scored)
        for seed, value in enumerate(values)
    )
    metrics = TradeoffPoint("p", "e", {}, replicates).metrics
    summary = summarize(np.array([values]), errors=error, sets=0, key=RATE, size=300)
    ends = [float(end[0, 0]) for end in summary.interval()]
    assert [metrics[f"{RATE}.ci_low"], metrics[f"{RATE}.ci_high"]] == pytest.approx(ends)
    assert metrics[RATE] == pytest.approx(np.mean(values))


@pytest.mark.parametrize("share", [0.0, 0.002, 0.5, 1.0])
def test_replicates_with_records_of_their_own_state_how_many(share: float) -> None:
    """Without the number, no failure among the records would leave no error at all."""
    error = math.sqrt(share * (1 - share) / 400)
    scored = ScoredRecords(None, 400)
    replicates = [Replicate(s, {RATE: share}, {RATE: error}, scored_on=scored) for s in range(3)]
    metrics = TradeoffPoint("p", "e", {}, tuple(replicates)).metrics
    summary = summarize(np.full((1, 3), share), errors=error, sets=-1, key=RATE, size=400)
    ends = [float(end[0, 0]) for end in summary.interval()]
    assert ends[0] < ends[1]
    assert [metrics[f"{RATE}.ci_low"], metrics[f"{RATE}.ci_high"]] == pytest.approx(ends)


def logistic(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def mean_chance(logit: float, deviation: float) -> float:
    """Mean of the logistic function of a normal number, by Gauss and Hermite's quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    return float(weights @ logistic(logit + deviation * nodes) / weights.sum())


def bernoulli_shares(
    random: np.random.Generator, difficulty: np.ndarray, skill: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of right answers [trials, R] and their errors.

    Args:
        difficulty: Logits of the records, shape [trials, 1 or R, n].
        skill: Logits of the replicates, shape [trials, R].
    """
    chances = logistic(difficulty + skill[..., None])
    right = random.uniform(size=chances.shape) < chances
    shares = right.mean(axis=2)
    return shares, np.sqrt(shares * (1 - shares) / chances.shape[2])


@pytest.mark.parametrize("replicates", [2, 3, 5])
def test_few_replicates_with_a_common_test_set_are_covered(replicates: int) -> None:
    random, records = np.random.default_rng(replicates), 200
    difficulty = random.normal(1.5, 2.0, (TRIALS, 1, records))
    skill = random.normal(0.0, 0.1, (TRIALS, replicates))
    truth = mean_chance(1.5, math.hypot(2.0, 0.1))
    shares, errors = bernoulli_shares(random, difficulty, skill)
    summary = summarize(shares, errors, 0, key=RATE, size=records)
    assert coverage(summary, truth) >= LEAST_COVERAGE
    if replicates > 2:
        assert plain_coverage(shares, truth) < 0.9, "the simulation needs the second variance"


@pytest.mark.parametrize(("replicates", "rotations"), [(16, 10), (12, 4), (6, 3)])
def test_recurring_test_blocks_are_covered(replicates: int, rotations: int) -> None:
    random = np.random.default_rng(rotations)
    sets = np.arange(replicates) % rotations
    blocks = random.normal(0.0, 0.05, (TRIALS, rotations))
    values = 0.7 + blocks[:, sets] + random.normal(0.0, 0.02, (TRIALS, replicates))
    summary = summarize(values, 0.03, np.broadcast_to(sets, values.shape))
    assert coverage(summary, 0.7) >= LEAST_COVERAGE
    assert plain_coverage(values, 0.7) < LEAST_COVERAGE, "the simulation needs clusters"


def test_random_splits_of_one_data_set_are_covered() -> None:
    random, records, size, replicates = np.random.default_rng(5), 600, 120, 8
    difficulty = random.normal(1.0, 2.0, (1000, records))
    picks = random.random((1000, replicates, records)).argsort(axis=2)[..., :size]
    tested = np.take_along_axis(difficulty[:, None], picks.reshape(1000, 1, -1), axis=2)
    skill = random.normal(0.0, 0.1, (1000, replicates))
    truth = mean_chance(1.0, math.hypot(2.0, 0.1))
    tested = tested.reshape(1000, replicates, size)
    shares, errors = bernoulli_shares(random, tested, skill)
    summary = summarize(shares, errors, 0, key=RATE, size=size, overlap=size / records)
    assert coverage(summary, truth) >= LEAST_COVERAGE


@pytest.mark.parametrize("chance", [0.002, 0.01, 0.98, 0.998])
@pytest.mark.parametrize("replicates", [1, 3, 8])
@pytest.mark.parametrize("common", [True, False])
def test_rates_near_0_and_1_are_covered(chance: float, replicates: int, *, common: bool) -> None:
    random, records = np.random.default_rng(round(1000 * chance)), 400
    logit = math.log(chance / (1 - chance))
    shape = (TRIALS, 1 if common else replicates, records)
    difficulty = random.normal(logit, 1.0, shape)
    spread = 0.2 if replicates > 1 else 0.0  # one replicate cannot show its spread
    skill = random.normal(0.0, spread, (TRIALS, replicates))
    truth = mean_chance(logit, math.hypot(1.0, spread))
    shares, errors = bernoulli_shares(random, difficulty, skill)
    summary = summarize(shares, errors, 0 if common else -1, key=RATE, size=records)
    assert coverage(summary, truth) >= LEAST_COVERAGE
    low, high = summary.interval()
    assert ((low >= 0) & (high <= 1)).all()
