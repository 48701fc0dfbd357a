"""Training sets: distinct, uniform, of exactly n records, and repeatable."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from privnets.membership import leakage
from privnets.membership.training_sets import (
    distinct_subsets,
    fewest_sets,
    members_per_half,
    shared_subsets,
    training_pairs,
)
from privnets.randomness import generator


@given(population=st.integers(2, 60), size=st.integers(1, 60), seed=st.integers(0, 1000))
def test_subsets_hold_distinct_records_of_the_population(population, size, seed):
    size = min(size, population)
    rows = distinct_subsets(generator(seed, "test"), population, size, 20)
    assert rows.shape == (20, size)
    assert rows.min() >= 0
    assert rows.max() < population
    assert all(len(set(row)) == size for row in rows.tolist())


@pytest.mark.parametrize(("population", "size"), [(7, 3), (6, 4), (5, 2)])
def test_every_subset_is_equally_likely(population, size):
    """Chi-square over all subsets; the repair of repeats must not favour any."""
    rows = distinct_subsets(generator(1, "uniform"), population, size, 60_000)
    subsets = {s: k for k, s in enumerate(itertools.combinations(range(population), size))}
    counts = np.bincount([subsets[tuple(sorted(r))] for r in rows.tolist()], minlength=len(subsets))
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_subset_larger_than_the_population_is_refused():
    with pytest.raises(ValueError, match="size must be at most the population of 4; got 5"):
        distinct_subsets(generator(0, "test"), 4, 5, 1)


def test_pairs_hold_n_records_on_both_sides_and_the_record_on_one():
    records = np.repeat(np.arange(10), 200)
    rows, replaced = training_pairs(generator(3, "pairs"), 30, records, 6)
    for row, gone, record in zip(rows.tolist(), replaced.tolist(), records.tolist(), strict=True):
        assert record not in row
        assert len(set(row)) == 6
        with_record = (set(row) - {gone}) | {record}
        assert len(with_record) == 6


def test_the_replaced_member_is_uniform():
    records = np.zeros(40_000, dtype=np.int64)
    rows, replaced = training_pairs(generator(4, "pairs"), 50, records, 5)
    place = (rows == replaced[:, None]).argmax(axis=1)
    assert stats.chisquare(np.bincount(place, minlength=5)).pvalue > 1e-3


@given(
    population=st.integers(40, 90),
    asked=st.integers(4, 15),
    size=st.integers(2, 20),
    half=st.integers(4, 30),
    seed=st.integers(0, 100),
)
def test_shared_sets_report_their_true_membership(population, asked, size, half, seed):
    each = members_per_half(population, asked, size, 2 * half)
    assume(each is None or 2 * half >= fewest_sets(asked, size))
    records = generator(seed, "records").permutation(population)[:asked].astype(np.int64)
    rows, member = shared_subsets(generator(seed, "sets"), population, records, size, 2 * half)
    assert all(len(set(row)) == size for row in rows.tolist())
    truth = np.array([[record in row for row in rows.tolist()] for record in records.tolist()])
    np.testing.assert_array_equal(member, truth)
    if each is not None:
        assert set(member[:, :half].sum(axis=1)) == {each}
        assert set(member[:, half:].sum(axis=1)) == {each}


def test_more_records_than_the_sets_have_room_for_are_refused():
    with pytest.raises(ValueError, match="40 records need more room than 8 sets of 2"):
        shared_subsets(generator(0, "sets"), 1000, np.arange(40, dtype=np.int64), 2, 16)


@given(asked=st.integers(4, 300), size=st.integers(2, 400))
def test_the_fewest_sets_give_every_record_four_models_in_each_half(asked, size):
    count = fewest_sets(asked, size)
    each = members_per_half(10**6, asked, size, count)
    assert each is not None
    assert each >= 4


@pytest.mark.parametrize(
    ("asked", "size", "draws"),
    [
        (8, 20, 8000),
        pytest.param(8, 50, 8000, marks=pytest.mark.slow),
        pytest.param(4, 10, 8000, marks=pytest.mark.slow),
    ],
)
def test_shared_models_give_nearly_the_leakage_of_separate_models(asked, size, draws):
    """theta = the mean of n standard normal records, whose leakage about record x is known.

    J = ((n-1)/n + n/(n-1) - 2 + x^2 (n + n^2/(n-1))/n^2)/2, on average 1/(n - 1). The design
    fixes some companions, which may increase it by about (share of asked records in a set) x
    (share of sets a record is in); see `shared_subsets`.
    """
    random, population, n = np.random.default_rng(0), 100_000, size
    ratios = []
    for seed in range(40):
        x = random.standard_normal(population)
        records = generator(seed, "records").permutation(population)[:asked].astype(np.int64)
        rows, member = shared_subsets(generator(seed, "sets"), population, records, n, draws)
        theta = torch.from_numpy(x[rows].mean(axis=1, keepdims=True))
        found = leakage.jeffreys(leakage.shared_sides(theta, torch.from_numpy(member))).mean()
        square = float((x[records] ** 2).mean())
        truth = ((n - 1) / n + n / (n - 1) - 2 + square * (n + n**2 / (n - 1)) / n**2) / 2
        ratios.append(float(found) / truth)
    share = members_per_half(population, asked, n, draws) / (draws // 2)
    excess = share * share * asked / n
    error = np.std(ratios) / len(ratios) ** 0.5
    assert 1 - 4 * error < np.mean(ratios) < 1 + 1.5 * excess + 4 * error
    assert error < 0.035


def test_streams_of_one_seed_are_independent_and_repeatable():
    first = generator(5, "noise").standard_normal(1000)
    assert np.array_equal(first, generator(5, "noise").standard_normal(1000))
    other = generator(5, "records").standard_normal(1000)
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.15
