"""Success within groups against slow counts; coverage of intervals of groups and differences."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from privnets.statistics.groups import Group, cross_chosen_extremes, largest_differences
from privnets.statistics.roc import ScoredTrials


def small_integers(seed: int, models: int) -> tuple[Group, np.ndarray]:
    """Tied scores, a fifth of them unknown, and decisions apart from them; labels of three groups.

    Records of group 1 score higher, and those of group 2 leak more.
    """
    random = np.random.default_rng(seed)
    labels = random.choice([2, 0, 1], 150)
    member = random.random((models, 150)) < 0.5
    score = random.integers(0, 6, member.shape) + 4.0 * (labels == 1) + 2.0 * member * labels
    score[random.random(member.shape) < 0.2] = np.nan
    return Group(ScoredTrials(score, member), random.random(member.shape) < 0.3), labels


def slow_success(whole: Group, columns: np.ndarray) -> dict[str, float]:
    """Metrics of the records of a group, counted one trial at a time."""
    score, member = whole.trials.score, whole.trials.member
    places = [(t, r) for t in range(len(score)) for r in columns if not np.isnan(score[t, r])]
    inside = [place for place in places if member[place]]
    outside = [place for place in places if not member[place]]
    called = [sum(whole.decision[p] for p in side) / len(side) for side in (inside, outside)]
    wins = sum(
        (score[i] > score[o]) + 0.5 * (score[i] == score[o]) for i in inside for o in outside
    )
    found = {"advantage": called[0] - called[1], "auc": wins / len(inside) / len(outside)}
    for rate in (0.1, 0.01):
        shares = []
        for threshold in [-math.inf, *score[~np.isnan(score)]]:
            true, false = (
                sum(score[p] > threshold for p in side) / len(side) for side in (inside, outside)
            )
            shares.append(true if false <= rate else 0.0)
        found[f"tpr_at_fpr_{rate}"] = max(shares)
    return found


@pytest.mark.parametrize("models", [1, 3])
def test_each_group_has_the_numbers_that_counting_its_trials_gives(models: int) -> None:
    whole, labels = small_integers(models, models)
    groups = whole.split(labels)
    assert list(groups) == [0, 1, 2]
    for label, group in groups.items():
        columns = np.flatnonzero(labels == label)
        expected = pytest.approx(slow_success(whole, columns), abs=1e-12)
        assert {key: each.value for key, each in group.intervals().items()} == expected
        assert {key: each.value for key, each in group.estimates().items()} == expected
        assert len(group) == len(columns)


DISTANCE = 1.0
TRUTH = {
    "advantage": 2 * ndtr(DISTANCE / 2) - 1,
    "auc": ndtr(DISTANCE / math.sqrt(2)),
    "tpr_at_fpr_0.1": ndtr(DISTANCE - ndtri(0.9)),
}


def one_model(repeats: int) -> Iterator[Group]:
    """Groups of 60 members and 60 others of one model, among 2,000 records that leak nothing."""
    for seed in range(repeats):
        random = np.random.default_rng(seed)
        labels, member = np.arange(2_000) < 120, np.arange(2_000)[None] % 2 == 0
        score = random.standard_normal(member.shape) + DISTANCE * (member & labels)
        whole = Group(ScoredTrials(score, member), score > DISTANCE / 2)
        yield whole.split(labels)[True]


def many_models(repeats: int) -> Iterator[Group]:
    """Groups of 60 of 200 records, whose scores vary by record, by model, and by trial."""
    for seed in range(repeats):
        random = np.random.default_rng(seed)
        labels, member = np.arange(200) < 60, random.random((30, 200)) < 0.5
        noise = [random.standard_normal(shape) for shape in ((30, 200), (1, 200), (30, 1))]
        score = sum(noise) / math.sqrt(3) + DISTANCE * (member & labels)
        yield Group(ScoredTrials(score, member), score > DISTANCE / 2).split(labels)[True]


@pytest.mark.parametrize("groups", [one_model, many_models])
def test_intervals_and_errors_of_a_group_hold_the_truth(groups) -> None:
    """They rest on the group's own records, and on what its trials share."""
    repeats = 500
    by_interval, by_error = dict.fromkeys(TRUTH, 0.0), dict.fromkeys(TRUTH, 0.0)
    for group in groups(repeats):
        intervals, estimates = group.intervals(), group.estimates()
        for metric, truth in TRUTH.items():
            interval, found = intervals[metric], estimates[metric]
            by_interval[metric] += (interval.low <= truth <= interval.high) / repeats
            by_error[metric] += (abs(found.value - truth) <= 1.96 * found.error) / repeats
    # The standard error of a coverage of 0.95 is 0.01.
    assert min(by_interval.values()) > 0.925
    assert min(by_error.values()) > 0.9  # of the normal distribution, and of a rate with a bias


