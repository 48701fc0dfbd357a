"""Experiment configurations: frozen, validated, and divided into structure and stackable values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from privnets.points import Scalar


class ExperimentConfig(BaseModel):
    """One value for every field of an experiment, as plain scalars.

    A field is *stackable* if it is a number that may differ within a stack, and *structural* if it
    changes shapes or schedule. Configurations with equal `structure()` may be stacked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    stackable: ClassVar[frozenset[str]] = frozenset({"seed"})

    seed: int = Field(0, ge=0, lt=2**31, description="source of every random draw")

    def redundant_fields(self) -> frozenset[str]:
        """Fields without effect beside the other values, which `canonical` resets."""
        return frozenset()

    def canonical(self) -> Self:
        """Returns this configuration with every redundant field at its default.

        Two configurations with equal canonical forms give equal results, so they are one point.
        """
        fields = type(self).model_fields
        defaults = {name: fields[name].default for name in self.redundant_fields()}
        if all(getattr(self, name) == value for name, value in defaults.items()):
            return self
        return self.model_copy(update=defaults)

    def structure(self) -> str:
        """Returns the structural fields as canonical JSON; equal strings may share a stack."""
        return _canonical_json(
            self.canonical().model_dump(mode="json", exclude=set(self.stackable))
        )

    def resolved(self) -> dict[str, Scalar]:
        """Returns all fields but the seed, which distinguishes the replicates of a point."""
        return self.model_dump(mode="json", exclude={"seed"})


@dataclass(frozen=True)
class OneOf:
    """Type annotation for a field whose values are the names in a registry.

    Example: `problem: Annotated[str, OneOf(PROBLEMS.names)]`. Its errors and its JSON schema are
    those of a `Literal`.
    """

    names: Callable[[], Sequence[str]]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Returns the schema that validates a value."""
        return core_schema.no_info_plain_validator_function(
            self._validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        """Returns the JSON schema."""
        return {"type": "string", "enum": list(self.names())}

    def _validate(self, value: object) -> str:
        names = self.names()
        if isinstance(value, str) and value in names:
            return value
        *first, last = map(repr, names)
        expected = f"{', '.join(first)} or {last}" if first else last
        raise PydanticKnownError("literal_error", {"expected": expected})


def point_id(experiment: str, version: int, config: ExperimentConfig, fingerprint: str) -> str:
    """Computes the identity of a point: 20 hexadecimal digits, equal on every machine.

    Args:
        config: Configuration; its seed and its redundant fields have no influence.
        fingerprint: Fingerprint of the data.
    """
    identity: Mapping[str, object] = {
        "experiment": experiment,
        "version": version,
        "config": config.canonical().resolved(),
        "data": fingerprint,
    }
    return hashlib.sha256(_canonical_json(identity).encode()).hexdigest()[:20]


def _canonical_json(value: Mapping[str, object]) -> str:
    # Some fields, such as an order of leakage, may be infinite: JSON then has `Infinity`.
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
