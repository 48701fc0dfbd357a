"""Stacks on their way: target models are trained, and what they leak is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from privnets.contract import Experiment, Stage, State
from privnets.membership import linear, pricing, shared
from privnets.membership.config import MembershipConfig
from privnets.membership.evaluation import replicate
from privnets.membership.universe import Universe, prepared
from privnets.points import Replicate


def stages(
    experiment: Experiment, configs: Sequence[MembershipConfig], device: str, state: State | None
) -> Iterator[Stage]:
    """Train a stack; see `Experiment.stages`.

    Args:
        experiment: Whose points they are.
        configs: Of one structure.
        device: Where tensors live.
        state: A stage's state to continue from.
    """
    universe, classes = prepared(configs[0], device)
    if configs[0].model == "linear":
        return _linear(experiment, configs, universe)
    return _shared(experiment, configs, universe, classes, state or {})


def _linear(
    experiment: Experiment, configs: Sequence[MembershipConfig], universe: Universe
) -> Iterator[Stage]:
    done = 0
    for group in pricing.by_seed(configs):
        for config, seen in linear.observe(group, universe):
            done += 1
            point = experiment.point(config, replicate(config, seen))
            yield Stage(done / len(configs), (point,), dict)


def _shared(
    experiment: Experiment,
    configs: Sequence[MembershipConfig],
    universe: Universe,
    classes: int,
    state: State,
) -> Iterator[Stage]:
    """Train all models of all configurations as one line of stacks."""
    line = _Line(configs, universe, classes, state)
    features, kind = universe.x.shape[1], universe.x.device.type
    at_once = pricing.stack(configs[0], features, classes, kind)
    while not line.ended:
        line.advance(at_once)
        points = tuple(experiment.point(task.config, made) for task, made in line.finished())
        yield Stage(line.done, points, line.state)


class _Line:
    """The models of several configurations one after the other, trained so many at a time."""

    def __init__(
        self, configs: Sequence[MembershipConfig], universe: Universe, classes: int, state: State
    ) -> None:
        self._universe, self._classes = universe, classes
        self._waiting = [shared.Task.of(config, universe.size) for config in configs]
        self._draws = configs[0].draws
        self._total = len(configs) * self._draws
        empty = universe.x.new_zeros(0, shared.width(configs[0], universe, classes))
        self._trained = state.get("parameters", empty).to(universe.x.device)
        converged = state.get("converged", torch.zeros(0, dtype=torch.bool))
        self._converged = converged.to(universe.x.device)
        if self._trained.shape[1] != empty.shape[1] or not 0 <= self.done <= 1:
            raise ValueError(f"state of shape {tuple(self._trained.shape)} is of another stack.")

    @property
    def ended(self) -> bool:
        return not self._waiting

    @property
    def done(self) -> float:
        left = len(self._waiting) * self._draws - len(self._trained)
        return 1 - left / self._total

    def advance(self, count: int) -> None:
        """Train the next `count` models, across configurations where one has fewer left."""
        parts, at, left = [], len(self._trained), count
        while left > 0 and at < len(self._waiting) * self._draws:
            task, start = self._waiting[at // self._draws], at % self._draws
            stop = min(self._draws, start + left)
            parts.append((task, slice(start, stop)))
            at, left = at + stop - start, left - (stop - start)
        trained, converged = shared.train(parts, self._universe, self._classes)
        self._trained = torch.cat([self._trained, trained])
        self._converged = torch.cat([self._converged, converged])

    def finished(self) -> Iterator[tuple[shared.Task, Replicate]]:
        """Give out, and forget, the configurations whose last model is trained."""
        while self._waiting and len(self._trained) >= self._draws:
            task = self._waiting.pop(0)
            own = slice(0, self._draws)
            lacking = int((~self._converged[own]).sum())
            models = shared.Models(self._trained[own], lacking)
            self._trained = self._trained[self._draws :]
            self._converged = self._converged[self._draws :]
            seen = shared.observe(task, models, self._universe, self._classes)
            yield task, replicate(task.config, seen)

    def state(self) -> dict[str, Tensor]:
        """What a later line over the waiting configurations starts from."""
        return {"parameters": self._trained.clone(), "converged": self._converged.clone()}
