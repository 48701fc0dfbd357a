"""Which training sets hold which of the asked records, where each model serves all of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privnets.membership.sampling import Indices, distinct_subsets

# Models with each record that each half needs before anything can be fitted to them.
LEAST_MEMBERS = 4
# With this many expected by chance in each half, chance is left to itself.
_ENOUGH_BY_CHANCE = 24
_LARGEST_SHARE = 0.25


def members_per_half(population: int, asked: int, size: int, count: int) -> int | None:
    """In how many training sets of each half an asked record is put; None leaves it to chance.

    Chance serves where n/N is not small: every set is then a uniform subset. Otherwise each record
    is put into a share of the sets that is small enough for the asked records together to fill
    about an eighth of a set, raised where that gives a record fewer than `LEAST_MEMBERS` models.

    Args:
        population: N.
        asked: R.
        size: n.
        count: Training sets, two halves together.
    """
    half, chance = count // 2, size / population
    if chance * half >= _ENOUGH_BY_CHANCE:
        return None
    wanted = max(chance, size / (8 * asked), LEAST_MEMBERS / half)
    return max(1, math.floor(half * min(_most(asked, size), wanted) + 1e-9))


def fewest_sets(asked: int, size: int) -> int:
    """Training sets that give every asked record `LEAST_MEMBERS` models in each half."""
    return 2 * math.ceil(LEAST_MEMBERS / _most(asked, size))


def _most(asked: int, size: int) -> float:
    # Half of a training set at most, lest the asked records make a universe of their own.
    return min(_LARGEST_SHARE, size / (2 * asked))


def shared_subsets(
    random: np.random.Generator,
    population: int,
    records: NDArray[np.int64],
    size: int,
    count: int,
) -> tuple[Indices, NDArray[np.bool_]]:
    """Training sets that serve many records at once.

    Each record is in a fixed number of sets of each half, chosen for it alone; the rest of a set
    is a uniform subset of the records that are not asked. A record that joins therefore takes the
    place of one of those, and both hypotheses hold exactly `size` records. What the design costs
    is a little variance among a record's companions: some of them come and go by this design
    rather than by chance.

    Args:
        random: Source of the draws.
        population: Records in the universe; `records` aside it needs at least `size`.
        records: Distinct records whose membership is asked, shape [R].
        size: Records in a training set.
        count: Sets wanted, an even number; the first half is one fold.

    Returns:
        Subsets, shape [count, size], and membership of the records, shape [R, count].

    Raises:
        ValueError: If the sets have no room for every record.
    """
    each = members_per_half(population, len(records), size, count)
    if each is None:
        rows = distinct_subsets(random, population, size, count)
        return rows, _membership(rows, records, population)
    member = np.concatenate(
        [_assigned(random, len(records), each, size, count // 2) for _ in range(2)], axis=1
    )
    others = np.setdiff1d(np.arange(population, dtype=np.int32), records)
    rows = others[distinct_subsets(random, len(others), size, count)]
    for row, inside in zip(rows, member.T, strict=True):
        chosen = records[inside]
        row[random.permutation(size)[: len(chosen)]] = chosen
    return rows, member


def _membership(rows: Indices, records: NDArray[np.int64], population: int) -> NDArray[np.bool_]:
    inside = np.zeros((len(rows), population), dtype=bool)
    np.put_along_axis(inside, rows.astype(np.int64), True, axis=1)
    return np.ascontiguousarray(inside[:, records].T)


def _assigned(
    random: np.random.Generator, asked: int, each: int, size: int, count: int
) -> NDArray[np.bool_]:
    """Each record in `each` of `count` sets, no set holding more than `size`."""
    if 2 * asked * each > count * size:
        raise ValueError(f"{asked} records need more room than {count} sets of {size} have.")
    order = random.random((asked, count)).argsort(axis=1)
    member = np.zeros((asked, count), dtype=bool)
    np.put_along_axis(member, order[:, :each], True, axis=1)
    while (held := member.sum(axis=0)).max() > size:
        crowded = int(held.argmax())
        record = random.choice(np.flatnonzero(member[:, crowded]))
        free = np.flatnonzero(~member[record] & (held < size))
        member[record, crowded] = False
        member[record, random.choice(free)] = True
    return member
