"""The adversarial experiment: stacks of games in, trade-off points out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

from privnets.adversarial import metrics
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation import examined, judged, unfinished
from privnets.adversarial.game import Game
from privnets.adversarial.problem import Problem, Sizes
from privnets.adversarial.problems import registry
from privnets.adversarial.problems.fields import idle
from privnets.adversarial.records import Pool, Splits
from privnets.adversarial.releases import Release, released
from privnets.config import ExperimentConfig
from privnets.contract import (
    Cost,
    Direction,
    Experiment,
    FieldProblem,
    Stage,
    State,
    one_structure,
)
from privnets.points import Replicate, TradeoffPoint

_STAGE_SECONDS = 5.0
# Seconds of one core: per iteration, per multiplication, per panel, per number that it reads.
_STEP, _MULTIPLY, _PANEL, _PANEL_NUMBER = 1e-3, 4e-11, 4.0, 2.5e-6
# Neural attackers together cost as many of the adversary's, trained by minibatches of this size.
_ATTACKERS, _ATTACK_BATCH = 8, 128
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
        return _cost(_own(config), _problem(config).sizes(_own(config)))

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Train a stack; see `Experiment.stages`."""
        one_structure(configs)
        own = [_own(config) for config in configs]
        problem = _problem(own[0])
        pool, splits = problem.materials(own, device)
        game = Game(problem, own, pool, splits)
        if state:
            game.restore(state)
        return _Run(self, problem, game, pool, splits).stages()


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

    def stages(self) -> Iterator[Stage]:
        while not self._game.ended:
            configs = list(self._game.configs)
            lost = self._game.advance(_stage_steps(configs[0], self._problem))
            self._splits = [s for i, s in enumerate(self._splits) if i not in lost]
            yield self._stage([self._failed(configs[i], why) for i, why in lost.items()])
        while self._game.configs:
            yield from self._judge(_judged_at_once(self._game.configs[0], self._problem))

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


def _stage_steps(config: AdversarialConfig, problem: Problem) -> int:
    """Steps of one stage, so that it takes seconds."""
    return max(1, int(_STAGE_SECONDS / _step_seconds(config, problem.sizes(config))))


def _judged_at_once(config: AdversarialConfig, problem: Problem) -> int:
    """Members whose releases, and records as they were, fit into memory together."""
    return max(1, _JUDGED_BYTES // _release_bytes(problem.sizes(config)))


def _release_bytes(sizes: Sizes) -> int:
    records = sizes.attack + sizes.validation + sizes.test
    return 2 * 4 * records * math.prod(sizes.record)


def _step_seconds(config: AdversarialConfig, sizes: Sizes) -> float:
    """One iteration of one game on one core."""
    return _STEP + (config.adversary_steps + 1) * _pass_seconds(config, sizes)


def _pretraining_seconds(config: AdversarialConfig, sizes: Sizes) -> float:
    """One step of pretraining, at most: what it spares is the releaser's part of a pass."""
    return _STEP + _pass_seconds(config, sizes)


def _pass_seconds(config: AdversarialConfig, sizes: Sizes) -> float:
    """A minibatch through all networks."""
    steps = sizes.record[0] if config.releaser == "recurrent" else 1
    return config.batch_size * steps * _multiplications(config, sizes) * _MULTIPLY


def _multiplications(config: AdversarialConfig, sizes: Sizes) -> float:
    """Of one record (or step) forward and backward through releaser and inference networks."""
    return _releaser_multiplications(config, sizes) + 2 * _network_multiplications(config, sizes)


def _releaser_multiplications(config: AdversarialConfig, sizes: Sizes) -> float:
    numbers, wide = math.prod(sizes.record), config.releaser_width
    if config.releaser == "linear":
        return 3.0 * numbers**2
    if config.releaser == "recurrent":
        return 3.0 * 32 * wide**2
    if config.releaser == "convolutional":
        return 3.0 * (_convolutions(numbers, wide // 8, wide) + 4 * wide * (wide + numbers))
    return 3.0 * (2 * numbers * wide + wide**2)


def _network_multiplications(config: AdversarialConfig, sizes: Sizes) -> float:
    numbers, narrow = math.prod(sizes.record), config.adversary_width
    if config.releaser == "recurrent":
        return 3.0 * 24 * narrow**2
    if config.releaser == "convolutional":
        return 3.0 * _convolutions(numbers, narrow, 4 * narrow)
    return 3.0 * (numbers * narrow + narrow**2)


def _convolutions(pixels: int, channels: int, units: int) -> float:
    """Two of stride 2, and a dense layer behind them."""
    return pixels * channels * (25 / 4 + 18 * channels / 16 + units / 8)


def _cost(config: AdversarialConfig, sizes: Sizes) -> Cost:
    game = config.steps * _step_seconds(config, sizes)
    if config.scenario != "joint":
        game += config.pretrain_steps * _pretraining_seconds(config, sizes)
    numbers = 40 * config.batch_size * math.prod(sizes.record) * (config.adversary_steps + 1)
    memory = _release_bytes(sizes) + 4 * numbers
    if config.evaluation == "exact":
        return Cost(game, memory)
    records = sizes.attack + sizes.validation + sizes.test
    attackers = _PANEL + records * math.prod(sizes.record) * _PANEL_NUMBER
    steps = sizes.record[0] if config.releaser == "recurrent" else 1
    learned = config.attack_steps * _ATTACK_BATCH * steps * _network_multiplications(config, sizes)
    attackers += learned * _ATTACKERS * _MULTIPLY
    return Cost(game + attackers, memory)


def _problem(config: ExperimentConfig) -> Problem:
    return registry.problem(_own(config).problem)


def _own(config: ExperimentConfig) -> AdversarialConfig:
    return cast(AdversarialConfig, config)