def decided(random: np.random.Generator, sizes: list[int], advantages: list[float]) -> list[Group]:
    """Groups of one model whose scores are decisions, with rates 1/2 + and - half an advantage."""
    groups = []
    for size, advantage in zip(sizes, advantages, strict=True):
        member = np.arange(size)[None] < size // 2
        decision = random.random(member.shape) < np.where(member, 1 + advantage, 1 - advantage) / 2
        groups.append(Group(ScoredTrials(decision.astype(float), member), decision))
    return groups


@pytest.mark.parametrize(
    ("sizes", "advantages"),
    [
        ([4_000, 4_000, 80], [0.2, 0.0, 0.3]),  # often the two large groups differ by more
        ([200] * 8, [0.0] * 8),  # 28 pairs
        ([60] * 4, [0.7, 0.7, 0.1, 0.1]),
    ],
)
def test_the_interval_of_the_largest_difference_holds_the_largest_true_one(
    sizes: list[int], advantages: list[float]
) -> None:
    truth, held, exceeded, repeats = max(advantages) - min(advantages), 0, 0, 300
    for seed in range(repeats):
        groups = dict(enumerate(decided(np.random.default_rng(seed), sizes, advantages)))
        _, _, found = largest_differences(groups)["advantage"]
        assert 0 <= found.low <= found.value <= found.high
        held += found.low <= truth <= found.high
        exceeded += found.value > truth
    assert held / repeats > 0.93
    assert exceeded / repeats > 0.3


def test_extremes_chosen_on_other_records_are_right_on_average() -> None:
    """Without differences the excess is 0, where that of the extremes themselves is far above."""
    found, plain, repeats = [], [], 400
    for seed in range(repeats):
        groups = decided(np.random.default_rng(seed), [60] * 6, [0.3] * 6)
        found.append([[each.value, each.error] for each in cross_chosen_extremes(groups)])
        values = [group.estimates()["advantage"].value for group in groups]
        plain.append([max(values), max(values) - min(values)])
    values, errors = np.moveaxis(np.array(found), 2, 0)
    standard_error = values.std(0) / math.sqrt(repeats)
    assert np.abs(values.mean(0) - [0.3, 0.0]).max() < 4 * standard_error.max()
    assert (np.mean(plain, axis=0) - [0.3, 0.0]).min() > 8 * standard_error.max()
    # Errors count both halves as one: they are at least the spread.
    assert (errors.mean(0) > values.std(0)).all()


def test_the_most_and_the_least_exposed_group_are_found() -> None:
    random = np.random.default_rng(0)
    groups = decided(random, [2_000] * 3, [0.1, 0.8, 0.4])
    largest, excess = cross_chosen_extremes(groups)
    assert largest.value == pytest.approx(0.8, abs=4 * largest.error)
    assert excess.value == pytest.approx(0.7, abs=4 * excess.error)
    highest, lowest, found = largest_differences(dict(zip("abc", groups, strict=True)))["advantage"]
    assert (highest, lowest) == ("b", "a")
    values = [group.estimates()["advantage"].value for group in groups]
    assert found.value == pytest.approx(max(values) - min(values), abs=1e-12)
