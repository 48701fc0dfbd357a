"""Training sets: uniform subsets of distinct records, drawn many at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32]


def generator(seed: int, stream: str) -> np.random.Generator:
    """A random source of its own for each purpose, so that one never shifts another."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, *stream.encode()])))


def distinct_subsets(
    random: np.random.Generator, population: int, size: int, count: int
) -> Indices:
    """Uniform subsets without repeats, each in ascending order.

    Indices that repeat within a row are drawn again until none does. Which rows change, and how,
    depends only on which entries are equal, never on the values: the law of a row is therefore
    unchanged by any renaming of the population, so every subset is equally likely.

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
        return _complements(distinct_subsets(random, population, population - size, count), population)
    rows = random.integers(0, population, size=(count, size), dtype=np.int32)
    rows.sort(axis=1)
    pending = np.flatnonzero(_repeats(rows).any(axis=1))
    while pending.size:
        part = rows[pending]
        repeated = _repeats(part)
        part[:, 1:][repeated] = random.integers(0, population, int(repeated.sum()), dtype=np.int32)
        part.sort(axis=1)
        rows[pending] = part
        pending = pending[_repeats(part).any(axis=1)]
    return rows


def _repeats(rows: Indices) -> NDArray[np.bool_]:
    repeated: NDArray[np.bool_] = rows[:, 1:] == rows[:, :-1]
    return repeated


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


def shared_subsets(
    random: np.random.Generator,
    population: int,
    records: NDArray[np.int64],
    size: int,
    count: int,
) -> tuple[Indices, NDArray[np.bool_]]:
    """Training sets that serve many records at once: each holds its share of them.

    Every set holds the same number of the asked records, evenly spread, and fills up from the
    rest of the universe. The share is what chance would give, raised to a tenth of the training
    set (one record at least) so that every record is a member often enough when the universe is
    large. Averaged over the choice of `records` a set is a uniform subset.

    Args:
        random: Source of the draws.
        population: Records in the universe.
        records: Distinct records whose membership is asked, shape [R].
        size: Records in a training set.
        count: Sets wanted.

    Returns:
        Subsets, shape [count, size], and membership of the records, shape [R, count].
    """
    asked = len(records)
    share = _share(population, asked, size)
    chosen = _balanced(random, asked, share, count)
    others = np.setdiff1d(np.arange(population), records)
    rest = distinct_subsets(random, len(others), size - share, count)
    rows = np.concatenate([records[chosen], others[rest]], axis=1).astype(np.int32)
    member = np.zeros((asked, count), dtype=bool)
    member[chosen.T, np.arange(count)] = True
    return rows, member


def _share(population: int, asked: int, size: int) -> int:
    by_chance = round(asked * size / population)
    fewest = max(1, size - (population - asked))
    most = max(1, min(asked // 2, size - 1))
    return max(fewest, min(most, max(by_chance, size // 10)))


def _balanced(
    random: np.random.Generator, asked: int, share: int, count: int
) -> NDArray[np.int64]:
    """Rows of `share` distinct numbers below `asked`, each number about equally often."""
    rows = np.empty((count, share), dtype=np.int64)
    used = np.zeros(asked)
    for row in range(count):
        # Those used least so far go first; random numbers break the ties.
        order = np.lexsort((random.random(asked), used))
        rows[row] = order[:share]
        used[order[:share]] += 1
    return rows
