"""Stacks on their way: the games are played, then their releases are judged."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation import cost_model as pricing
from privnets.adversarial.evaluation.evaluator import examined, judged, unfinished
from privnets.adversarial.evaluation.releases import Release, released
from privnets.adversarial.problem import Problem
from privnets.adversarial.problems import registry
from privnets.adversarial.records import Pool, Splits
from privnets.adversarial.training import interim
from privnets.adversarial.training.game import Game
from privnets.contract import Experiment, Rung, Stage, State
from privnets.points import Replicate, TradeoffPoint

_STAGE_SECONDS = 5.0
# Bytes of releases that are judged together.
_JUDGED_BYTES = 2**30
# Of the work, as far as a progress bar is concerned.
_TRAINING = 0.5


def stages(
    experiment: Experiment,
    configs: Sequence[AdversarialConfig],
    shares: Sequence[float],
    device: str,
    state: State | None,
) -> Generator[Stage, Sequence[int] | None]:
    """Train a stack that members may leave; see `Experiment.stages_with_rungs`.

    Args:
        experiment: Whose points they are.
        configs: Of one structure.
        shares: Of the game's steps at which there is a rung.
        device: Where tensors live.
        state: A stage's state to continue from.
    """
    problem = registry.problem(configs[0].problem)
    pool, splits = problem.materials(configs, device)
    game = Game(problem, configs, pool, splits)
    if state:
        game.restore(state)
    return _Run(experiment, problem, game, pool, splits).stages(shares)


class _Run:
    """One stack on its way: the game, then the judging of its releases."""

    def __init__(
        self,
        experiment: Experiment,
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
            interim.estimates(self._problem.statement, config, self._game.curves(i))
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


def _stage_steps(configs: Sequence[AdversarialConfig], problem: Problem) -> int:
    """Steps of one stage, so that it takes seconds."""
    first = configs[0]
    step = pricing.step_seconds(first, problem.statement.sizes(first), len(configs))
    return max(1, int(_STAGE_SECONDS / step))


def _judged_at_once(config: AdversarialConfig, problem: Problem) -> int:
    """Members whose releases, and records as they were, fit into memory together."""
    return max(1, _JUDGED_BYTES // pricing.release_bytes(problem.statement.sizes(config)))
