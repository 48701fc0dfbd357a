"""Training of a stack in stages: its games, then the evaluation of their releases."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation import cost_model
from privnets.adversarial.evaluation.evaluator import (
    evaluate_exactly,
    failed_replicate,
    release_records,
)
from privnets.adversarial.problem import Problem
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import is_finite, load_pool
from privnets.adversarial.training.game import Game
from privnets.adversarial.training.inference_networks import build_game_networks
from privnets.adversarial.training.releasers import build_releaser
from privnets.adversarial.training.user_networks import ModuleClassifier
from privnets.contract import Experiment, Rung, Stage, State
from privnets.networks.devices import Precision, each_computed_in
from privnets.points import TradeoffPoint

_STAGE_SECONDS = 5.0
_EVALUATED_BYTES = 2**30  # of releases evaluated together
_GAME_SHARE = 0.5  # of the work, for progress


def build_networks(problem: Problem, config: AdversarialConfig) -> list[str]:
    """Builds the networks of a game once, so that mistakes in the user's code are found early.

    Returns:
        Digests of the weights of frozen networks.
    """
    build_releaser(problem, config)
    networks = build_game_networks(problem, config).items()
    own = [(role, n.frozen_digest()) for role, n in networks if isinstance(n, ModuleClassifier)]
    return [f"{role} {digest}" for role, digest in own if digest is not None]


class StackRun:
    """One stack: the game first, then the evaluation of its releases."""

    def __init__(
        self,
        experiment: Experiment[AdversarialConfig],
        configs: Sequence[AdversarialConfig],
        device: str,
        state: State | None,
    ) -> None:
        """Loads the records and prepares the game, which continues from `state` if there is one."""
        self._experiment, self._problem = experiment, problem_of(configs[0])
        self._pool, self._splits = load_pool(self._problem, configs, device)
        self._game = Game(self._problem, configs, self._pool, self._splits)
        if state:
            self._game.restore(state)
        self._members, self._finished = len(configs), 0
        # A guess for CPUs until a stage is measured; a GPU takes far more steps in that time.
        sizes, network = self._problem.split_sizes(configs[0]), self._problem.spec.network
        self._step_seconds = cost_model.step_seconds(configs[0], sizes, network, len(configs))

    def stages(self, shares: Sequence[float]) -> Generator[Stage, Sequence[int] | None]:
        """Trains the stack, with a rung at each of the `shares` of the game's steps."""
        ahead = [share for share in shares if self._game.steps_to(share)]
        while not self._game.is_finished:
            # As far as the next rung at most.
            configs = list(self._game.configs)
            steps = max(1, int(_STAGE_SECONDS / self._step_seconds))
            steps = min([steps, *map(self._game.steps_to, ahead[:1])])
            begun = time.perf_counter()
            diverged = self._game.advance(steps)
            self._step_seconds = max(time.perf_counter() - begun, 1e-6) / steps
            self._splits = [s for i, s in enumerate(self._splits) if i not in diverged]
            stage = self._stage(
                [self._failed_point(configs[i], reason) for i, reason in diverged.items()]
            )
            reached = [share for share in ahead if not self._game.steps_to(share)]
            ahead = ahead[len(reached) :]
            if reached and self._game.configs:
                yield from self._rung(reached[-1], stage)
            else:
                yield stage
        while self._game.configs:
            # Attackers are trained in single precision, rounded as the game was.
            precision: Precision = (
                "tf32" if self._game.configs[0].precision == "tf32" else "float32"
            )
            yield from each_computed_in(precision, self._pool.x.device, self._evaluate())

    def _rung(self, share: float, stage: Stage) -> Generator[Stage, Sequence[int] | None]:
        """A stage as a rung, and another one if members are removed."""
        from privnets.adversarial.evaluation.interim import estimate_objectives  # slow to import

        estimates = tuple(
            estimate_objectives(self._problem, self._game, i, self._pool, splits)
            for i, splits in enumerate(self._splits)
        )
        removed = yield Rung(
            stage.done, stage.points, stage.state, share, estimates, live=stage.live
        )
        if removed:
            self._remove(removed)
            self._finished += len(removed)
            yield self._stage(())

    def _evaluate(self) -> Iterator[Stage]:
        """Evaluates the releases of the first members, which leave one after the other."""
        sizes = self._problem.split_sizes(self._game.configs[0])
        together = max(1, _EVALUATED_BYTES // cost_model.release_bytes(sizes))
        count = min(together, len(self._game.configs))
        releases = [
            release_records(self._game, i, self._pool, self._splits[i]) for i in range(count)
        ]
        if diverged := [i for i, release in enumerate(releases) if not is_finite(release)]:
            self._remove(diverged)
            reason = "diverged: releases are not finite"
            yield self._stage([self._failed_point(releases[i].config, reason) for i in diverged])
        finite = [release for i, release in enumerate(releases) if i not in diverged]
        if not finite:
            return
        if finite[0].config.evaluation == "exact":
            replicates = evaluate_exactly(self._problem, finite)
        else:
            from privnets.adversarial.evaluation.attacked import evaluate_by_attackers  # slow

            replicates = evaluate_by_attackers(self._problem, finite)
        for replicate in replicates:
            points = []
            if replicate is not None:  # else evaluation only paused
                points.append(self._experiment.point(self._game.configs[0], replicate))
                self._remove([0])
            yield self._stage(points)

    def _remove(self, members: Sequence[int]) -> None:
        kept = [i for i in range(len(self._game.configs)) if i not in members]
        self._game.keep(kept)
        self._splits = [self._splits[i] for i in kept]

    def _failed_point(self, config: AdversarialConfig, reason: str) -> TradeoffPoint:
        return self._experiment.point(config, failed_replicate(self._problem, config, reason))

    def _stage(self, points: Sequence[TradeoffPoint]) -> Stage:
        self._finished += len(points)
        finished = self._finished / self._members
        trained = self._game.done if self._game.configs else 1.0
        done = _GAME_SHARE * trained + (1 - _GAME_SHARE) * finished
        return Stage(max(done, finished), tuple(points), self._game.state, live=self._game.live)
