"""Splits of records that are dealt out in turn, so that every stratum is in every part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def deal(
    strata: NDArray[np.int64], shares: Sequence[int], random: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Split records so that every stratum is in every part with about the same share.

    Records, shuffled within their strata and laid out stratum after stratum, are dealt out in
    turn; so the parts' sizes depend on the number of records alone.

    Args:
        strata: Which stratum each record is in, shape [n].
        shares: Of `sum(shares)` records in a row, how many go to each part.
        random: Shuffles.

    Returns:
        One array of indices for each part, stratum after stratum; together they are all of them.
    """
    shuffled = random.permutation(len(strata))
    order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    part = _turns(shares)[np.arange(len(strata)) % sum(shares)]
    return [order[part == i].astype(np.int64) for i in range(len(shares))]


def dealt(records: int, shares: Sequence[int]) -> list[int]:
    """The sizes of what `deal` returns."""
    whole, rest = divmod(records, sum(shares))
    turns = _turns(shares)[:rest]
    return [whole * share + int((turns == i).sum()) for i, share in enumerate(shares)]


def thinned(part: NDArray[np.int64], size: int | None) -> NDArray[np.int64]:
    """Some records of a part, evenly spaced in it, so that all of its strata stay.

    Args:
        part: From `deal`.
        size: How many; all of them if None.
    """
    if size is None:
        return part
    return part[np.arange(size) * len(part) // size]


def _turns(shares: Sequence[int]) -> NDArray[np.int64]:
    """Which part each of `sum(shares)` records in a row goes to, spread evenly."""
    turns = [((k + 0.5) / share, i) for i, share in enumerate(shares) for k in range(share)]
    return np.array([i for _, i in sorted(turns)])
