"""Study models: the contents of a study file as immutable values.

Validation here covers shape and types. `sweeps.study.validation` checks a study against its
experiment.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
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
    WithJsonSchema,
    model_validator,
)

from privnets.config import UserMetric
from sweeps.errors import FieldError, FieldPath, percentage_hint
from sweeps.study.search_space import OBFUSCATION, Axis, FixedValue, Value, add_obfuscation

MAX_POINTS: Final = 1_000_000
MAX_REPLICATES: Final = 10_000
MAX_CONFIRMED: Final = 1_000
MAX_ASK_SIZE: Final = 10_000
MAX_IN_FLIGHT: Final = 64
OBSERVING_FIELDS: Final = ("metrics", "groups")
"""Sections of a study that are fields of every configuration, beside those in `fixed`."""
_MAX_COUNT: Final = 1_000_000
_MAX_DEVICES: Final = 4096
_CONFIRMED_POINTS: Final = 16
_UNIT_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_COMPARISON: Final = re.compile(r"\s*(>=|<=)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class StudySource:
    """Places that a study was read from: the file, and file and line of each key's path.

    They are not part of the study's value.

    Attributes:
        folder: Folder of the files and modules that the study names.
    """

    file: str = field(default="study", compare=False)
    places: Mapping[FieldPath, tuple[str, int | None]] = field(default_factory=dict, compare=False)
    folder: Path = field(default_factory=Path.cwd, compare=False)

    def locate(self, error: FieldError) -> FieldError:
        """Adds the file and line of the key, or of the nearest enclosing key in the file."""
        for length in range(len(error.path), -1, -1):
            if place := self.places.get(error.path[:length]):
                return error.at(*place)
        return error.at(self.file, None)


def _check_count(value: object) -> object:
    if value == "auto":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_COUNT:
        return value
    raise ValueError(f"auto, or a whole number from 1 to {_MAX_COUNT}")


def budget_trainings(budget: int | str | None) -> int:
    """Number of trainings that a budget allows; `sys.maxsize` for a time, or without a budget."""
    return budget if isinstance(budget, int) else sys.maxsize


def budget_seconds(budget: int | str) -> float | None:
    """Returns the seconds of a budget such as `2h`; None for a number of trainings.

    Raises:
        ValueError: If it is neither.
    """
    if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 1:
        return None
    match = _DURATION.fullmatch(budget) if isinstance(budget, str) else None
    seconds = 0.0 if match is None else float(match[1]) * _UNIT_SECONDS[match[2]]
    if match is None or seconds <= 0:
        raise ValueError("a number of trainings, or a time as 90s, 30m, 2h or 1.5d")
    return seconds


def _check_budget(value: Any) -> object:
    budget_seconds(value)
    return value


def _check_devices(value: Any) -> object:
    if value == "auto":
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= _MAX_DEVICES and (value < 1 or value == int(value)):
        return float(value)
    raise ValueError(f"auto, a whole number from 0 to {_MAX_DEVICES}, or a fraction below 1")


def _check_rungs(fractions: tuple[float, ...]) -> tuple[float, ...]:
    if not fractions or any(second <= first for first, second in pairwise(fractions)):
        raise ValueError("increasing fractions of training, at least one")
    return fractions


def _expand_switch(value: object) -> object:
    """Turns `true` into a section with default values, and `false` into none."""
    if isinstance(value, bool):
        return {} if value else None
    if value is None or isinstance(value, dict | BaseModel):
        return value
    raise ValueError("true, false or a mapping of rungs, reduction and confidence")


def _parse_bounds(value: object) -> object:
    """Turns a comparison such as `>= 0.9` into its bounds."""
    if isinstance(value, Bounds) or (isinstance(value, dict) and value):
        return value
    match = _COMPARISON.fullmatch(value) if isinstance(value, str) else None
    try:
        limit = math.nan if match is None else float(match[2])
    except ValueError:
        limit = math.nan
    if match is None or not math.isfinite(limit):
        hint = percentage_hint(str(value))
        raise ValueError(f'a comparison with a number, as ">= 0.9" or "<= 0.1"{hint}')
    return {{">=": "at_least", "<=": "at_most"}[match[1]]: limit}


def _auto_schema(number: dict[str, object]) -> WithJsonSchema:
    """JSON schema of `auto` or a number, for lists of fields."""
    return WithJsonSchema({"anyOf": [{"const": "auto"}, number]})


class _StudySection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Text = Annotated[str, StringConstraints(strict=True)]
Name = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Count = Annotated[
    int | Literal["auto"],
    PlainValidator(_check_count),
    _auto_schema({"type": "integer", "minimum": 1, "maximum": _MAX_COUNT}),
]
Devices = Annotated[
    int | float | Literal["auto"],
    PlainValidator(_check_devices),
    _auto_schema({"type": "number", "minimum": 0, "maximum": _MAX_DEVICES}),
]
Budget = Annotated[int | str, PlainValidator(_check_budget)]
Fraction = Annotated[float, Field(strict=True, gt=0, le=1)]
Limit = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


class Reproduces(_StudySection):
    """Published figure that a study draws again."""

    paper: Text
    figure: Value = None


class Bounds(_StudySection):
    """Range of a metric.

    Attributes:
        at_least: Lower end.
        at_most: Upper end.
    """

    at_least: Limit | None = None
    at_most: Limit | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends; infinite where there is none."""
        low = -math.inf if self.at_least is None else self.at_least
        return low, math.inf if self.at_most is None else self.at_most


