"""Replay of a finished sweep in milliseconds, to choose a search algorithm or to teach.

The table of a sweep, as `sweeps points --output` writes it, stands in for training.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal, cast

import numpy as np
from pydantic import Field

from privnets.adversarial.experiment import Adversarial
from privnets.config import ExperimentConfig
from privnets.contract import (
    Cost,
    Direction,
    Experiment,
    InvalidField,
    Stage,
    State,
    require_equal_structures,
)
from privnets.membership.experiment import Membership
from privnets.points import Replicate, TradeoffPoint
from privnets.recorded.table import Recording, read_recording
from privnets.references.tables import digest_of
from privnets.references.user_files import absolute_path


class RecordedConfig(ExperimentConfig):
    """One configuration to look up in a table of points."""

    stackable: ClassVar[frozenset[str]] = frozenset({"seed", "knobs"})

    table: str = Field(description="CSV or parquet file of points or replicates")
    knobs: dict[str, bool | int | float | str] = Field(
        min_length=1, description="columns of the table that are swept, with their values"
    )
    mode: Literal["surrogate", "nearest"] = Field(
        "surrogate",
        description="a smooth model of the points with the noise of a seed, or the nearest point",
    )


class Recorded(Experiment):
    """Recorded trade-offs, between which a Gaussian process interpolates."""

    name = "recorded"
    version = 1
    Config = RecordedConfig
    objectives: ClassVar[Mapping[str, Direction]] = {
        **Adversarial.objectives,
        **Membership.objectives,
    }
    data_field = "table"

    def default_objectives(self, config: ExperimentConfig) -> Mapping[str, Direction]:
        """Returns the table's first objective of privacy and its first of utility."""
        known = self._recording(config).metrics
        first = [
            next((k for k in known if k.startswith(p)), None) for p in ("privacy/", "utility/")
        ]
        return {key: self.objectives[key] for key in first if key is not None}

    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        """Returns the objectives that are columns of the table."""
        return self._recording(config).metrics

    def unsupported_objectives(self, config: ExperimentConfig) -> Mapping[str, str]:
        """Returns the objectives that the table lacks."""
        known = self._recording(config).metrics
        return {key: "the table has no such column" for key in self.objectives if key not in known}

    def invalid_fields(self, config: ExperimentConfig) -> list[InvalidField]:
        """Returns nothing: a table without the columns is a DataError."""
        self._recording(config)
        return []

    def fingerprint(self, config: ExperimentConfig) -> str:
        """Returns the digest of the table."""
        return digest_of(absolute_path(_replay(config).table), "table")

    def cost(self, config: ExperimentConfig) -> Cost:
        """Returns a millisecond."""
        return Cost(seconds=1e-3, memory=10_000)

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Looks up all configurations in one stage."""
        require_equal_structures(configs)
        points = tuple(self._look_up(_replay(config)) for config in configs)
        yield Stage(1.0, points, lambda: {})

    def _look_up(self, config: RecordedConfig) -> TradeoffPoint:
        recording = self._recording(config)
        # The noise is that of this point and seed, whatever else is in the stack.
        random = np.random.default_rng((config.seed, int(self.point_id(config), 16)))
        values = recording.draw(config.knobs, config.mode == "surrogate", random)
        failure = "recorded as failed" if values is None else None
        replicate = Replicate(config.seed, values or {}, failure=failure, finished_at=time.time())
        return self.point(config, replicate)

    def _recording(self, config: ExperimentConfig) -> Recording:
        typed = _replay(config)
        knobs = tuple(sorted(typed.knobs))
        return read_recording(
            absolute_path(typed.table), self.fingerprint(config), knobs, tuple(self.objectives)
        )


def _replay(config: ExperimentConfig) -> RecordedConfig:
    return cast(RecordedConfig, config)
