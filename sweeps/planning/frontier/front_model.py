"""Model of a study's trials, which proposes others by noisy expected hypervolume improvement.

Daulton, Balandat and Bakshy, Parallel Bayesian Optimization of Multiple Noisy Objectives with
Expected Hypervolume Improvement, NeurIPS 2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import moocore
import numpy as np
from optuna.distributions import CategoricalDistribution
from scipy.special import ndtr
from scipy.stats import qmc

from sweeps.planning.frontier.gaussian_process import GaussianProcess, fit_gaussian_process
from sweeps.planning.frontier.unit_cube import Array, Params, UnitCube
from sweeps.planning.frontier.volume import find_front_box, select_points, spread_rays

_RAYS: Final = 64
_SELECTION_RAYS: Final = 512
_SAMPLES: Final = 64
_POOL_BITS: Final = 9
_CANDIDATES: Final = 256
_KNOWN: Final = 96
_REPLICATE_EVERY: Final = 4
_LARGE_NOISE: Final = 0.05
_WORST: Final = 2.0


class FrontModel:
    """Gaussian processes of the objectives, the constraints and the failures of finished trials.

    A failure is the value 1 and its absence -1 of a process that is negative where trials succeed.
    It depends on the finished trials and the seed alone.
    """

    def __init__(
        self,
        cube: UnitCube,
        trials: Sequence[Params],
        objectives: Array,
        constraints: Array,
        seed: int,
    ) -> None:
        """Fits the processes and draws candidates; at least one trial has not failed.

        Args:
            cube: Search space.
            trials: Parameters of N trials.
            objectives: Values to minimise, shape [N, K]; NaN for a failed trial.
            constraints: Values that are at most 0 for a feasible trial, shape [N, C]; NaN if
                unknown.
            seed: Seed of all draws.
        """
        failed = np.isnan(objectives).any(axis=1)
        self._cube, self._finished = cube, cube.encode(trials)
        self._rows = self._finished[~failed]
        self._trials = [trials[place] for place in np.flatnonzero(~failed).tolist()]
        self._rays = spread_rays(objectives.shape[1], _RAYS)
        # Values far beyond the front are bounded at twice its extent: they would set the scale.
        box = find_front_box(objectives[~failed])
        bounded = np.minimum(objectives[~failed], box.reference + _WORST * box.extent)
        self._objectives = [self._fit(self._rows, column) for column in bounded.T]
        self._constraints = [self._fit(self._finished, column) for column in constraints.T]
        labels = np.where(failed, 1.0, -1.0)
        self._failures = [self._fit(self._finished, labels)] if failed.any() else []
        self._means = self._predict(self._rows)[0]
        self._front = self._find_front()
        places = self._front if len(self._front) else np.arange(len(self._rows))
        self._box = find_front_box(self._means[places])
        self._near_front = self._promise(self._rows)
        self._near_front[self._front] = np.inf
        self._random = seed, len(trials)
        self._candidates = self._draw_candidates(self._rows[places])
        self._choices = [cube.decode(row) for row in self._candidates]
        self._draws: tuple[Sequence[Params], Array, Array] | None = None

    def propose(self, running: Sequence[Params], number: int) -> Params:
        """Proposes parameters.

        Args:
            running: Parameters of the running trials.
            number: Number of the new trial; each fourth may be a replicate of a finished one.
        """
        place = None if number % _REPLICATE_EVERY else self._place_to_repeat(running)
        if place is not None:
            return self._trials[place]
        known = [*self._choices, *self._trials]
        reach, best = self._draw_reach([params for params in running if params not in known])
        taken = [params in running for params in self._choices]
        best = np.maximum(best, reach[:, taken].max(axis=1, initial=0.0))
        gains = np.maximum(reach - best[:, None], 0.0).mean(axis=(0, 2))
        return self._choices[int(np.where(taken, -1.0, gains).argmax())]

    def select_front(self, size: int | None, *, fills: bool) -> list[int]:
        """Selects successful trials on the front of the posterior means.

        Args:
            size: Most trials; these have nearly the largest hypervolume.
            fills: Whether free places go to the most promising other trials.

        Returns:
            Places among the trials that did not fail; of replicates, the first.
        """
        front: list[int] = self._front.tolist()
        if size is None:
            return front
        if size < len(front):
            rays = spread_rays(self._rays.shape[1], _SELECTION_RAYS)
            reach = self._box.reach(self._means[front], rays)
            return [front[i] for i in select_points(reach, size)]
        for place in np.argsort(-self._near_front, kind="stable").tolist() if fills else ():
            is_other = self._trials[place] not in [self._trials[other] for other in front]
            if len(front) < size and is_other and self._near_front[place] > 0:
                front.append(place)
        return front

    def front_uncertainty(self) -> float:
        """Half the distance of what places may reach from what trials do, as a share of it.

        It is infinite while no trial is feasible in any draw of the model.
        """
        reach, best = self._draw_reach([])
        known = best.mean(axis=1)
        if not known.any():
            return math.inf
        attainable = np.maximum(best, reach.max(axis=1)).mean(axis=1)
        distance = np.quantile(attainable, 0.975) - np.quantile(known, 0.025)
        return float(distance / 2 / known.mean())

    def _fit(self, rows: Array, values: Array) -> GaussianProcess:
        known = np.isfinite(values)
        inputs = self._cube.inputs(rows[known])
        return fit_gaussian_process(inputs, values[known], self._cube.groups)

    def _find_front(self) -> Array:
        """Places of the feasible trials that no other one dominates by the means."""
        coordinates = np.nan_to_num(self._rows, nan=-1.0)
        places = np.sort(np.unique(coordinates, axis=0, return_index=True)[1])
        places = places[self._success(self._rows[places], self._constraints) >= 0.5]
        front: Array = places[moocore.is_nondominated(self._means[places], keep_weakly=True)]
        return front

    def _predict(self, rows: Array) -> tuple[Array, Array]:
        """Returns means and standard deviations of the objectives, both of shape [M, K]."""
        inputs = self._cube.inputs(rows)
        means, spreads = zip(*(model.predict(inputs) for model in self._objectives), strict=True)
        return np.column_stack(means), np.column_stack(spreads)

    def _success(self, rows: Array, models: Sequence[GaussianProcess]) -> Array:
        """Returns the probability that the values of models are negative, shape [M]."""
        inputs, probability = self._cube.inputs(rows), np.ones(len(rows))
        for model in models:
            mean, spread = model.predict(inputs)
            probability *= ndtr(-mean / spread)
        return probability

    def _promise(self, rows: Array) -> Array:
        """Gains of volume by values one standard deviation better than the means, shape [M].

        They are weighted by the probability that a trial neither fails nor is infeasible.
        """
        means, spreads = self._predict(rows)
        best = self._box.reach(self._means[self._front], self._rays).max(axis=0, initial=0.0)
        hoped = self._box.reach(means - spreads, self._rays)
        gains: Array = np.maximum(hoped - best, 0.0).mean(axis=1)
        return gains * self._success(rows, [*self._constraints, *self._failures])

    def _draw_candidates(self, front: Array) -> Array:
        """Draws places in the whole space and near the front, and keeps the most promising."""
        random = np.random.default_rng(self._random)
        everywhere = qmc.Sobol(front.shape[1], rng=random).random_base2(_POOL_BITS)
        near = front[random.integers(len(front), size=len(everywhere))]
        steps = 10 ** random.uniform(-2.0, -0.5, (len(near), 1)) * random.normal(size=near.shape)
        near = np.clip(np.where(random.random(near.shape) < 0.5, near + steps, near), 0.0, 1.0)
        redrawn = np.isnan(near) | (random.random(near.shape) < 0.1)
        pool = np.concatenate([everywhere, np.where(redrawn, everywhere, near)])
        pool = self._cube.round(pool)
        # Without parameters that no finished trial of the same choices has.
        present = ~np.isnan(self._finished)
        distributions = self._cube.distributions.values()
        choices = [isinstance(d, CategoricalDistribution) for d in distributions]
        always = np.array(choices) & present.all(axis=0)
        alike = (pool[:, None, always] == self._finished[:, always]).all(axis=2)
        unused = alike.any(axis=1, keepdims=True) & ~(alike @ present)
        pool = np.where(unused, np.nan, pool)
        order = np.argsort(-self._promise(pool), kind="stable")
        return pool[np.sort(order[:_CANDIDATES])]

    def _draw_reach(self, running: Sequence[Params]) -> tuple[Array, Array]:
        """Draws the volume that places dominate along each ray.

        Candidates come first, so that their draws do not depend on the running trials.

        Args:
            running: Parameters of running trials.

        Returns:
            Volumes of candidates, shape [S, M, R], and the largest ones of finished and running
            trials, shape [S, R].
        """
        if self._draws is not None and self._draws[0] == running:
            return self._draws[1:]
        known = self._rows[np.argsort(-self._near_front, kind="stable")[:_KNOWN]]
        rows = np.concatenate([self._candidates, self._cube.encode(running), known])
        inputs, random = self._cube.inputs(rows), np.random.default_rng((*self._random, 1))
        models = [*self._objectives, *self._constraints, *self._failures]
        draws = [
            model.sample(inputs, stream.standard_normal((len(rows), _SAMPLES)).T)
            for model, stream in zip(models, random.spawn(len(models)), strict=True)
        ]
        for draw in draws[len(models) - len(self._failures) :]:
            draw[:, len(rows) - len(known) :] = -1.0  # those trials did not fail
        values = np.stack(draws[: len(self._objectives)], axis=2)
        reach = self._box.reach(values, self._rays)
        for draw in draws[len(self._objectives) :]:
            reach *= (draw <= 0)[..., None]
        places = len(self._candidates)
        self._draws = running, reach[:, :places], reach[:, places:].max(axis=1)
        return self._draws[1:]

    def _place_to_repeat(self, running: Sequence[Params]) -> int | None:
        """Place of the trial on the front whose replicate would reduce variance most.

        None if the noise is small against the extent of the front.
        """
        noise = np.array([model.noise_std for model in self._objectives])
        front: list[int] = self._front.tolist()
        places = [place for place in front if self._trials[place] not in running]
        if not places or (noise / self._box.extent).max() < _LARGE_NOISE:
            return None
        variances = self._predict(self._rows[places])[1] ** 2
        reductions = variances**2 / (variances + noise**2) / self._box.extent**2
        return places[int(reductions.sum(axis=1).argmax())]
