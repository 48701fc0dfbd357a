"""An experiment without useful work: the cost of its sweep is the overhead of the platform.

Added as a package would add its own experiment: by the entry point beside this file. It is found
wherever this directory is on `PYTHONPATH`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

from pydantic import Field

from privnets.config import ExperimentConfig
from privnets.contract import Cost, Direction, Experiment, InvalidField, Stage, State
from privnets.points import Replicate

OBJECTIVES: Mapping[str, Direction] = {"privacy/leakage": "min", "utility/error": "min"}
OTHERS = tuple(f"privacy/attack/{name}/advantage" for name in "abcdefghijklm")


class TrivialConfig(ExperimentConfig):
    """Two numbers, and how long a training is to take."""

    stackable: ClassVar[frozenset[str]] = frozenset({"seed", "x", "y", "seconds", "busy"})

    x: float = Field(ge=0, le=1, description="what leaks")
    y: float = Field(0.5, ge=0, le=1, description="what bends the trade-off")
    seconds: float = Field(0.0, ge=0, le=60, description="asleep in one training")
    busy: float = Field(0.0, ge=0, le=60, description="processor time of one training, seconds")


class Trivial(Experiment):
    """Fifteen metrics of two numbers."""

    name = "trivial"
    version = 1
    Config = TrivialConfig
    objectives: ClassVar[Mapping[str, Direction]] = OBJECTIVES
    data_field = "experiment"

    def default_objectives(self, config: ExperimentConfig) -> Mapping[str, Direction]:
        """Leakage against error."""
        return OBJECTIVES

    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        """The same for every configuration."""
        return (*OBJECTIVES, *OTHERS)

    def invalid_fields(self, config: ExperimentConfig) -> list[InvalidField]:
        """None."""
        return []

    def fingerprint(self, config: ExperimentConfig) -> str:
        """Returns a constant: there is no data."""
        return "none"

    def cost(self, config: ExperimentConfig) -> Cost:
        """Returns the time of sleep and work, and a little more."""
        own = cast(TrivialConfig, config)
        return Cost(own.seconds + own.busy + 1e-4, 1000)

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """A stage per configuration."""
        for done, config in enumerate(cast(Sequence[TrivialConfig], configs), 1):
            time.sleep(config.seconds)
            _work(config.busy)
            yield Stage(done / len(configs), (self.point(config, _replicate(config)),), dict)


def _work(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def _replicate(config: TrivialConfig) -> Replicate:
    jitter = math.sin(config.seed + 1) / 100
    metrics = {"privacy/leakage": config.x + jitter, "utility/error": 1 - config.x**config.y}
    metrics |= {key: config.x * math.sin(i + config.y) for i, key in enumerate(OTHERS)}
    return Replicate(config.seed, metrics, finished_at=time.time())
