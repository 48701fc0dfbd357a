"""Nearest records, by a tree or by comparing all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privnets.adversarial.attackers.classical import MAX_TREE_COLUMNS, nearest_records


def _distances(records: NDArray[np.float32], x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Euclidean distance of every pair."""
    apart = x[:, None].astype(np.float64) - records[None].astype(np.float64)
    return np.asarray(np.sqrt(np.square(apart).sum(2)))


@given(
    seed=st.integers(0, 2**32 - 1),
    columns=st.integers(1, MAX_TREE_COLUMNS + 4),
    records=st.integers(1, 60),
    rounded=st.booleans(),
    data=st.data(),
)
@settings(max_examples=60)
def test_nearest_records_have_the_smallest_distances(
    seed: int, columns: int, records: int, rounded: bool, data: st.DataObject
) -> None:
    """In order, up to rounding; rounded records have equal distances or coincide."""
    count = data.draw(st.integers(1, records))
    random = np.random.default_rng(seed)
    draws = [random.standard_normal((n, columns)) for n in (records, 20)]
    known, x = (np.asarray(np.round(d) if rounded else d, dtype=np.float32) for d in draws)
    found = nearest_records(known, x, count)
    distances = _distances(known, x)
    assert all(len(set(row)) == count for row in found.tolist())
    np.testing.assert_allclose(
        np.take_along_axis(distances, found, 1), np.sort(distances, 1)[:, :count], atol=1e-5
    )


@pytest.mark.parametrize("columns", [MAX_TREE_COLUMNS, MAX_TREE_COLUMNS + 1])
def test_fewer_neighbours_are_the_first_of_more(columns: int) -> None:
    random = np.random.default_rng(0)
    records, x = (random.standard_normal((n, columns)).astype(np.float32) for n in (500, 100))
    few, more = (nearest_records(records, x, count) for count in (7, 31))
    np.testing.assert_array_equal(few, more[:, :7])
