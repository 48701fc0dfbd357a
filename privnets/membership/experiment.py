"""The membership experiment: stacks of target models in, trade-off points out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor

from privnets import data
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
from privnets.membership import design, linear, pricing, shared
from privnets.membership.config import MembershipConfig
from privnets.membership.evaluation import replicate
from privnets.membership.metrics import OBJECTIVES, metric_keys, utility_keys
from privnets.membership.universe import Universe
from privnets.points import Replicate


class Membership(Experiment):
    """Membership leakage of trained models (arXiv 2001.10648)."""

    name = "membership"
    version = 1
    Config = MembershipConfig
    objectives: ClassVar[Mapping[str, Direction]] = OBJECTIVES

    def default_objectives(self, config: ExperimentConfig) -> Mapping[str, Direction]:
        """Advantage of the strongest attack against utility on unseen records."""
        keys = ("privacy/membership_advantage", utility_keys(_own(config))[0])
        return {key: OBJECTIVES[key] for key in keys}

    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        """Every key that a replicate reports."""
        return metric_keys(_own(config))

    def problems(self, config: ExperimentConfig) -> list[FieldProblem]:
        """Sizes that the data set cannot serve, and models that cannot predict its target."""
        own = _own(config)
        info = data.info(own.dataset)
        found: list[FieldProblem] = []

        def most(field: str, value: int, limit: int) -> None:
            if value > limit:
                found.append(FieldProblem(field, str(value), f"at most {limit} with {info.name}"))

        most("train_size", own.train_size, info.records - 1)
        most("records", own.records, info.records)
        if own.features is not None:
            most("features", own.features, info.attributes)
        if own.model != "linear":
            found += _unservable(own, info.records)
        if own.model == "linear" and info.task == "multiclass":
            found.append(FieldProblem("model", "linear", f"logistic or mlp with {info.name}"))
        if own.model == "logistic" and info.task == "regression":
            found.append(FieldProblem("model", "logistic", f"linear or mlp with {info.name}"))
        return found

    def fingerprint(self, config: ExperimentConfig) -> str:
        """Of the data set as published."""
        return data.fingerprint(_own(config).dataset)

    def cost(self, config: ExperimentConfig) -> Cost:
        """A rough price: training, then five attacks on every trial."""
        return pricing.cost(_own(config), data.info(_own(config).dataset))

    def rehearse(self, configs: Sequence[ExperimentConfig], device: str = "cpu") -> float:
        """Train a few models of a stack; see `Experiment.rehearse`."""
        one_structure(configs)
        own = [_own(config) for config in configs]
        return pricing.rehearsed(own, *_universe(own[0], device))

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Train a stack; see `Experiment.stages`."""
        one_structure(configs)
        own = [_own(config) for config in configs]
        universe, classes = _universe(own[0], device)
        if own[0].model == "linear":
            return self._linear(own, universe)
        return self._shared(own, universe, classes, state or {})

    def _linear(self, configs: list[MembershipConfig], universe: Universe) -> Iterator[Stage]:
        done = 0
        for group in pricing.by_seed(configs):
            for config, seen in linear.observe(group, universe):
                done += 1
                point = self.point(config, replicate(config, seen))
                yield Stage(done / len(configs), (point,), dict)

    def _shared(
        self, configs: list[MembershipConfig], universe: Universe, classes: int, state: State
    ) -> Iterator[Stage]:
        """Train all models of all configurations as one line of stacks."""
        line = _Line(configs, universe, classes, state)
        at_once = pricing.stack(configs[0], universe, classes)
        while not line.ended:
            line.advance(at_once)
            points = tuple(self.point(task.config, made) for task, made in line.finished())
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


def _unservable(config: MembershipConfig, population: int) -> list[FieldProblem]:
    """What the design of shared training sets cannot do."""
    asked, size = config.records, config.train_size
    if design.members_per_half(population, asked, size, config.draws) is None:
        return []
    found = []
    if asked > population - size:
        allowed = f"at most {population - size} with so few draws: the rest of a set is not asked"
        found.append(FieldProblem("records", str(asked), allowed))
    fewest = design.fewest_sets(asked, size)
    if config.draws < fewest:
        allowed = f"at least {fewest} with {asked} records and train_size {size}, or fewer records"
        found.append(FieldProblem("draws", str(config.draws), allowed))
    return found


def _universe(config: MembershipConfig, device: str) -> tuple[Universe, int]:
    """The records, and how many classes the target has: 1 where it is a number."""
    prepared = data.prepare(config.dataset, config.features)
    x, y = torch.tensor(prepared.x, device=device), torch.tensor(prepared.y, device=device)
    return Universe(x, y.double()), max(prepared.classes, 1)


def _own(config: ExperimentConfig) -> MembershipConfig:
    return cast(MembershipConfig, config)
