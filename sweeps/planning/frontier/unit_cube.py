"""Optuna parameters as coordinates of the unit cube, and as inputs of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

Array = NDArray[np.float64]
Params = dict[str, Any]

_CHOICE_HEIGHT: Final = math.sqrt(0.5)
"""Puts two choices at a distance of 1, like the ends of a number's range."""


@dataclass(frozen=True)
class UnitCube:
    """Parameters with one coordinate each, in [0, 1]; NaN where a trial lacks a parameter.

    Attributes:
        distributions: Distribution of each parameter; each has at least two values.
    """

    distributions: Mapping[str, BaseDistribution]

    def encode(self, trials: Sequence[Params]) -> Array:
        """Returns coordinates, shape [N, P], of the parameter values of trials."""
        columns = [
            [d.to_internal_repr(params[name]) if name in params else math.nan for params in trials]
            for name, d in self.distributions.items()
        ]
        return np.column_stack(self._map(_fractions_of, map(np.array, columns)))

    def decode(self, row: Array) -> Params:
        """Returns the parameter values nearest to coordinates, shape [P]."""
        values = [float(column[0]) for column in self._map(values_at, row[:, None])]
        pairs = zip(self.distributions.items(), values, strict=True)
        return {name: d.to_external_repr(v) for (name, d), v in pairs if not math.isnan(v)}

    def round(self, rows: Array) -> Array:
        """Moves coordinates to the nearest ones that parameter values have."""
        return np.column_stack(self._map(_fractions_of, self._map(values_at, rows.T)))

    def inputs(self, rows: Array) -> Array:
        """Returns inputs of a model, shape [N, D]: a column for each number and each choice.

        An absent number is in the middle, an absent choice at equal distance from all.
        """
        return np.column_stack(self._map(_inputs_of, rows.T))

    @property
    def groups(self) -> NDArray[np.intp]:
        """Number of the parameter of each column of `inputs`, shape [D]."""
        choices = [getattr(d, "choices", (None,)) for d in self.distributions.values()]
        return np.repeat(np.arange(len(choices)), [len(values) for values in choices])

    def _map(
        self, function: Callable[[BaseDistribution, Array], Array], columns: Iterable[Array]
    ) -> list[Array]:
        return [function(d, c) for d, c in zip(self.distributions.values(), columns, strict=True)]


def values_at(distribution: BaseDistribution, fractions: Array) -> Array:
    """Returns values, in Optuna's internal form, at fractions in [0, 1] of a parameter's range."""
    start, length, count = _range(distribution)
    if count is not None:
        steps = np.clip(np.floor(fractions * count), 0, count - 1)
        values = start + length / max(count - 1, 1) * steps
    else:
        values = start + length * fractions
    if getattr(distribution, "log", False):
        values = np.exp(values)
    if isinstance(distribution, IntDistribution):
        values = np.rint(values)
    if isinstance(distribution, FloatDistribution | IntDistribution):
        values = np.clip(values, distribution.low, distribution.high)
    return values


def _fractions_of(distribution: BaseDistribution, values: Array) -> Array:
    start, length, count = _range(distribution)
    if getattr(distribution, "log", False):
        values = np.log(values)
    if count is None:
        return (values - start) / length
    return ((values - start) * ((count - 1) / length) + 0.5) / count


def _inputs_of(distribution: BaseDistribution, fractions: Array) -> Array:
    if isinstance(distribution, CategoricalDistribution):
        choices = np.arange(len(distribution.choices))
        chosen: Array = _CHOICE_HEIGHT * (values_at(distribution, fractions)[:, None] == choices)
        return chosen
    return np.where(np.isnan(fractions), 0.5, fractions)


def _range(distribution: BaseDistribution) -> tuple[float, float, int | None]:
    """Start and length of the range, in logarithms for a log scale, and the number of values.

    The number is None where values are not listed.
    """
    if isinstance(distribution, CategoricalDistribution):
        return 0.0, len(distribution.choices) - 1.0, len(distribution.choices)
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = distribution.low, distribution.high
    if distribution.log:
        # Each integer gets its share of the scale, those at the ends too.
        margin = 0.5 if isinstance(distribution, IntDistribution) else 0.0
        low, high = math.log(low - margin), math.log(high + margin)
        return low, high - low, None
    step = distribution.step
    return low, high - low, None if step is None else round((high - low) / step) + 1
