"""Optuna sampler that searches for a Pareto front with few trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, final

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from scipy.stats import qmc
from threadpoolctl import ThreadpoolController

from sweeps.planning.frontier.front_model import FrontModel, Outcomes
from sweeps.planning.frontier.proposer import PackProposer
from sweeps.planning.frontier.unit_cube import Array, Params, UnitCube, values_at
from sweeps.planning.frontier.volume import select_points, spread_rays

_STARTUP_TRIALS: Final = 10
_SEQUENCE_DIMENSIONS: Final = 64
_SELECTION_RAYS: Final = 512


@final
class FrontierSampler(BaseSampler):
    """Optuna sampler for the Pareto front of noisy, expensive objectives.

    It maximises the expected hypervolume improvement under Gaussian processes, in packs of trials
    that run at once. Proposals depend only on the seed and on the trials of the study, so a study
    that was rebuilt continues with the same ones. Parameters of a finished trial, proposed again,
    ask for a replicate. Failed and pruned trials teach where trials fail.

    Attributes:
        seed: Seed of all random draws.
    """

    def __init__(self, seed: int = 0) -> None:
        """Starts without a model."""
        self.seed = seed
        self._proposer: PackProposer | None = None

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Returns every parameter of earlier trials that has more than one value."""
        return _space(study.get_trials(deepcopy=False))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Params:
        """Proposes parameters: from a Sobol sequence at first, then by the model."""
        space = {name: d for name, d in search_space.items() if not d.single()}
        trials = study.get_trials(deepcopy=False)
        if not space:
            return {}
        cube = UnitCube(space)
        if sum(t.state is TrialState.COMPLETE for t in trials) < _STARTUP_TRIALS:
            return cube.decode(self._sequence_point(trial.number, len(space)))
        # Small matrices are slower on several threads.
        with _threadpools().limit(limits=1):
            proposer = self._fit(study, cube, trials)
            running = [t.params for t in trials if t.state is TrialState.RUNNING and t.params]
            return cube.decode(proposer.propose(cube.encode(running), trial.number))

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Takes the next coordinate of the trial's point in a Sobol sequence."""
        place = len(trial.params)
        fraction = self._sequence_point(trial.number, place + 1)[place:]
        (value,) = values_at(param_distribution, fraction).tolist()
        return param_distribution.to_external_repr(value)

    def estimated_front(self, study: Study, size: int | None = None) -> list[int]:
        """Selects trials on the front of posterior means, which average noise over neighbours.

        Args:
            study: Study with finished trials.
            size: Most trials to select; together they have nearly the largest hypervolume.

        Returns:
            Trial numbers in ascending order; of replicates, the first.
        """
        return sorted(self._select(study, size))

    def trials_to_confirm(self, study: Study, size: int) -> list[int]:
        """Selects the estimated front; if it has fewer than `size` trials, also those near it.

        These are the trials whose values would improve the front most if they were one standard
        deviation of the model better than its means.

        Returns:
            At most `size` trial numbers in ascending order; of replicates, the first.
        """
        return sorted(self._select(study, size, fills=True))

    def _select(self, study: Study, size: int | None, *, fills: bool = False) -> list[int]:
        trials = study.get_trials(deepcopy=False)
        complete = [t for t in trials if t.state is TrialState.COMPLETE and t.params]
        cube = UnitCube(_space(complete))
        if not cube.distributions:
            return [t.number for t in study.best_trials]
        rays = spread_rays(len(study.directions), _SELECTION_RAYS)
        with _threadpools().limit(limits=1):
            model = FrontModel(cube, _outcomes(study, cube, trials))
            gains = model.hoped_gains(model.rows, rays) * model.success(model.rows)
        front = model.front
        if size is not None and size < len(front):
            front = front[select_points(model.box.reach(model.means[front], rays), size)]
        chosen = {complete[place].number: complete[place].params for place in front}
        limit = size if fills and size is not None else 0
        for place in np.argsort(-gains, kind="stable"):
            trial = complete[place]
            if len(chosen) < limit and gains[place] > 0 and trial.params not in chosen.values():
                chosen[trial.number] = trial.params
        return [*chosen]

    def front_uncertainty(self, study: Study) -> float:
        """Returns the share x of its hypervolume for which the front is known to ± x.

        The model draws objectives of the finished trials near the front and of the 256 most
        promising other places. The front of all places may be as good as the 97.5% quantile of
        their hypervolume, and the trials as bad as the 2.5% quantile of their own. Half of this
        distance, divided by the mean hypervolume of the trials, is x; it is infinite before the
        model has ten trials.
        """
        trials = study.get_trials(deepcopy=False)
        cube = UnitCube(_space(trials))
        complete = sum(t.state is TrialState.COMPLETE for t in trials)
        if complete < _STARTUP_TRIALS or not cube.distributions:
            return math.inf
        with _threadpools().limit(limits=1):
            return self._fit(study, cube, trials).front_uncertainty()

    def _fit(self, study: Study, cube: UnitCube, trials: Sequence[FrozenTrial]) -> PackProposer:
        """Proposer that knows the finished trials; the last one if nothing has changed."""
        outcomes, proposer = _outcomes(study, cube, trials), self._proposer
        if proposer is None or cube != proposer.cube or not outcomes.equals(proposer.outcomes):
            self._proposer = proposer = PackProposer(cube, outcomes, self.seed)
        return proposer

    def _sequence_point(self, position: int, dimensions: int) -> Array:
        """Point of a scrambled Sobol sequence, shape [dimensions]."""
        engine = qmc.Sobol(_SEQUENCE_DIMENSIONS, rng=self.seed)
        point: Array = engine.random_base2(position.bit_length())[position]
        return point[np.arange(dimensions) % _SEQUENCE_DIMENSIONS]


def _space(trials: Sequence[FrozenTrial]) -> dict[str, BaseDistribution]:
    space: dict[str, BaseDistribution] = {}
    for trial in trials:
        space |= trial.distributions
    return {name: d for name, d in space.items() if not d.single()}


def _outcomes(study: Study, cube: UnitCube, trials: Sequence[FrozenTrial]) -> Outcomes:
    """Outcomes of the finished trials, with every objective to be minimised."""
    finished = [t for t in trials if t.state.is_finished() and t.params]
    signs = [-1.0 if d is StudyDirection.MAXIMIZE else 1.0 for d in study.directions]
    nothing = [math.nan] * len(signs)
    objectives = [t.values if t.state is TrialState.COMPLETE else nothing for t in finished]
    names = sorted({name for t in finished for name in t.constraints})
    constraints = [[t.constraints.get(name, math.nan) for name in names] for t in finished]
    return Outcomes(
        cube.encode([t.params for t in finished]),
        np.array(objectives, dtype=np.float64) * signs,
        np.array(constraints, dtype=np.float64).reshape(len(finished), len(names)),
    )


@cache
def _threadpools() -> ThreadpoolController:
    return ThreadpoolController()
