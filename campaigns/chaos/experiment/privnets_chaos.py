"""An experiment that sleeps, and notes in a file which trainings it began.

Added as a package would add its own experiment: by the entry point beside this file. It is found
wherever this directory is on `PYTHONPATH`. Its numbers follow from every stage there was, so that a
training which lost or repeated one ends with others.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, cast

import torch
from pydantic import Field

from privnets.config import ExperimentConfig
from privnets.contract import Cost, Direction, Experiment, InvalidField, Stage, State
from privnets.points import Replicate

TRACE = "PRIVNETS_CHAOS_TRACE"
OBJECTIVES: Mapping[str, Direction] = {"privacy/leakage": "min", "utility/error": "min"}


class ChaosConfig(ExperimentConfig):
    """Two numbers, and how long a training is to take."""

    stackable: ClassVar[frozenset[str]] = frozenset({"seed", "x", "y"})

    x: float = Field(ge=0, le=1, description="what leaks")
    y: float = Field(0.5, ge=0, le=1, description="what bends the trade-off")
    stages: int = Field(3, ge=1, le=100, description="of one training")
    seconds: float = Field(0.15, ge=0, le=60, description="asleep in one stage")


class Chaos(Experiment):
    """Trains the members of a stack one after the other, each in stages."""

    name = "chaos"
    version = 1
    Config = ChaosConfig
    objectives: ClassVar[Mapping[str, Direction]] = OBJECTIVES
    data_field = "experiment"

    def default_objectives(self, config: ExperimentConfig) -> Mapping[str, Direction]:
        """Leakage against error."""
        return OBJECTIVES

    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        """The same for every configuration."""
        return (*OBJECTIVES, "other/orbit")

    def invalid_fields(self, config: ExperimentConfig) -> list[InvalidField]:
        """None."""
        return []

    def fingerprint(self, config: ExperimentConfig) -> str:
        """Returns a constant: there is no data."""
        return "none"

    def cost(self, config: ExperimentConfig) -> Cost:
        """Returns the time of sleep, and a little more."""
        own = cast(ChaosConfig, config)
        return Cost(own.stages * own.seconds + 1e-3, 1000)

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """A stage of the first unfinished member at a time; a point with each member's last."""
        stack = cast(Sequence[ChaosConfig], configs)
        self._note(stack)
        step, orbit = (0, _begin(stack[0])) if state is None else _read(state)
        total = sum(config.stages for config in stack)
        behind = 0
        for place, config in enumerate(stack):
            if place:
                step, orbit = 0, _begin(config)
            while step < config.stages:
                time.sleep(config.seconds)
                step, orbit = step + 1, _logistic_map(orbit)
                last = step == config.stages
                points = (self.point(config, _replicate(config, orbit)),) if last else ()
                rest = stack[place + last :]
                kept = (0, _begin(rest[0])) if last and rest else (step, orbit)
                yield Stage((behind + step) / total, points, partial(_state, *kept))
            behind += config.stages

    def _note(self, stack: Sequence[ChaosConfig]) -> None:
        """Say which trainings begin, in one write, which others' writes do not mix with."""
        path = os.environ.get(TRACE)
        if path is None:
            return
        members = [[self.point_id(config), config.seed] for config in stack]
        line = json.dumps({"at": time.monotonic_ns(), "pid": os.getpid(), "members": members})
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)


def _begin(config: ChaosConfig) -> float:
    return 0.1 + 0.4 * config.x + 0.3 * config.y + 0.01 * (config.seed % 7)


def _logistic_map(orbit: float) -> float:
    return 3.9 * orbit * (1 - orbit)  # chaotic: one step more or less is another number


def _state(step: int, orbit: float) -> State:
    return {"step": torch.tensor(step), "orbit": torch.tensor(orbit, dtype=torch.float64)}


def _read(state: State) -> tuple[int, float]:
    """Reads the result of `_state`.

    Raises:
        ValueError: If it is something else.
    """
    if set(state) != {"step", "orbit"}:
        raise ValueError(f"a state must hold step and orbit; got {sorted(state)}")
    return int(state["step"]), float(state["orbit"])


def _replicate(config: ChaosConfig, orbit: float) -> Replicate:
    jitter = math.sin(config.seed + 1) / 100
    metrics = {
        "privacy/leakage": config.x + jitter,
        "utility/error": 1 - config.x ** (0.2 + config.y),
        "other/orbit": orbit,
    }
    return Replicate(config.seed, metrics, finished_at=time.time())
