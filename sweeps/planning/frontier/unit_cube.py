"""Optuna parameters as coordinates of the unit cube, and as inputs of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
        return self._fractions([np.array(column, dtype=np.float64) for column in columns])

    def decode(self, row: Array) -> Params:
        """Returns the parameter values nearest to coordinates, shape [P]."""
        values = [float(column[0]) for column in self._values(row[None])]
        pairs = zip(self.distributions.items(), values, strict=True)
        return {name: d.to_external_repr(v) for (name, d), v in pairs if not math.isnan(v)}

    def round(self, rows: Array) -> Array:
        """Moves coordinates to the nearest ones that parameter values have."""
        return self._fractions(self._values(rows))

    def inputs(self, rows: Array) -> Array:
        """Returns inputs of a model, shape [N, D]: a column for each number and each choice.

        An absent number is in the middle, an absent choice at equal distance from all.
        """
        parts = []
        for distribution, values, column in zip(
            self.distributions.values(), self._values(rows), rows.T, strict=True
        ):
            if isinstance(distribution, CategoricalDistribution):
                choices = np.arange(len(distribution.choices))
                parts.append(_CHOICE_HEIGHT * (values[:, None] == choices))
            else:
                parts.append(np.where(np.isnan(column), 0.5, column)[:, None])
        return np.concatenate(parts, axis=1)

    @property
    def groups(self) -> NDArray[np.intp]:
        """Number of the parameter of each column of `inputs`, shape [D]."""
        choices = [getattr(d, "choices", (None,)) for d in self.distributions.values()]
        return np.repeat(np.arange(len(choices)), [len(values) for values in choices])

    def _values(self, rows: Array) -> list[Array]:
        pairs = zip(self.distributions.values(), rows.T, strict=True)
        return [values_at(distribution, column) for distribution, column in pairs]

    def _fractions(self, columns: Sequence[Array]) -> Array:
        pairs = zip(self.distributions.values(), columns, strict=True)
        return np.column_stack(
            [_fractions_of(distribution, values) for distribution, values in pairs]
        )


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
        return (values - start) / (length or 1.0)
    return ((values - start) * ((count - 1) / (length or 1.0)) + 0.5) / count


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
