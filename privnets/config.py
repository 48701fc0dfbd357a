"""Experiment configurations: frozen, checked, and split into structure and stackable numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from privnets.points import Scalar


class ExperimentConfig(BaseModel):
    """What one training needs to know, as plain scalars.

    A field is *stackable* when it is a number that may differ inside a stack, and *structural*
    when it changes shapes or schedule. Configurations of equal `structure()` may be stacked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    stackable: ClassVar[frozenset[str]] = frozenset({"seed"})

    seed: int = Field(0, ge=0, lt=2**31, description="source of every random draw")

    def structure(self) -> str:
        """The structural part in canonical form: equal strings may share a stack."""
        return _canonical(self.model_dump(mode="json", exclude=set(self.stackable)))

    def resolved(self) -> dict[str, Scalar]:
        """Every field but the seed, which tells replicates of a point apart."""
        return self.model_dump(mode="json", exclude={"seed"})


def point_id(experiment: str, version: int, config: ExperimentConfig, fingerprint: str) -> str:
    """Identify a point: 20 hexadecimal digits that any machine computes alike.

    Args:
        experiment: The experiment's name.
        version: The experiment's version, raised whenever its results change meaning.
        config: The configuration; its seed does not matter.
        fingerprint: Of the data the point rests on.
    """
    identity: Mapping[str, object] = {
        "experiment": experiment,
        "version": version,
        "config": config.resolved(),
        "data": fingerprint,
    }
    return hashlib.sha256(_canonical(identity).encode()).hexdigest()[:20]


def _canonical(value: Mapping[str, object]) -> str:
    # A field may allow infinity (an order of leakage does), which is written `Infinity`.
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