class Claim(Bounds):
    """Published statement that a sweep can test, in one of three forms.

    A trend has `axis` and `trend`. A value has `at_least`, `at_most` or both. An order has `above`.

    Attributes:
        statement: The claim in words.
        source: Figure, table or theorem that states it, with its paper.
        metric: Metric that the claim is about.
        axis: Configuration field that changes the metric.
        trend: Direction of the metric as the field grows.
        at_least: Smallest mean of the metric that the claim allows.
        at_most: Largest mean of the metric that the claim allows.
        above: Metric that `metric` exceeds on average over the same points.
        by: Least excess of `metric` over `above`.
        every: Whether a value or an order is claimed of every point, not of the mean over points.
        where: Values of other fields for which the claim is made.
        elsewhere: Values of fields in `where` at which `above` is taken instead.
        given: Ranges of other metrics; the claim is then about some point within them.
        comparison: Whether the figure is of other records, so that a measured value stands beside
            it without a verdict.
        caveat: Theoretical reservation about the published statement, if any.
    """

    statement: Text
    source: Text | None = None
    metric: Text
    axis: Text | None = None
    trend: Literal["decreasing", "increasing", "constant"] | None = None
    above: Text | None = None
    by: Limit = 0.0
    every: bool = False
    where: dict[str, Value] = Field(default_factory=dict)
    elsewhere: dict[str, Value] = Field(default_factory=dict)
    given: dict[str, Bounds] = Field(default_factory=dict)
    comparison: bool = False
    caveat: Text | None = None

    @model_validator(mode="after")
    def _check_form(self) -> Claim:
        forms = [
            self.axis is not None and self.trend is not None,
            self.at_least is not None or self.at_most is not None,
            self.above is not None,
        ]
        if sum(forms) != 1 or (self.axis is None) != (self.trend is None):
            raise ValueError("one of three: axis and trend; at_least or at_most; above")
        if self.given and (self.trend or self.elsewhere or self.metric in self.given):
            raise ValueError("given without trend and elsewhere, and with other metrics")
        if self.every and (self.trend or self.given):
            raise ValueError("every with a value or an order, and without given")
        if self.elsewhere and (self.above is None or not self.elsewhere.keys() <= {*self.where}):
            raise ValueError("elsewhere with above, and with fields that where has too")
        return self

    @property
    def metrics(self) -> dict[FieldPath, str]:
        """Every metric that the claim names, by the keys that lead to its name."""
        named: dict[FieldPath, str | None] = {("metric",): self.metric, ("above",): self.above}
        named.update({("given", name): name for name in self.given})
        return {keys: name for keys, name in named.items() if name is not None}


