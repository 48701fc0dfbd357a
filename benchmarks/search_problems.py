"""Simulated trade-offs for comparing search algorithms: two objectives in microseconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Final

import moocore
import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

Array = NDArray[np.float64]
Params = Mapping[str, Any]

_MARGIN: Final = 0.1


@dataclass(frozen=True)
class Problem:
    """A trade-off between leakage, to minimise, and utility, to maximise.

    Attributes:
        space: Knobs.
        values: Noiseless leakage and utility; None where training fails.
        grid: Values per knob of the grid that a search is measured against.
        noise: Standard deviation between seeds, as a share of the front's extent.
    """

    space: Mapping[str, BaseDistribution]
    values: Callable[[Params], tuple[float, float] | None]
    grid: Sequence[int]
    noise: float

    @cached_property
    def grid_axes(self) -> dict[str, list[Any]]:
        """Evenly spaced values of each knob."""
        pairs = zip(self.space.items(), self.grid, strict=True)
        return {name: _grid_values(distribution, count) for (name, distribution), count in pairs}

    @cached_property
    def grid_points(self) -> list[Params]:
        """Every combination of the values in `grid_axes`."""
        combinations = product(*self.grid_axes.values())
        return [dict(zip(self.space, values, strict=True)) for values in combinations]

    @cached_property
    def failing(self) -> float:
        """Share of the grid where training fails."""
        return float(np.mean([self.values(point) is None for point in self.grid_points]))

    @cached_property
    def noise_std(self) -> Array:
        """Standard deviation between seeds of leakage and utility."""
        return self.noise * np.ptp(self._front, axis=0)

    def hypervolume(self, points: Sequence[Params]) -> float:
        """Hypervolume of the noiseless values of points, as a share of the grid's."""
        corner = self._front.max(axis=0) + _MARGIN * np.ptp(self._front, axis=0)
        whole = moocore.hypervolume(self._front, ref=corner)
        return float(moocore.hypervolume(self._minimized(points), ref=corner) / whole)

    @cached_property
    def _front(self) -> Array:
        values = self._minimized(self.grid_points)
        return values[moocore.is_nondominated(values)]

    def _minimized(self, points: Sequence[Params]) -> Array:
        values = [value for point in points if (value := self.values(point)) is not None]
        return np.array(values, dtype=np.float64).reshape(-1, 2) * [1.0, -1.0]


def _grid_values(distribution: BaseDistribution, count: int) -> list[Any]:
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    spaced = np.geomspace if distribution.log else np.linspace
    values = spaced(distribution.low, distribution.high, count).tolist()
    return [round(v) if isinstance(distribution, IntDistribution) else v for v in values]


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _gaussian(params: Params) -> tuple[float, float]:
    """Exact leakage and utility of one noisy linear release of correlated Gaussian variables."""
    angle, noise = math.pi * (params["weight"] - 0.5), params["sigma"]
    variance = 1 + noise**2
    secret = 0.5 * math.cos(angle) + math.sqrt(0.75) * math.sin(angle)
    leakage = -0.5 * math.log1p(-(secret**2) / variance)
    return leakage, math.cos(angle) ** 2 / variance


def _ridge(params: Params) -> tuple[float, float]:
    """Trade-off along the noise, worse on both sides of a curved ridge of the weight."""
    position = math.log10(params["sigma"] / 0.01) / 3
    square = ((params["weight"] - 0.25 - 0.5 * (1 - position) ** 2) / 0.12) ** 2
    loss = 0.18 * square / (1 + 0.3 * square)
    return _logistic(9 * (0.45 - position)) + loss, _logistic(8 * (0.62 - position)) - loss


def _noisy_release(params: Params) -> tuple[float, float]:
    """Training choices with an optimum, and release noise that trades leakage for utility."""
    rate, size = (math.log10(params["rate"]) + 4) / 4, params["size"] / 64
    noise = math.log10(params["sigma"] / 0.01) / 3
    quality = math.exp(-((rate - 0.6) ** 2) / 0.08 - (size - 0.45 - 0.3 * noise) ** 2 / 0.2)
    excess = 0.25 * math.exp(-((rate - 0.9) ** 2) / 0.05) + 0.15 * (1 - quality)
    leakage = _logistic(7 * (0.5 - noise)) * (0.7 + 0.3 * size) + excess
    return leakage, quality * (1 - noise**2) - 0.1 * (1 - size) * (1 - noise)


def _mixed_knobs(params: Params) -> tuple[float, float] | None:
    """Mixed knobs, with training that diverges at high rates in deep networks."""
    position = math.log10(params["sigma"] / 0.01) / 3
    depth, choice = (params["depth"] - 1) / 7, ["mlp", "cnn", "linear"].index(params["model"])
    if 0.6 * (1 - position) + 0.5 * params["weight"] + 0.25 * depth + 0.1 * (choice == 2) > 0.95:
        return None
    square = ((params["weight"] - 0.3 - 0.3 * position) / 0.2) ** 2 + ((depth - 0.55) / 0.4) ** 2
    square += [0.0, 0.6, 1.2][choice] * (1.3 - position)
    loss = 0.12 * square / (1 + 0.3 * square)
    return _logistic(8 * (0.5 - position)) + loss, _logistic(8 * (0.55 - position)) - loss


_SIGMA: Final = FloatDistribution(0.01, 10.0, log=True)
_WEIGHT: Final = FloatDistribution(0.0, 1.0)

PROBLEMS: Final[Mapping[str, Problem]] = {
    "gaussian": Problem({"weight": _WEIGHT, "sigma": _SIGMA}, _gaussian, (20, 20), 0.05),
    "ridge": Problem({"weight": _WEIGHT, "sigma": _SIGMA}, _ridge, (20, 20), 0.08),
    "noisy release": Problem(
        {
            "rate": FloatDistribution(1e-4, 1.0, log=True),
            "size": IntDistribution(4, 64),
            "sigma": _SIGMA,
        },
        _noisy_release,
        (8, 7, 7),
        0.08,
    ),
    "mixed": Problem(
        {
            "sigma": _SIGMA,
            "weight": _WEIGHT,
            "depth": IntDistribution(1, 8),
            "model": CategoricalDistribution(["mlp", "cnn", "linear"]),
        },
        _mixed_knobs,
        (9, 5, 3, 3),
        0.1,
    ),
}
