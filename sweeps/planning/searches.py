"""Search algorithms of this project: a grid, random draws and a Sobol sequence.

With more points, each proposes those that fewer points would have given, and others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Final, final

import numpy as np

from sweeps.errors import FieldError
from sweeps.study.search import Search
from sweeps.study.search_space import Axis, Proposal, grid_points, grid_size, keep_applicable
from sweeps.study.spec import MAX_POINTS, SearchSpec

_SOBOL_BITS: Final = 30


@final
class GridSearch(Search):
    """Every combination of listed values, the last axis changing fastest.

    With `num_points` it is a random subset of that size, in the grid's order.
    """

    name = "grid"

    @classmethod
    def find_errors(cls, space: Mapping[str, Axis], spec: SearchSpec) -> list[FieldError]:
        """Finds intervals, and grids of more than a million combinations."""
        expected = "grid, choice or range, or the search algorithm random or sobol"
        errors = [
            FieldError(("space", name), f"{axis.kind} in a grid search", expected)
            for name, axis in space.items()
            if axis.values() is None
        ]
        if (size := grid_size(space)) > MAX_POINTS:
            errors.append(
                FieldError(("space",), f"{size:,} combinations", f"at most {MAX_POINTS:,}")
            )
        return errors

    def ask(self, count: int) -> list[Proposal]:
        """Proposes the next combinations."""
        return list(islice(self._combinations, count))

    @cached_property
    def _combinations(self) -> Iterator[Proposal]:
        """Combinations that are still to propose."""
        size, wanted = grid_size(self.space), self.spec.num_points
        if wanted is None or wanted >= size:
            return iter(grid_points(self.space))
        order = np.random.default_rng(self.spec.seed).permutation(size)
        chosen = set(order[:wanted].tolist())
        return (point for i, point in enumerate(grid_points(self.space)) if i in chosen)


class _SequenceSearch(Search):
    """Points from a sequence in the unit cube, mapped to the axes."""

    _proposed = 0

    def ask(self, count: int) -> list[Proposal]:
        """Proposes the next points of the sequence."""
        rows = self._sequence(self._proposed + count)[self._proposed :]
        self._proposed += count
        axes = self.space.items()
        points = [{name: axis.at(x) for (name, axis), x in zip(axes, r, strict=True)} for r in rows]
        return [keep_applicable(self.space, point) for point in points]

    @abstractmethod
    def _sequence(self, length: int) -> list[list[float]]:
        """Returns the first `length` points, with one coordinate in [0, 1) per axis."""


@final
class RandomSearch(_SequenceSearch):
    """Independent draws, uniform along each axis."""

    name = "random"

    def _sequence(self, length: int) -> list[list[float]]:
        random = np.random.default_rng(self.spec.seed)
        rows: list[list[float]] = random.random((length, len(self.space))).tolist()
        return rows


@final
class SobolSearch(_SequenceSearch):
    """Scrambled Sobol sequence, which fills the space evenly (Owen, J. Complexity 14, 1998)."""

    name = "sobol"

    def _sequence(self, length: int) -> list[list[float]]:
        from scipy.stats import qmc  # takes a second to load

        seed = self.spec.seed
        engine = qmc.Sobol(len(self.space), scramble=True, bits=_SOBOL_BITS, rng=seed)
        rows: list[list[float]] = engine.random_base2((length - 1).bit_length())[:length].tolist()
        return rows