class SearchSpec(_StudySection):
    """Search algorithm with its settings. The last four are of adaptive algorithms only.

    Attributes:
        algorithm: Name of the algorithm; see `sweeps.study.search`.
        num_points: Number of points to try; None for every point of a grid.
        seed: Seed of the algorithm's random draws.
        budget: Trainings that one run may begin, or its time as `90s`, `30m`, `2h` or `1d`. The run
            finishes the packs that it has begun; `sweeps resume` continues without a budget.
        enqueue: Points to try first, as a value for every swept field.
        confirm: Points of the front that are trained again, each with `replicates` fresh seeds; 16
            by default.
        ask_size: Points proposed at once; a twelfth of `num_points`, at most 16, by default.
        asks_in_flight: Groups of proposals that train at once. Each one more makes the search
            slower to learn.
        front_tolerance: Share x of the front's hypervolume, such as 0.02. The search ends early
            once the front is known to ± x; only with `frontier`.
    """

    algorithm: Text = "grid"
    num_points: Annotated[int, Field(strict=True, ge=1, le=MAX_POINTS)] | None = None
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    budget: Budget | None = None
    enqueue: tuple[dict[str, Value], ...] = ()
    confirm: Annotated[int, Field(strict=True, ge=0, le=MAX_CONFIRMED)] | None = None
    ask_size: Annotated[int, Field(strict=True, ge=1, le=MAX_ASK_SIZE)] | None = None
    asks_in_flight: Annotated[int, Field(strict=True, ge=1, le=MAX_IN_FLIGHT)] = 2
    front_tolerance: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = None

    @property
    def confirmed_points(self) -> int:
        """Largest number of points that an adaptive search confirms."""
        confirm = _CONFIRMED_POINTS if self.confirm is None else self.confirm
        return min(confirm, self.num_points or 0)

    @property
    def goal(self) -> dict[str, float | None]:
        """Settings that decide when an adaptive search has ended."""
        return {
            "num_points": self.num_points,
            "confirm": self.confirmed_points,
            "front_tolerance": self.front_tolerance,
        }


_ANY_SHARE: Final = 0.001  # A node has 1 of its accelerator's type, however many GPUs it has.


class Resources(_StudySection):
    """Resources of one pack, and the number of packs that run at once.

    Attributes:
        cpus: CPUs of a pack; `auto` is 1, or a share of the machine's CPUs if packs use GPUs.
        gpus: GPUs of a pack; a fraction below 1 shares one. `auto` is half of one if a machine has
            a GPU when training starts, else 0. One pack's attackers then train on CPUs while
            another pack's game uses the GPU.
        pack: Replicates per pack; `auto` measures the best number.
        concurrency: Packs that train at once; `auto` uses all CPUs and GPUs.
        time_limit: Seconds that a pack may train; a longer one fails. None for no limit.
        memory_limit: GiB of memory that a pack may allocate in each of its processes; one that
            needs more fails. None for no limit. Linux only; it does not count a GPU's memory.
        memory: GiB of a node's memory that Ray reserves for a pack; 0 reserves none.
        accelerator: Type of GPU as Ray names it, such as `A100`; None for any.
        custom: Custom resources of Ray's nodes that a pack takes, with the amount of each.
    """

    cpus: Devices = "auto"
    gpus: Devices = "auto"
    pack: Count = "auto"
    concurrency: Count = "auto"
    time_limit: Positive | None = None
    memory_limit: Positive | None = None
    memory: Annotated[float, Field(ge=0, le=2**20, allow_inf_nan=False)] = 0.0
    accelerator: Text | None = None
    custom: dict[Text, Positive] = Field(default_factory=dict)

    @property
    def pack_cpus(self) -> float:
        """CPUs of a pack; those on a machine without GPUs as long as `cpus` is `auto`."""
        return 1 if self.cpus == "auto" else self.cpus

    @property
    def pack_gpus(self) -> float:
        """GPUs of a pack; none as long as `gpus` is `auto`."""
        return 0 if self.gpus == "auto" else self.gpus

    def bundle(self) -> dict[str, float]:
        """Everything that Ray reserves for a pack, by Ray's names."""
        memory = float(round(self.memory * 2**30))
        amounts = {"CPU": self.pack_cpus, "GPU": self.pack_gpus, "memory": memory, **self.custom}
        if self.accelerator is not None:
            amounts[f"accelerator_type:{self.accelerator}"] = _ANY_SHARE
        return {name: amount for name, amount in amounts.items() if amount}


