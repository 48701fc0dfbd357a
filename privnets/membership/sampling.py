"""Training sets: uniform subsets of distinct records, drawn many at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32]


def distinct_subsets(
    random: np.random.Generator, population: int, size: int, count: int
) -> Indices:
    """Uniform subsets without repeats, in no particular order.

    Indices that repeat within a row are drawn again until none does. What is kept depends only on
    which draws are equal, never on their values: the law of a subset is therefore unchanged by
    any renaming of the population, so every subset is equally likely.

    Args:
        random: Source of the draws.
        population: Indices run from 0 to population - 1.
        size: Of a subset, at most `population`.
        count: Subsets wanted.

    Returns:
        Indices, shape [count, size].

    Raises:
        ValueError: If `size` exceeds `population`.
    """
    if size > population:
        raise ValueError(f"size must be at most the population of {population}; got {size}.")
    if 2 * size > population:
        # Few repeats survive when the smaller of a set and its complement is drawn.
        return _complements(
            distinct_subsets(random, population, population - size, count), population
        )
    rows = random.integers(0, population, size=(count, size), dtype=np.int32)
    rows.sort(axis=1)
    _replace_repeats(random, rows, population)
    return rows


def _replace_repeats(random: np.random.Generator, rows: Indices, population: int) -> None:
    """Draw again, in place, every index that equals another of its (sorted) row."""
    repeated = rows[:, 1:] == rows[:, :-1]
    affected = np.flatnonzero(repeated.any(axis=1))
    place, column = np.divmod(np.flatnonzero(repeated[affected]), max(1, rows.shape[1] - 1))
    # Row and index as one number: rows are sorted, so these are too, and can be searched.
    taken = (rows[affected] + np.arange(len(affected))[:, None] * np.int64(population)).ravel()
    added = np.empty(0, dtype=np.int64)
    while place.size:
        drawn = random.integers(0, population, len(place), dtype=np.int32)
        code = place * np.int64(population) + drawn
        # Searching in order is several times as fast as searching at random.
        order = code.argsort()
        place, column, drawn, code = place[order], column[order], drawn[order], code[order]
        fits = ~(_within(code, taken) | _within(code, added))
        fits[1:] &= code[1:] != code[:-1]
        rows[affected[place[fits]], column[fits] + 1] = drawn[fits]
        added = np.sort(np.concatenate([added, code[fits]]))
        place, column = place[~fits], column[~fits]


def _within(values: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not ordered.size:
        return np.zeros(len(values), dtype=bool)
    nearest = np.searchsorted(ordered, values).clip(max=len(ordered) - 1)
    found: NDArray[np.bool_] = ordered[nearest] == values
    return found


def _complements(rows: Indices, population: int) -> Indices:
    absent = np.ones((len(rows), population), dtype=bool)
    np.put_along_axis(absent, rows, False, axis=1)
    return np.nonzero(absent)[1].astype(np.int32).reshape(len(rows), population - rows.shape[1])


def training_pairs(
    random: np.random.Generator, population: int, records: NDArray[np.int64], size: int
) -> tuple[Indices, Indices]:
    """Training sets without a record, and the one member that the record takes the place of.

    Put the record in the place of the returned member and the result is a uniform training set
    with it: both hypotheses hold exactly `size` records.

    Args:
        random: Source of the draws.
        population: Records in the universe.
        records: The record that stays out of each set, shape [count].
        size: Records in a training set, at most `population - 1`.

    Returns:
        Subsets, shape [count, size], and members replaced, shape [count].
    """
    rows = distinct_subsets(random, population - 1, size, len(records))
    rows += rows >= records[:, None]
    column = random.integers(0, size, len(records))
    return rows, rows[np.arange(len(records)), column]
