"""Model of the objectives, constraints and failures of a study's trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sweeps.planning.frontier.gaussian_process import GaussianProcess, fit_gaussian_process
from sweeps.planning.frontier.unit_cube import Array, UnitCube
from sweeps.planning.frontier.volume import find_front_box, is_nondominated

_WORST: Final = 2.0
_LARGEST: Final = 1e100


@dataclass(frozen=True)
class Outcomes:
    """Finished trials.

    Attributes:
        rows: Coordinates in the unit cube, shape [N, P].
        objectives: Values to minimise, shape [N, K]; NaN for a failed trial.
        constraints: Values that are at most 0 for a feasible trial, shape [N, C]; NaN if unknown.
    """

    rows: Array
    objectives: Array
    constraints: Array

    def equals(self, other: Outcomes) -> bool:
        """Whether the same trials finished with the same outcomes."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(np.array_equal(mine, theirs, equal_nan=True) for mine, theirs in pairs)


class FrontModel:
    """Gaussian processes of objectives, constraints and failures.

    A failure is the value 1 and its absence -1 of a process that is negative where trials succeed.

    Attributes:
        cube: Search space.
        rows: Coordinates of the trials that did not fail, shape [N, P].
        means: Posterior means of their objectives, shape [N, K].
        front: Places in `rows` of the feasible trials that no other one dominates by these means;
            of trials with equal coordinates, the first.
        box: Box of the front.
    """

    def __init__(self, cube: UnitCube, outcomes: Outcomes) -> None:
        """Fits the processes; at least one trial has not failed."""
        self.cube = cube
        failed = np.isnan(outcomes.objectives).any(axis=1)
        self.rows = outcomes.rows[~failed]
        values = _bound(outcomes.objectives[~failed])
        self._objectives = [self._fit(self.rows, column) for column in values.T]
        self._constraints = [self._fit(outcomes.rows, column) for column in outcomes.constraints.T]
        labels = np.where(failed, 1.0, -1.0)
        self._failures = [self._fit(outcomes.rows, labels)] if failed.any() else []
        self.means = self.predict(self.rows)[0]
        _, first = np.unique(np.nan_to_num(self.rows, nan=-1.0), axis=0, return_index=True)
        places = np.sort(first)
        places = places[_success(self._constraints, cube.inputs(self.rows[places])) >= 0.5]
        self.front = places[is_nondominated(self.means[places])]
        self.box = find_front_box(self.means[places] if len(places) else self.means)

    @property
    def noise(self) -> Array:
        """Standard deviation of the noise of each objective, shape [K]."""
        return np.array([model.noise_std for model in self._objectives])

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """Returns means and standard deviations of the objectives, both of shape [M, K]."""
        inputs = self.cube.inputs(rows)
        means, spreads = zip(*(model.predict(inputs) for model in self._objectives), strict=True)
        return np.column_stack(means), np.column_stack(spreads)

    def success(self, rows: Array) -> Array:
        """Returns the probability that a trial neither fails nor is infeasible, shape [M]."""
        return _success([*self._constraints, *self._failures], self.cube.inputs(rows))

    def hoped_gains(self, rows: Array, rays: Array) -> Array:
        """Hypervolume improvements by values one standard deviation better than the means, [M]."""
        means, spreads = self.predict(rows)
        best = self.box.reach(self.means[self.front], rays).max(axis=0, initial=0.0)
        hoped = self.box.reach(means - spreads, rays)
        gains: Array = np.maximum(hoped - best, 0.0).mean(axis=1)
        return gains

    def sample(
        self, rows: Array, finished: NDArray[np.bool_], count: int, random: np.random.Generator
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Draws objectives and success jointly at several places.

        Args:
            rows: Coordinates, shape [M, P].
            finished: Whether a trial succeeded there, shape [M].
            count: Number S of draws.
            random: Generator. Draws at the first rows do not depend on later ones.

        Returns:
            Objectives, shape [S, M, K], and success, shape [S, M].
        """
        inputs = self.cube.inputs(rows)
        models = [*self._objectives, *self._constraints, *self._failures]
        draws = [
            model.sample(inputs, stream.standard_normal((len(rows), count)).T)
            for model, stream in zip(models, random.spawn(len(models)), strict=True)
        ]
        objectives, limits = draws[: len(self._objectives)], draws[len(self._objectives) :]
        success = np.ones((count, len(rows)), dtype=bool)
        for limit in limits[: len(self._constraints)]:
            success &= limit <= 0
        for limit in limits[len(self._constraints) :]:
            success &= (limit <= 0) | finished
        return np.stack(objectives, axis=2), success

    def _fit(self, rows: Array, values: Array) -> GaussianProcess:
        known = np.isfinite(values)
        return fit_gaussian_process(self.cube.inputs(rows[known]), values[known], self.cube.groups)


def _success(models: Sequence[GaussianProcess], inputs: Array) -> Array:
    probability = np.ones(len(inputs))
    for model in models:
        mean, spread = model.predict(inputs)
        probability *= ndtr(-mean / spread)
    return probability


def _bound(values: Array) -> Array:
    """Bounds values beyond the front at twice its extent, since outliers would set the scale."""
    usual = np.abs(values) < _LARGEST
    lowest = values.min(axis=0, where=usual, initial=_LARGEST)
    highest = values.max(axis=0, where=usual, initial=-_LARGEST)
    values = np.clip(values, lowest, highest)
    box = find_front_box(values)
    return np.minimum(values, box.reference + _WORST * box.extent)
