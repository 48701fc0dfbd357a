"""Packs of trials by noisy expected hypervolume improvement (Daulton et al., NeurIPS 2021)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import CategoricalDistribution
from scipy.spatial.distance import cdist
from scipy.stats import qmc

from sweeps.planning.frontier.front_model import FrontModel, Outcomes
from sweeps.planning.frontier.unit_cube import Array, UnitCube
from sweeps.planning.frontier.volume import spread_rays

_RAYS: Final = 64
_SAMPLES: Final = 64
_POOL_BITS: Final = 9
_CANDIDATES: Final = 256
_KNOWN: Final = 96
_REPLICATE_EVERY: Final = 4
_LARGE_NOISE: Final = 0.05
_SAME: Final = 1e-9


class PackProposer:
    """Proposes trials one by one, each with the knowledge of those that run.

    Attributes:
        cube: Search space.
        outcomes: Finished trials.
    """

    def __init__(self, cube: UnitCube, outcomes: Outcomes, seed: int) -> None:
        """Fits the model and draws candidates, by the finished trials and the seed alone."""
        self.cube, self.outcomes = cube, outcomes
        self._seed = (seed, len(outcomes.rows))
        self._rays = spread_rays(outcomes.objectives.shape[1], _RAYS)
        self._model = FrontModel(cube, outcomes)
        self._candidates = self._draw_candidates()
        self._known = self._rows_near_front()
        self._running: Array | None = None

    def propose(self, running: Array, number: int) -> Array:
        """Proposes coordinates, shape [P].

        Args:
            running: Coordinates of the running trials, shape [M, P].
            number: Number of the new trial; each fourth may be a replicate of a finished one.
        """
        taken, repeated = _match(running, self._candidates), _match(running, self._model.rows)
        if (
            number % _REPLICATE_EVERY == 0
            and (place := self._place_to_repeat(repeated)) is not None
        ):
            repeat: Array = self._model.rows[place]
            return repeat
        others = running[(taken < 0) & (repeated < 0)]
        if self._running is None or not np.array_equal(others, self._running, equal_nan=True):
            self._sample(others)
        chosen = taken[taken >= 0]
        best = np.maximum(self._best, self._reach[:, chosen].max(axis=1, initial=0.0))
        gains = np.maximum(self._reach - best[:, None], 0.0).mean(axis=(0, 2))
        gains[chosen] = -1.0
        best_row: Array = self._candidates[gains.argmax()]
        return best_row

    def front_uncertainty(self) -> float:
        """Half the distance of what places may reach from what trials do, as a share of it.

        It is infinite while no trial is feasible in any draw of the model.
        """
        self._sample(np.empty((0, self._model.rows.shape[1])))
        known = self._best.mean(axis=1)
        if not known.any():
            return math.inf
        attainable = np.maximum(self._best, self._reach.max(axis=1)).mean(axis=1)
        distance = np.quantile(attainable, 0.975) - np.quantile(known, 0.025)
        return float(distance / 2 / known.mean())

    def _draw_candidates(self) -> Array:
        """Draws places in the whole space and near the front, and keeps the most promising."""
        model, random = self._model, np.random.default_rng(self._seed)
        everywhere = qmc.Sobol(len(self.cube.distributions), rng=random).random_base2(_POOL_BITS)
        front = model.rows[model.front] if len(model.front) else model.rows
        near = front[random.integers(len(front), size=len(everywhere))]
        steps = 10 ** random.uniform(-2.0, -0.5, (len(near), 1)) * random.normal(size=near.shape)
        near = np.clip(np.where(random.random(near.shape) < 0.5, near + steps, near), 0.0, 1.0)
        redrawn = np.isnan(near) | (random.random(near.shape) < 0.1)
        pool = np.concatenate([everywhere, np.where(redrawn, everywhere, near)])
        pool = self._without_unused(self.cube.round(pool))
        gains = model.hoped_gains(pool, self._rays) * model.success(pool)
        return pool[np.sort(np.argsort(-gains, kind="stable")[:_CANDIDATES])]

    def _without_unused(self, pool: Array) -> Array:
        """Removes parameters that no finished trial of the same choices has."""
        present = ~np.isnan(self.outcomes.rows)
        choices = [isinstance(d, CategoricalDistribution) for d in self.cube.distributions.values()]
        always = np.array(choices) & present.all(axis=0)
        alike = (pool[:, None, always] == self.outcomes.rows[:, always]).all(axis=2)
        unused = alike.any(axis=1, keepdims=True) & ~(alike @ present)
        return np.where(unused, np.nan, pool)

    def _rows_near_front(self) -> Array:
        """Returns the rows of the front, then those that may come nearest to it."""
        model = self._model
        gains = model.hoped_gains(model.rows, self._rays) * model.success(model.rows)
        gains[model.front] = np.inf
        return model.rows[np.argsort(-gains, kind="stable")[:_KNOWN]]

    def _sample(self, running: Array) -> None:
        """Draws the volume that candidates dominate, and the best of finished and running trials.

        Candidates come first, so that their draws do not depend on the running trials.
        """
        rows = np.concatenate([self._candidates, running, self._known])
        finished = np.arange(len(rows)) >= len(rows) - len(self._known)
        random = np.random.default_rng((*self._seed, 1))
        values, success = self._model.sample(rows, finished, _SAMPLES, random)
        reach = self._model.box.reach(values, self._rays) * success[..., None]
        self._reach = reach[:, : len(self._candidates)]
        self._best = reach[:, len(self._candidates) :].max(axis=1)
        self._running = running

    def _place_to_repeat(self, repeated: NDArray[np.intp]) -> int | None:
        """Place of the trial on the front whose replicate would reduce variance most.

        None if the noise is small against the extent of the front.
        """
        model = self._model
        places = model.front[~np.isin(model.front, repeated)]
        if not len(places) or (model.noise / model.box.extent).max() < _LARGE_NOISE:
            return None
        variances = model.predict(model.rows[places])[1] ** 2
        reductions = variances**2 / (variances + model.noise**2) / model.box.extent**2
        return int(places[reductions.sum(axis=1).argmax()])


def _match(rows: Array, others: Array) -> NDArray[np.intp]:
    """Place of each row in `others`; -1 where it has none."""
    left, right = np.nan_to_num(rows, nan=-1.0), np.nan_to_num(others, nan=-1.0)
    distances = cdist(left, right, "chebyshev")
    return np.where(distances.min(axis=1) < _SAME, distances.argmin(axis=1), -1)