class EarlyStopping(_StudySection):
    """Rule that stops dominated points during training; see `sweeps.engine.early_stopping`.

    Attributes:
        reduction: Each rung keeps at least one in this many points.
        rungs: Fractions of training at which points may stop.
        confidence: Required probability that a stopped point is dominated.
    """

    reduction: Annotated[float, Field(strict=True, gt=1, le=1000)] = 2.0
    rungs: Annotated[tuple[Fraction, ...], AfterValidator(_check_rungs)] = (0.125, 0.25, 0.5)
    confidence: Annotated[float, Field(strict=True, ge=0.5, lt=1)] = 0.95


class Study(_StudySection):
    """Complete specification of a sweep.

    Attributes:
        name: Name of the study; groups its sweeps.
        experiment: Name of the experiment that runs.
        description: Purpose of the study.
        reproduces: Published figure that it draws again.
        claims: Published statements that its report tests.
        fixed: Configuration fields with one value, which may be a mapping.
        space: Configuration fields that are swept, each with its axis. Dots lead into mappings, as
            `model.params.max_depth`.
        obfuscation: Trivial obfuscations of a release, such as `[noise, blur]`, as its baselines:
            points beside those of `space`, which gets the axes `obfuscation` and `strength`.
        metrics: Utilities of the author's own, `utility/NAME`, each by the name of a scorer of
            scikit-learn or as `module:function`; they count like those of the experiment.
        groups: Column of the table, or `class`, by whose values leakage is reported.
        replicates: Seeds per point.
        search: How points are chosen from the space.
        constraints: Metrics with the range that points of the front keep to.
        objectives: Metrics with their direction; None for the experiment's own.
        resources: Resources of a pack.
        early_stopping: When dominated points stop training; None, or false, for never.
    """

    name: Name
    experiment: Text
    description: Text = ""
    reproduces: Reproduces | None = None
    claims: tuple[Claim, ...] = ()
    fixed: dict[str, FixedValue] = Field(default_factory=dict)
    space: dict[str, Axis] = Field(default_factory=dict)
    obfuscation: tuple[Text, ...] = ()
    metrics: dict[UserMetric, Text] = Field(default_factory=dict)
    groups: Text | None = None
    replicates: Annotated[int, Field(strict=True, ge=1, le=MAX_REPLICATES)] = 8
    search: SearchSpec = Field(default_factory=SearchSpec)
    constraints: dict[str, Annotated[Bounds, BeforeValidator(_parse_bounds)]] = Field(
        default_factory=dict
    )
    objectives: Annotated[dict[str, Literal["min", "max"]], Field(min_length=1)] | None = None
    resources: Resources = Field(default_factory=Resources)
    early_stopping: Annotated[EarlyStopping | None, BeforeValidator(_expand_switch)] = None

    _source: StudySource = PrivateAttr(default_factory=StudySource)

    @model_validator(mode="before")
    @classmethod
    def _expand_obfuscation(cls, raw: Any) -> Any:
        names = raw.get("obfuscation") if isinstance(raw, Mapping) else None
        space = raw.get("space") or {} if names else {}
        if not isinstance(names, list | tuple) or not isinstance(space, Mapping) or not names:
            return raw
        if OBFUSCATION in space:  # validation refuses it
            return raw
        return {**raw, "space": add_obfuscation(space, names), "obfuscation": ()}

    @property
    def source(self) -> StudySource:
        """Files and lines of its parts, for error messages."""
        return self._source

    @property
    def constants(self) -> dict[str, Any]:
        """Fields with one value in every configuration: `fixed`, and `metrics` and `groups`."""
        observed = {name: getattr(self, name) or None for name in OBSERVING_FIELDS}
        return self.fixed | {name: value for name, value in observed.items() if value is not None}

    def with_source(self, source: StudySource) -> Study:
        """Returns the same study, with errors located in `source`."""
        study = self.model_copy()
        study._source = source
        return study

    def settings(self) -> dict[str, Any]:
        """Returns what results depend on: plain values, by the key that `--set` takes."""
        raw = self.to_dict()
        single = ("experiment", "groups", "replicates", "early_stopping")
        settings = {key: raw[key] for key in single}
        for part in ("fixed", "metrics", "search", "objectives", "constraints"):
            settings |= {f"{part}.{key}": value for key, value in (raw[part] or {}).items()}
        del settings["search.budget"]  # of one run, not of the sweep
        for name, axis in raw["space"].items():
            settings |= {f"space.{name}.{kind}": values for kind, values in axis.items()}
        return settings

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values from which `Study.model_validate` makes an equal study."""
        return self.model_dump(mode="json")
