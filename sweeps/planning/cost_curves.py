"""How long stacks take by their size, and which sizes pay."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from privnets.contract import Cost

PACK_SECONDS: Final = 0.05
"""What a pack costs beside its training: a trial, a file of the ledger, a checkpoint's removal."""

# A size is as good as the best within this share of its time per member, and bearable within that.
_AS_GOOD, _BEARABLE = 1.05, 1.4
# What nobody measured is stacked no further than has been seen to pay anywhere, unless it is cheap.
_UNMEASURED, _CHEAP_SECONDS = 16, 1.0


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds that a stack takes, piecewise linear in its size.

    Attributes:
        sizes: Ascending, two or more.
        totals: Seconds of a whole stack of each size.
        memory: Bytes of the device that a member takes.
        measured: Whether it was measured on the machine; else it follows from the cost model.
        complete: Whether a larger stack than the last would not be faster; False where measuring
            ended for another reason.
    """

    sizes: tuple[int, ...]
    totals: tuple[float, ...]
    memory: int
    measured: bool = True
    complete: bool = True

    @classmethod
    def from_cost(cls, cost: Cost) -> CostCurve:
        """As an experiment's cost model has it."""
        totals = (cost.shared + cost.seconds, cost.shared + 2 * cost.seconds)
        return cls((1, 2), totals, cost.memory, measured=False)

    def pack_seconds(self, size: int) -> float:
        """Of a stack, and of what a pack costs beside."""
        return PACK_SECONDS + self.stack_seconds(size)

    def stack_seconds(self, size: int) -> float:
        """Of a stack alone; beyond the sizes that are known on along the last line."""
        right = min(max(bisect_right(self.sizes, size), 1), len(self.sizes) - 1)
        small, large = self.sizes[right - 1 : right + 1]
        low, high = self.totals[right - 1 : right + 1]
        return max(low + (high - low) * (size - small) / (large - small), 0.0)

    def seconds_per_member(self, size: int) -> float:
        """Seconds per member of a pack."""
        return self.pack_seconds(size) / size

    def scale(self, factor: float, memory: int) -> CostCurve:
        """The same form for dearer or cheaper work."""
        totals = tuple(total * factor for total in self.totals)
        return replace(self, totals=totals, memory=memory)


@dataclass(frozen=True, slots=True)
class PackSizes:
    """Which sizes a stack may have.

    Attributes:
        least: The smallest that is bearable.
        good: The smallest that is as good as the best.
        most: The largest that is as good as the best.
    """

    least: int
    good: int
    most: int

    @classmethod
    def of(cls, curve: CostCurve, members: int, memory: int) -> PackSizes:
        """What a curve says.

        Args:
            curve: Of the structure.
            members: How many there are.
            memory: Bytes that a stack may take.
        """
        fitting = max(1, memory // max(curve.memory, 1))
        most = min(members, fitting, _farthest(curve))
        asked = sorted({*_candidates(most), *(size for size in curve.sizes if size <= most)})
        best = min(map(curve.seconds_per_member, asked))
        as_good = [size for size in asked if curve.seconds_per_member(size) <= _AS_GOOD * best]
        bearable = next(
            size for size in asked if curve.seconds_per_member(size) <= _BEARABLE * best
        )
        return cls(bearable, as_good[0], as_good[-1])


def _farthest(curve: CostCurve) -> int:
    """The largest stack that what is known speaks for."""
    last = curve.sizes[-1]
    known = last if curve.measured and curve.complete else max(last, _UNMEASURED)
    cheap = _CHEAP_SECONDS / max(curve.stack_seconds(known) / known, 1e-9)
    return max(known, math.floor(cheap))


def _candidates(most: int) -> Iterator[int]:
    """PackSizes up to `most`, each at most half as large again as the one before; itself included."""  # noqa: E501
    size = 1
    while size < most:
        yield size
        size += max(1, size // 2)
    yield most


def by_doubling(most: int) -> Sequence[int]:
    """1, 2, 4 and so on, up to `most`."""
    return [2**i for i in range(most.bit_length())]
