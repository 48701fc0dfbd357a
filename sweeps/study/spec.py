"""Studies: what a sweep is to find out, as immutable values.

A `Study` is checked for its shape alone; whether its experiment can run it is for
`sweeps.study.validation` to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    StringConstraints,
)

from sweeps.errors import FieldError, describe_choices
from sweeps.study.search_space import AnyAxis, Value

Algorithm = Literal["grid", "random", "sobol"]
AVAILABLE: Final = ("grid", "random", "sobol")
PLANNED: Final = ("tpe", "nsga2", "gp", "frontier")
MAX_POINTS: Final = 1_000_000
MAX_REPLICATES: Final = 10_000
_LARGEST_COUNT: Final = 1_000_000

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A file and a line in it, counted from 1."""

    file: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class StudySource:
    """Where the parts of a study were written; no part of what the study is.

    Attributes:
        file: The file as the user named it.
        places: Path of a key to where its value stands.
    """

    file: str = field(default="study", compare=False)
    places: Mapping[Path, Place] = field(default_factory=dict, compare=False)

    def problem(self, path: Path, found: str, allowed: str) -> FieldError:
        """A problem at a key, or at the nearest key above it that was written."""
        place = self._nearest(path)
        return FieldError(".".join(map(str, path)), found, allowed, place.file, place.line)

    def _nearest(self, path: Path) -> Place:
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return Place(self.file)


def _algorithm(value: object) -> object:
    if value in AVAILABLE:
        return value
    raise ValueError(
        f"{describe_choices(AVAILABLE, value)}; not available yet: {', '.join(PLANNED)}"
    )


def _count(value: object) -> object:
    if value == "auto":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST_COUNT:
        return value
    raise ValueError(f"auto, or a whole number from 1 to {_LARGEST_COUNT}")


def _devices(value: float) -> float:
    if value > 1 and value != int(value):
        raise ValueError("a whole number, or a share below 1")
    return value


def _rising(shares: tuple[float, ...]) -> tuple[float, ...]:
    if not shares or any(second <= first for first, second in pairwise(shares)):
        raise ValueError("shares of training that rise, at least one")
    return shares


def _switched(value: object) -> object:
    """A section that may also be `true`, all of it at its defaults, or `false`."""
    if isinstance(value, bool):
        return {} if value else None
    if value is None or isinstance(value, dict | BaseModel):
        return value
    raise ValueError("true, false or a mapping of rungs, reduction and confidence")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Text = Annotated[str, StringConstraints(strict=True)]
Name = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Count = Annotated[int | Literal["auto"], PlainValidator(_count)]
Devices = Annotated[
    float, Field(strict=True, ge=0, le=4096, allow_inf_nan=False), AfterValidator(_devices)
]

Share = Annotated[float, Field(strict=True, gt=0, le=1)]


class Reproduces(_Part):
    """The published figure that a study draws again."""

    paper: Text
    figure: Value = None


class Claim(_Part):
    """A trend that a publication claims, which a sweep can put to the test.

    Attributes:
        statement: The claim in words.
        metric: The metric that moves.
        axis: The configuration field that moves it.
        trend: How the metric moves as the field grows.
        where: Values of other configuration fields at which the claim is made.
        caveat: What theory says against the published picture, if anything.
    """

    statement: Text
    metric: Text
    axis: Text
    trend: Literal["decreasing", "increasing", "constant"]
    where: dict[str, Value] = Field(default_factory=dict)
    caveat: Text | None = None


class SearchSpec(_Part):
    """How points are chosen from the space."""

    algorithm: Annotated[Algorithm, PlainValidator(_algorithm)] = "grid"
    num_points: Annotated[int, Field(strict=True, ge=1, le=MAX_POINTS)] | None = None
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0


class Resources(_Part):
    """What one pack is given, and how many run at once."""

    cpus: Devices = 1
    gpus: Devices = 0
    pack: Count = "auto"
    concurrency: Count = "auto"


class EarlyStopping(_Part):
    """When points leave their pack before the end: see `sweeps.engine.early_stopping`.

    Attributes:
        reduction: Of the points, a rung leaves room for one in so many of those before.
        rungs: Shares of training at which it is decided.
        confidence: That a point which leaves is dominated.
    """

    reduction: Annotated[float, Field(strict=True, gt=1, le=1000)] = 2.0
    rungs: Annotated[tuple[Share, ...], AfterValidator(_rising)] = (0.125, 0.25, 0.5)
    confidence: Annotated[float, Field(strict=True, ge=0.5, lt=1)] = 0.95


class Study(_Part):
    """A sweep's whole specification.

    Attributes:
        name: Of the study; sweeps of it are grouped under it.
        experiment: Which experiment runs.
        description: What the study shows.
        reproduces: The published figure it draws again.
        claims: Published trends that its report puts to the test.
        fixed: Configuration field to its one value.
        space: Configuration field to the axis it is swept on.
        replicates: Seeds per point.
        search: How points are chosen from the space.
        objectives: Metric to its direction; None for the experiment's own.
        resources: What a pack is given.
        early_stopping: When dominated points stop training; None, or false, for never.
    """

    name: Name
    experiment: Text
    description: Text = ""
    reproduces: Reproduces | None = None
    claims: tuple[Claim, ...] = ()
    fixed: dict[str, Value] = Field(default_factory=dict)
    space: dict[str, AnyAxis] = Field(default_factory=dict)
    replicates: Annotated[int, Field(strict=True, ge=1, le=MAX_REPLICATES)] = 8
    search: SearchSpec = Field(default_factory=SearchSpec)
    objectives: Annotated[dict[str, Literal["min", "max"]], Field(min_length=1)] | None = None
    resources: Resources = Field(default_factory=Resources)
    early_stopping: Annotated[EarlyStopping | None, BeforeValidator(_switched)] = None

    _source: StudySource = PrivateAttr(default_factory=StudySource)

    @property
    def source(self) -> StudySource:
        """Where its parts were written, for messages."""
        return self._source

    def written(self, source: StudySource) -> Study:
        """The same study, whose problems are found in `source`."""
        study = self.model_copy()
        study._source = source
        return study

    def to_dict(self) -> dict[str, Any]:
        """Plain values from which `Study.model_validate` makes an equal study."""
        return self.model_dump(mode="json")
