"""Training sets: distinct, uniform, of exactly n records, and repeatable."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privnets.membership.sampling import (
    distinct_subsets,
    generator,
    shared_subsets,
    training_pairs,
)


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


def test_the_member_replaced_is_any_of_the_set_equally_likely():
    records = np.zeros(40_000, dtype=np.int64)
    rows, replaced = training_pairs(generator(4, "pairs"), 50, records, 5)
    place = (rows == replaced[:, None]).argmax(axis=1)
    assert stats.chisquare(np.bincount(place, minlength=5)).pvalue > 1e-3


@given(
    population=st.integers(20, 80),
    asked=st.integers(4, 15),
    size=st.integers(2, 15),
    seed=st.integers(0, 100),
)
def test_shared_sets_tell_membership_truly_and_spread_it_evenly(population, asked, size, seed):
    records = generator(seed, "records").permutation(population)[:asked].astype(np.int64)
    rows, member = shared_subsets(generator(seed, "sets"), population, records, size, 40)
    assert all(len(set(row)) == size for row in rows.tolist())
    truth = np.array([[record in row for row in rows.tolist()] for record in records.tolist()])
    np.testing.assert_array_equal(member, truth)
    times = member.sum(axis=1)
    assert times.max() - times.min() <= 1


def test_every_fold_of_shared_sets_sees_each_record_on_both_sides():
    records = np.arange(50, dtype=np.int64)
    _, member = shared_subsets(generator(0, "sets"), 1797, records, 20, 200)
    for fold in (member[:, :100], member[:, 100:]):
        assert fold.any(axis=1).all()
        assert (~fold).any(axis=1).all()


def test_streams_of_one_seed_are_independent_and_repeatable():
    first = generator(5, "noise").standard_normal(1000)
    assert np.array_equal(first, generator(5, "noise").standard_normal(1000))
    other = generator(5, "records").standard_normal(1000)
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.15
