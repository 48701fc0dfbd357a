"""Which points of a space are tried: a grid, random draws, or a Sobol sequence.

Every algorithm is a sequence fixed by the search seed, so that more points of the same study
begin with the points that fewer had, which are not trained again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from privnets.points import Scalar
from sweeps.study.complaints import Complaint
from sweeps.study.search_space import Axis
from sweeps.study.spec import MAX_POINTS, SearchSpec

_SOBOL_BITS: Final = 30
_SOBOL_DIMENSIONS: Final = 21_201

Proposal = dict[str, Scalar]


def complaints(space: Mapping[str, Axis], search: SearchSpec) -> list[Complaint]:
    """What keeps an algorithm from searching a space."""
    if search.algorithm == "grid":
        return _grid_complaints(space)
    found = []
    if search.num_points is None:
        allowed = f"how many points {search.algorithm} is to draw (or --num-points N)"
        found.append(Complaint(("search", "num_points"), "nothing", allowed))
    if search.algorithm == "sobol" and len(space) > _SOBOL_DIMENSIONS:
        allowed = f"at most {_SOBOL_DIMENSIONS} axes for sobol"
        found.append(Complaint(("space",), f"{len(space)} axes", allowed))
    return found


def propose(space: Mapping[str, Axis], search: SearchSpec) -> list[Proposal]:
    """Points of a space that `complaints` finds nothing against.

    A grid is every combination, the last axis varying fastest; with `num_points` it is that many
    of them, drawn at random by the seed, in the grid's order. Random draws are independent and
    uniform along each axis, as are those of a scrambled Sobol sequence, which fill the space
    evenly (Owen, J. Complexity 14, 1998).

    Args:
        space: Field to axis; empty for the one point that is fixed.
        search: The algorithm, its number of points and its seed.

    Returns:
        One value per field and point; the same values may come twice.
    """
    if not space:
        return [{}]
    if search.algorithm == "grid":
        return list(_grid(space, search))
    count = search.num_points or 0
    shares = (_sobol if search.algorithm == "sobol" else _random)(len(space), count, search.seed)
    axes = space.items()
    return [
        {name: axis.at(share) for (name, axis), share in zip(axes, row, strict=True)}
        for row in shares
    ]


def grid_size(space: Mapping[str, Axis]) -> int:
    """How many combinations the listed values of a space have; a continuum counts as one."""
    return math.prod(len(axis.members() or (None,)) for axis in space.values())


def _grid_complaints(space: Mapping[str, Axis]) -> list[Complaint]:
    found = []
    for name, axis in space.items():
        if axis.members() is None:
            kind = next(iter(type(axis).model_fields))
            allowed = "grid, choice or range, or the search algorithm random or sobol"
            found.append(Complaint(("space", name), f"{kind} in a grid search", allowed))
    if grid_size(space) > MAX_POINTS:
        found.append(
            Complaint(("space",), f"{grid_size(space):,} combinations", f"at most {MAX_POINTS:,}")
        )
    return found


def _grid(space: Mapping[str, Axis], search: SearchSpec) -> Iterator[Proposal]:
    members = [list(axis.members() or ()) for axis in space.values()]
    for index in _chosen(grid_size(space), search):
        yield dict(zip(space, _combination(members, index), strict=True))


def _chosen(total: int, search: SearchSpec) -> Sequence[int]:
    """Positions in a grid: all, or a subset that grows with `num_points`."""
    import numpy as np

    if search.num_points is None or search.num_points >= total:
        return range(total)
    order = np.random.default_rng(search.seed).permutation(total)
    return [int(index) for index in np.sort(order[: search.num_points])]


def _combination(members: Sequence[Sequence[Scalar]], index: int) -> list[Scalar]:
    """The values at a position in the grid, read as a number whose digits are the axes'."""
    values: list[Scalar] = []
    for options in reversed(members):
        index, digit = divmod(index, len(options))
        values.append(options[digit])
    return values[::-1]


def _random(dimensions: int, count: int, seed: int) -> list[list[float]]:
    import numpy as np

    drawn: list[list[float]] = np.random.default_rng(seed).random((count, dimensions)).tolist()
    return drawn


def _sobol(dimensions: int, count: int, seed: int) -> list[list[float]]:
    """The sequence's beginning; scipy wants powers of two to be asked for."""
    from scipy.stats import qmc

    sequence = qmc.Sobol(dimensions, scramble=True, bits=_SOBOL_BITS, rng=seed)
    drawn: list[list[float]] = sequence.random_base2((count - 1).bit_length())[:count].tolist()
    return drawn
