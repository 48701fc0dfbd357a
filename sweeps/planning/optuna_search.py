"""Adaptive search algorithms: samplers of Optuna behind the interface `Search`."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import Trial, TrialState

from privnets.points import Scalar
from sweeps.planning.frontier.sampler import FrontierSampler
from sweeps.planning.searches import SobolSearch
from sweeps.study.search import Search, SearchResult
from sweeps.study.search_space import Axis, Proposal, lists_applicable

_DIRECTIONS: Final = {"min": StudyDirection.MINIMIZE, "max": StudyDirection.MAXIMIZE}
_TPE_STARTUP: Final = 16
_MIN_POPULATION: Final = 8
_MAX_POPULATION: Final = 50


class OptunaSearch(Search):
    """Search by an Optuna study, in which a proposal is a running trial until its result is known.

    Trials are numbered in the order of `ask` and `register`. A failed point, or one with an
    undefined objective or constraint, is a failed trial; a stopped point is a pruned one.
    """

    is_adaptive = True

    def ask(self, count: int) -> list[Proposal]:
        """Proposes `count` points."""
        first = self._next_number
        startup: list[Proposal] = []
        if first < self._startup_trials:
            startup = SobolSearch(self.space, self.spec).ask(self._startup_trials)[first:]
        proposals = [*startup[:count], *[None] * max(0, count - len(startup))]
        return [self._start_trial(proposal) for proposal in proposals]

    def register(self, proposals: Sequence[Proposal]) -> None:
        """Adds pending proposals; those with a value outside the space are left out."""
        for proposal in proposals:
            is_known = lists_applicable(self.space, proposal) and all(
                self._parameters[name].encode(value) is not None for name, value in proposal.items()
            )
            if is_known:
                self._start_trial(proposal)

    def tell(self, results: Sequence[SearchResult]) -> None:
        """Receives results of pending proposals; those of others are left out."""
        for result in results:
            running, point = self._running[_key(result.proposal)], result.point
            if not running:
                continue
            trial = running.pop(0)
            values = [point.metrics.get(name, math.nan) for name in self.objectives]
            excesses = {}
            for name, bounds in self.constraints.items():
                (low, high), value = bounds.ends, point.metrics.get(name, math.nan)
                excesses[name] = max(low - value, value - high)
            if point.status == "stopped":
                self._study.tell(trial, state=TrialState.PRUNED)
            elif point.status == "failed" or any(map(math.isnan, [*values, *excesses.values()])):
                self._study.tell(trial, state=TrialState.FAIL)
            else:
                for name, excess in excesses.items():
                    trial.set_constraint(name, excess)
                self._study.tell(trial, values)

    @abstractmethod
    def _sampler(self, seed: int) -> BaseSampler:
        """Returns the sampler of the next trial."""

    @property
    def _startup_trials(self) -> int:
        """Number of first trials that take the points of a Sobol sequence."""
        return 0

    @cached_property
    def _study(self) -> optuna.Study:
        directions = [_DIRECTIONS[direction] for direction in self.objectives.values()]
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            return optuna.create_study(directions=directions or [StudyDirection.MINIMIZE])
        finally:
            optuna.logging.set_verbosity(verbosity)

    @cached_property
    def _parameters(self) -> dict[str, _Parameter]:
        return {name: _Parameter.of_axis(axis) for name, axis in self.space.items()}

    @cached_property
    def _running(self) -> dict[str, list[Trial]]:
        """Trials without a result, by proposal."""
        return defaultdict(list)

    @property
    def _next_number(self) -> int:
        return len(self._study.get_trials(deepcopy=False))

    def _start_trial(self, proposal: Proposal | None) -> Proposal:
        """Starts a trial of a proposal, or of one that the sampler makes."""
        # A seeded sampler would not repeat its draws in a rebuilt study.
        seeds = np.random.SeedSequence((self.spec.seed, self._next_number))
        self._study.sampler = self._sampler(int(seeds.generate_state(1)[0]))
        if proposal is not None:
            known = {name: self._parameters[name].encode(v) for name, v in proposal.items()}
            self._study.enqueue_trial(known)
        trial, started = self._study.ask(), Proposal()
        for name, parameter in self._parameters.items():
            if self.space[name].applies(started):
                started[name] = parameter.suggest(trial, name)
        # An encoded value may be another one of the axis, equal to it.
        proposal = proposal or started
        self._running[_key(proposal)].append(trial)
        return proposal


@final
class TpeSearch(OptunaSearch):
    """Tree-structured Parzen estimator (Ozaki et al., JAIR 73, 2022), after 16 Sobol points."""

    name = "tpe"

    @property
    def _startup_trials(self) -> int:
        return _TPE_STARTUP

    def _sampler(self, seed: int) -> BaseSampler:
        return TPESampler(seed=seed)


@final
class Nsga2Search(OptunaSearch):
    """Genetic algorithm NSGA-II (Deb et al., IEEE Trans. Evol. Comput. 6, 2002).

    A generation has an eighth of the points, at least 8 and at most 50; the first are Sobol points.
    """

    name = "nsga2"

    @property
    def _startup_trials(self) -> int:
        return min(max((self.spec.num_points or 0) // 8, _MIN_POPULATION), _MAX_POPULATION)

    def _sampler(self, seed: int) -> BaseSampler:
        return NSGAIISampler(population_size=self._startup_trials, seed=seed)

    def _start_trial(self, proposal: Proposal | None) -> Proposal:
        proposal = super()._start_trial(proposal)
        # Reading them makes the sampler assign the trial to a generation.
        _ = self._running[_key(proposal)][-1].relative_params
        return proposal


@final
class FrontierSearch(OptunaSearch):
    """Gaussian processes and hypervolume improvement, for few trainings; see `FrontierSampler`."""

    name = "frontier"

    def front(self, size: int) -> list[Proposal]:
        """Selects at most `size` proposals on the front of the posterior means, or near it."""
        trials = self._study.get_trials(deepcopy=False)
        numbers = self._frontier.trials_to_confirm(self._study, size)
        parameters = self._parameters
        return [
            {name: parameters[name].decode(x) for name, x in trials[number].params.items()}
            for number in numbers
        ]

    def front_uncertainty(self) -> float:
        """Returns the share x for which the front is known to ± x; see `FrontierSampler`."""
        return self._frontier.front_uncertainty(self._study)

    @cached_property
    def _frontier(self) -> FrontierSampler:
        return FrontierSampler(self.spec.seed)

    def _sampler(self, seed: int) -> BaseSampler:
        return self._frontier


@dataclass(frozen=True)
class _Parameter:
    """Axis as an Optuna parameter: a number of an interval, or the position of a listed value.

    Positions of numbers in a grid or range are ordered.
    """

    distribution: BaseDistribution
    values: Sequence[Scalar] | None

    @classmethod
    def of_axis(cls, axis: Axis) -> _Parameter:
        values = axis.values()
        if values is None:
            low, high = axis.uniform or axis.loguniform or (0.0, 1.0)
            return cls(FloatDistribution(low, high, log=axis.loguniform is not None), None)
        numbers = [v for v in axis.grid or () if isinstance(v, int | float)]
        if axis.range is not None or len(numbers) == len(values):
            ordered = values if axis.range is not None else sorted(numbers)
            return cls(IntDistribution(0, len(values) - 1), ordered)
        return cls(CategoricalDistribution(range(len(values))), values)

    def suggest(self, trial: Trial, name: str) -> Scalar:
        """Returns the value that a trial's sampler chooses."""
        d = self.distribution
        if isinstance(d, FloatDistribution):
            return self.decode(trial.suggest_float(name, d.low, d.high, log=d.log))
        if isinstance(d, IntDistribution):
            return self.decode(trial.suggest_int(name, d.low, d.high))
        assert isinstance(d, CategoricalDistribution)
        return self.decode(trial.suggest_categorical(name, d.choices))

    def encode(self, value: Scalar) -> float | None:
        """Returns the parameter of a value; None for a value outside the axis."""
        if self.values is not None:
            return self.values.index(value) if value in self.values else None
        assert isinstance(self.distribution, FloatDistribution)
        low, high = self.distribution.low, self.distribution.high
        return float(value) if isinstance(value, int | float) and low <= value <= high else None

    def decode(self, param: Any) -> Scalar:
        value: Scalar = param if self.values is None else self.values[param]
        return value


def _key(proposal: Proposal) -> str:
    return json.dumps(proposal, sort_keys=True)
