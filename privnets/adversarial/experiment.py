"""The adversarial experiment: stacks of games in, trade-off points out."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import ClassVar, cast

from privnets.adversarial import interim, metrics, pricing
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation import examined, judged, unfinished
from privnets.adversarial.game import Game
from privnets.adversarial.problem import Problem
from privnets.adversarial.problems import registry
from privnets.adversarial.records import Pool, Splits
from privnets.adversarial.releases import Release, released
from privnets.adversarial.statements.fields import idle
from privnets.config import ExperimentConfig
from privnets.contract import (
    Cost,
    Direction,
    Experiment,
    FieldProblem,
    Rung,
    Stage,
    State,
    one_structure,
)
from privnets.points import Replicate, TradeoffPoint

_STAGE_SECONDS = 5.0
# Fields that an objective makes no use of.
_IDLE: Mapping[str, tuple[str, ...]] = {
    "alpha": ("tradeoff", "estimator", "squaring"),
    "squared-kl": (
        "privacy_weight",
        "gradient",
        "sequence",
        "distortion_weight",
        "utility_weight",
    ),
}
# Bytes of releases that are judged together.
_JUDGED_BYTES = 2**30
# Of the work, as far as a progress bar is concerned.
_TRAINING = 0.5


class Adversarial(Experiment):
    """Adversarial data release (arXiv 2310.18241 and the ICLR 2019 submission on filters)."""

    name = "adversarial"
    version = 1
    Config = AdversarialConfig
    objectives: ClassVar[Mapping[str, Direction]] = metrics.OBJECTIVES
    data_field = "problem"

    def default_objectives(self, config: ExperimentConfig) -> Mapping[str, Direction]:
        """The strongest attacker against what the release is for."""
        return metrics.default_objectives(_problem(config), _own(config))

    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        """Every key that a replicate reports."""
        return metrics.metric_keys(_problem(config), _own(config))

    def problems(self, config: ExperimentConfig) -> list[FieldProblem]:
        """What the problem cannot serve, objectives it has no labels for, and idle fields.

        The order `alpha` serves either objective: leakage of that order is always measured.
        """
        own, problem = _own(config), _problem(config)
        found = problem.problems(own)
        if own.objective == "squared-kl" and not problem.utility_classes:
            found.append(FieldProblem("objective", "squared-kl", f"alpha with {own.problem}"))
        if own.evaluation == "exact" and not problem.exact(own):
            allowed = "attackers; exact information is known of linear filters of gaussian-mixture"
            found.append(FieldProblem("evaluation", "exact", allowed))
        named = {problem.field for problem in found}
        return found + [problem for problem in _unused(own) if problem.field not in named]

    def fingerprint(self, config: ExperimentConfig) -> str:
        """Of the records and the way they are read."""
        return _problem(config).fingerprint(_own(config))

    def cost(self, config: ExperimentConfig) -> Cost:
        """A rough price: the game, then the attackers."""
        return pricing.cost(_own(config), _problem(config).sizes(_own(config)))

    def rehearse(self, configs: Sequence[ExperimentConfig], device: str = "cpu") -> float:
        """Take a few steps of a stack's game; see `Experiment.rehearse`."""
        one_structure(configs)
        return pricing.rehearsed(_problem(configs[0]), [_own(c) for c in configs], device)

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Train a stack; see `Experiment.stages`."""
        return self.stages_with_rungs(configs, (), device, state)

    def interim_objectives(self, config: ExperimentConfig) -> frozenset[str]:
        """Those reported that a training curve stands in for."""
        known = interim.surrogates(_problem(config), _own(config))
        return frozenset(known.keys() & self.metric_keys(config))

    def stages_with_rungs(
        self,
        configs: Sequence[ExperimentConfig],
        shares: Sequence[float],
        device: str = "cpu",
        state: State | None = None,
    ) -> Generator[Stage, Sequence[int] | None]:
        """Train a stack that members may leave; see `Experiment.stages_with_rungs`.

        A share is of the game's steps, those of pretraining included.
        """
        one_structure(configs)
        own = [_own(config) for config in configs]
        problem = _problem(own[0])
        pool, splits = problem.materials(own, device)
        game = Game(problem, own, pool, splits)
        if state:
            game.restore(state)
        return _Run(self, problem, game, pool, splits).stages(shares)


class _Run:
    """One stack on its way: the game, then the judging of its releases."""

    def __init__(
        self,
        experiment: Adversarial,
        problem: Problem,
        game: Game,
        pool: Pool,
        splits: Sequence[Splits],
    ) -> None:
        self._experiment, self._problem, self._game = experiment, problem, game
        self._pool, self._splits = pool, list(splits)
        self._members = len(game.configs)
        self._ended = 0

    def stages(self, shares: Sequence[float]) -> Generator[Stage, Sequence[int] | None]:
        ahead = [share for share in shares if self._game.steps_to(share)]
        while not self._game.ended:
            stage = self._stage(self._advance(ahead))
            reached = [share for share in ahead if not self._game.steps_to(share)]
            ahead = ahead[len(reached) :]
            if reached and self._game.configs:
                yield from self._rung(reached[-1], stage)
            else:
                yield stage
        while self._game.configs:
            yield from self._judge(_judged_at_once(self._game.configs[0], self._problem))

    def _advance(self, ahead: Sequence[float]) -> list[TradeoffPoint]:
        """Train as far as the next rung at most; the members that failed on the way."""
        configs = list(self._game.configs)
        steps = _stage_steps(configs, self._problem)
        lost = self._game.advance(min([steps, *map(self._game.steps_to, ahead[:1])]))
        self._splits = [s for i, s in enumerate(self._splits) if i not in lost]
        return [self._failed(configs[i], why) for i, why in lost.items()]

    def _rung(self, share: float, stage: Stage) -> Generator[Stage, Sequence[int] | None]:
        """A stage as a rung, and one more if members are told to leave."""
        known = [
            interim.estimates(self._problem, config, self._game.curves(i))
            for i, config in enumerate(self._game.configs)
        ]
        leaving = yield Rung(stage.done, stage.points, stage.state, share, tuple(known))
        if leaving:
            self._leave(leaving)
            self._ended += len(leaving)
            yield self._stage(())

    def _judge(self, count: int) -> Iterator[Stage]:
        """Judge the first members, who leave one after the other."""
        count = min(count, len(self._game.configs))
        releases = [released(self._game, i, self._pool, self._splits[i]) for i in range(count)]
        sound = [release for release in releases if release.finite]
        if lost := [i for i, release in enumerate(releases) if not release.finite]:
            self._leave(lost)
            why = "diverged: releases are not finite"
            yield self._stage([self._failed(releases[i].config, why) for i in lost])
        work = self._verdicts(sound) if sound else iter(())
        for replicate in work:
            if replicate is None:
                yield self._stage([])
            else:
                config = self._game.configs[0]
                self._leave([0])
                yield self._stage([self._experiment.point(config, replicate)])

    def _verdicts(self, releases: Sequence[Release]) -> Iterator[Replicate | None]:
        if releases[0].config.evaluation == "exact":
            return examined(self._problem, releases)
        return judged(self._problem, releases)

    def _leave(self, members: Sequence[int]) -> None:
        stay = [i for i in range(len(self._game.configs)) if i not in members]
        self._game.keep(stay)
        self._splits = [self._splits[i] for i in stay]

    def _failed(self, config: AdversarialConfig, why: str) -> TradeoffPoint:
        return self._experiment.point(config, unfinished(self._problem, config, why))

    def _stage(self, points: Sequence[TradeoffPoint]) -> Stage:
        self._ended += len(points)
        ended = self._ended / self._members
        trained = self._game.done if self._game.configs else 1.0
        done = _TRAINING * trained + (1 - _TRAINING) * ended
        return Stage(max(done, ended), tuple(points), self._game.state)


def _unused(config: AdversarialConfig) -> list[FieldProblem]:
    """Fields that mean nothing with the objective or the scenario."""
    found = idle(config, _IDLE[config.objective], "objective")
    if config.scenario == "joint":
        found += idle(config, ["pretrain_steps"], "scenario")
    if config.evaluation == "exact":
        found += idle(config, ["attack_size", "attack_steps"], "evaluation")
    return found


def _stage_steps(configs: Sequence[AdversarialConfig], problem: Problem) -> int:
    """Steps of one stage, so that it takes seconds."""
    first = configs[0]
    step = pricing.step_seconds(first, problem.sizes(first), len(configs))
    return max(1, int(_STAGE_SECONDS / step))


def _judged_at_once(config: AdversarialConfig, problem: Problem) -> int:
    """Members whose releases, and records as they were, fit into memory together."""
    return max(1, _JUDGED_BYTES // pricing.release_bytes(problem.sizes(config)))


def _problem(config: ExperimentConfig) -> Problem:
    return registry.problem(_own(config).problem)


def _own(config: ExperimentConfig) -> AdversarialConfig:
    return cast(AdversarialConfig, config)
