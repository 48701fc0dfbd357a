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

from sweeps.planning.frontier.front_model import FrontModel
from sweeps.planning.frontier.unit_cube import Array, Params, UnitCube, values_at

_STARTUP_TRIALS: Final = 10
_SEQUENCE_DIMENSIONS: Final = 64
_LARGEST: Final = 1e100


@final
class FrontierSampler(BaseSampler):
    """Optuna sampler for the Pareto front of noisy, expensive objectives.

    It maximises the expected hypervolume improvement under Gaussian processes, in packs of trials
    that run at once. Proposals depend only on the seed and on the trials of the study, so a study
    that was rebuilt continues with the same ones. Parameters of a finished trial, proposed again,
    ask for a replicate. Failed and pruned trials, and those with an infinite value, teach where
    trials fail. Constraints are those of `Trial.set_constraint`, met where they are at most 0.

    Attributes:
        seed: Seed of all random draws.
    """

    def __init__(self, seed: int = 0) -> None:
        """Starts without a model."""
        self.seed = seed
        self._fitted: tuple[object, FrontModel] | None = None

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
        if sum(map(_has_succeeded, trials)) < _STARTUP_TRIALS:
            return UnitCube(space).decode(self._sequence_point(trial.number, len(space)))
        # Small matrices are slower on several threads.
        with _threadpools().limit(limits=1):
            running = [t.params for t in trials if t.state is TrialState.RUNNING and t.params]
            return self._model(study, space).propose(running, trial.number)

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
        return self._select(study, size, fills=False)

    def trials_to_confirm(self, study: Study, size: int) -> list[int]:
        """Selects the estimated front; if it has fewer than `size` trials, also those near it.

        These are the trials whose values would improve the front most if they were one standard
        deviation of the model better than its means.

        Returns:
            At most `size` trial numbers in ascending order; of replicates, the first.
        """
        return self._select(study, size, fills=True)

    def front_uncertainty(self, study: Study) -> float:
        """Returns the share x of its hypervolume for which the front is known to ± x.

        The model draws objectives of the finished trials near the front and of the 256 most
        promising other places. The front of all places may be as good as the 97.5% quantile of
        their hypervolume, and the trials as bad as the 2.5% quantile of their own. Half of this
        distance, divided by the mean hypervolume of the trials, is x; it is infinite before the
        model has ten trials.
        """
        trials = study.get_trials(deepcopy=False)
        space = _space(trials)
        if sum(map(_has_succeeded, trials)) < _STARTUP_TRIALS or not space:
            return math.inf
        with _threadpools().limit(limits=1):
            return self._model(study, space).front_uncertainty()

    def _select(self, study: Study, size: int | None, *, fills: bool) -> list[int]:
        succeeded = [t for t in study.get_trials(deepcopy=False) if _has_succeeded(t)]
        space = _space(succeeded)
        if not space:
            return [trial.number for trial in study.best_trials]
        with _threadpools().limit(limits=1):
            places = self._model(study, space).select_front(size, fills=fills)
        return sorted(succeeded[place].number for place in places)

    def _model(self, study: Study, space: dict[str, BaseDistribution]) -> FrontModel:
        """Model of the finished trials; the last one if nothing has changed."""
        trials = study.get_trials(deepcopy=False)
        finished = [t for t in trials if t.state.is_finished() and t.params]
        if self._fitted is None or self._fitted[0] != (space, finished):
            # Objectives are all minimised; NaN stands for those of failed trials.
            signs = [-1.0 if d is StudyDirection.MAXIMIZE else 1.0 for d in study.directions]
            nothing = [math.nan] * len(signs)
            objectives = [t.values if _has_succeeded(t) else nothing for t in finished]
            names = sorted({name for t in finished for name in t.constraints})
            limits = [[t.constraints.get(name, math.nan) for name in names] for t in finished]
            model = FrontModel(
                UnitCube(space),
                [t.params for t in finished],
                np.array(objectives, dtype=np.float64) * signs,
                np.array(limits, dtype=np.float64).reshape(len(finished), len(names)),
                self.seed,
            )
            self._fitted = (space, finished), model
        return self._fitted[1]

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


def _has_succeeded(trial: FrozenTrial) -> bool:
    if trial.state is not TrialState.COMPLETE or not trial.params:
        return False
    return all(abs(value) < _LARGEST for value in trial.values)


@cache
def _threadpools() -> ThreadpoolController:
    return ThreadpoolController()
