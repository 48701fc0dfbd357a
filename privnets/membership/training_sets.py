"""Training sets: random subsets of records, and the design that shares them among records.

Linear models are cheap, so each attacked record has training sets of its own, in pairs with and
without it (`training_pairs`). Other models are shared: each training set serves every attacked
record (`shared_subsets`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32]

# Models with each record that each half needs before any attack can be fitted to them.
_MIN_MEMBERS = 4
# A uniform subset serves if this many members are expected in each half.
_ENOUGH_BY_CHANCE = 24
_MAX_SHARE = 0.25


def distinct_subsets(
    random: np.random.Generator, population: int, size: int, count: int
) -> Indices:
    """Draws uniform subsets without repeated indices, in arbitrary order.

    Indices that repeat within a row are drawn again. Which ones are kept depends only on equality
    of draws, not on their values, so renaming the population does not change the distribution:
    every subset is equally likely.

    Returns:
        Indices from 0 to `population` - 1, shape [count, size].
    """
    if size > population:
        raise ValueError(f"size must be at most the population of {population}; got {size}.")
    if 2 * size > population:
        # Drawing the smaller of a set and its complement leaves few repeats to replace.
        absent = np.ones((count, population), dtype=bool)
        left_out = distinct_subsets(random, population, population - size, count)
        np.put_along_axis(absent, left_out, False, axis=1)
        return np.nonzero(absent)[1].astype(np.int32).reshape(count, size)
    rows = random.integers(0, population, size=(count, size), dtype=np.int32)
    rows.sort(axis=1)
    repeated = rows[:, 1:] == rows[:, :-1]
    affected = np.flatnonzero(repeated.any(axis=1))
    row, column = np.divmod(np.flatnonzero(repeated[affected]), max(1, rows.shape[1] - 1))
    # Row and index as one number: sorted, since rows are, so that it can be searched.
    taken = (rows[affected] + np.arange(len(affected))[:, None] * np.int64(population)).ravel()
    added = np.empty(0, dtype=np.int64)
    while row.size:  # draws repeated indices again
        index = random.integers(0, population, len(row), dtype=np.int32)
        code = row * np.int64(population) + index
        # Searching for sorted values is several times faster.
        order = code.argsort()
        row, column, index, code = row[order], column[order], index[order], code[order]
        is_new = ~(_contains(taken, code) | _contains(added, code))
        is_new[1:] &= code[1:] != code[:-1]
        rows[affected[row[is_new]], column[is_new] + 1] = index[is_new]
        added = np.sort(np.concatenate([added, code[is_new]]))
        row, column = row[~is_new], column[~is_new]
    return rows


def _contains(ordered: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each value is in a sorted array."""
    if not ordered.size:
        return np.zeros(len(values), dtype=bool)
    nearest = np.searchsorted(ordered, values).clip(max=len(ordered) - 1)
    is_equal: NDArray[np.bool_] = ordered[nearest] == values
    return is_equal


def training_pairs(
    random: np.random.Generator, population: int, records: NDArray[np.int64], size: int
) -> tuple[Indices, Indices]:
    """Draws training sets without a record, and one member of each for the record to replace.

    Replacing that member by the record gives a uniform training set with the record, so both
    sides have exactly `size` records.

    Args:
        records: Record to leave out of each set, shape [count].

    Returns:
        Subsets, shape [count, size], and members to replace, shape [count].
    """
    rows = distinct_subsets(random, population - 1, size, len(records))
    rows += rows >= records[:, None]
    column = random.integers(0, size, len(records))
    return rows, rows[np.arange(len(records)), column]


def members_per_half(population: int, asked: int, size: int, count: int) -> int | None:
    """Number of the `count / 2` sets in each half with a given record; None leaves it to chance.

    Each record joins a fixed share of the sets, so that attacked records fill about an eighth of a
    set; the share is larger where a record would have fewer than `_MIN_MEMBERS` models. If n/N is
    at least that share, uniform subsets contain each record often enough.
    """
    half, chance = count // 2, size / population
    share = min(_max_share(asked, size), max(size / (8 * asked), _MIN_MEMBERS / half))
    if chance >= share and chance * half >= _ENOUGH_BY_CHANCE:
        return None
    share = min(_max_share(asked, size), max(chance, share))
    return max(1, math.floor(half * share + 1e-9))


def fewest_sets(asked: int, size: int) -> int:
    """Number of training sets that gives every attacked record 4 models in each half."""
    return 2 * math.ceil(_MIN_MEMBERS / _max_share(asked, size))


def _max_share(asked: int, size: int) -> float:
    # Attacked records fill at most half of a training set; the rest are ordinary records.
    return min(_MAX_SHARE, size / (2 * asked))


def shared_subsets(
    random: np.random.Generator, population: int, records: NDArray[np.int64], size: int, count: int
) -> tuple[Indices, NDArray[np.bool_]]:
    """Draws training sets that serve many attacked records at once.

    Each attacked record is in a fixed number of sets of each half, chosen independently; the rest
    of a set is a uniform subset of the other records. A record that joins a set replaces one of
    those, so both sides have exactly `size` records. The cost of this design is a small part of
    the variance among a record's companions, some of which are fixed by design.

    Returns:
        Subsets, shape [count, size], and membership of the attacked records, shape [R, count].
    """
    each = members_per_half(population, len(records), size, count)
    if each is None:
        rows = distinct_subsets(random, population, size, count)
        return rows, find_members(rows, records, population)
    member = np.concatenate(
        [_assign(random, len(records), each, size, count // 2) for _ in range(2)], axis=1
    )
    others = np.setdiff1d(np.arange(population, dtype=np.int32), records)
    rows = others[distinct_subsets(random, len(others), size, count)]
    for row, inside in zip(rows, member.T, strict=True):
        chosen = records[inside]
        row[random.permutation(size)[: len(chosen)]] = chosen
    return rows, member


def find_members(rows: Indices, records: NDArray[np.int64], population: int) -> NDArray[np.bool_]:
    """Whether each record is in each training set [count, size], shape [R, count]."""
    column = np.full(population, len(records))
    column[records] = np.arange(len(records))
    inside = np.zeros((len(rows), len(records) + 1), dtype=bool)
    np.put_along_axis(inside, column[rows], True, axis=1)
    return np.ascontiguousarray(inside[:, :-1].T)


def _assign(
    random: np.random.Generator, asked: int, each: int, size: int, count: int
) -> NDArray[np.bool_]:
    """Assigns each record to `each` of `count` sets, with at most `size` records in a set."""
    if 2 * asked * each > count * size:
        raise ValueError(f"{asked} records need more room than {count} sets of {size} have.")
    order = random.random((asked, count)).argsort(axis=1)
    member = np.zeros((asked, count), dtype=bool)
    np.put_along_axis(member, order[:, :each], True, axis=1)
    while (records_in := member.sum(axis=0)).max() > size:
        crowded = int(records_in.argmax())
        record = random.choice(np.flatnonzero(member[:, crowded]))
        free = np.flatnonzero(~member[record] & (records_in < size))
        member[record, crowded] = False
        member[record, random.choice(free)] = True
    return member
