"""Experiments of users: a function of named settings that returns metrics.

A study names one as `experiment: "module:function"`; the module lies in the study's folder or is
installed. The function's parameters are the fields, `seed` among them, with their types and
defaults. Its attribute `metrics` maps each metric that it returns to `min` or `max`.
"""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, ClassVar, Final, Literal, get_args, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError, create_model

from privnets.config import ExperimentConfig
from privnets.contract import Cost, Direction, Experiment, InvalidField, Stage, State
from privnets.data.files import UserFormError
from privnets.frames import POINT_COLUMNS, REPLICATE_COLUMNS
from privnets.points import Replicate
from privnets.references.user_files import describe_error, folder, import_object, source_digest

_SCALARS: Final = frozenset({bool, int, float, str})
_TYPES: Final = _SCALARS | {NoneType}
_MEMORY: Final = 2**28
_METRIC: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*(/[A-Za-z0-9_]+)*")
# Columns and families of columns that tables of results have already.
_TAKEN: Final = {"point_id", "sweep", "experiment", "status", "finished_at", "phase", "config"}
_TAKEN.update(POINT_COLUMNS, REPLICATE_COLUMNS, ("curve", "flag", "front"))
_loaded: dict[tuple[str, ...], FunctionExperiment] = {}


def own_experiment(location: str) -> FunctionExperiment:
    """Returns the experiment of the function at `module:name`; the same until its source changes.

    Raises:
        UserFormError: If the function cannot be imported, or is not as this module describes.
    """
    key = (location, str(folder()), source_digest(location, "experiment"))
    if key not in _loaded:
        _loaded[key] = FunctionExperiment(location)
    return _loaded[key]


class FunctionExperiment(Experiment[ExperimentConfig]):
    """Experiment of one function of the user."""

    version = 1
    data_field: ClassVar[str] = "experiment"

    def __init__(self, location: str) -> None:
        """Reads the function's signature and metrics; see `own_experiment`."""
        function = import_object(location, "experiment")
        if not callable(function):
            raise UserFormError("experiment", f"{location}, which is {function!r}", "a function")
        self.name = location  # type: ignore[misc]
        self._function: Callable[..., Mapping[str, float]] = function
        metrics = getattr(function, "metrics", None)
        if not (
            isinstance(metrics, dict)
            and metrics
            and all(direction in ("min", "max") for direction in metrics.values())
        ):
            given = "no attribute metrics" if metrics is None else f"metrics = {metrics!r}"
            expected = f'{location.partition(":")[2]}.metrics = {{"NAME": "min" or "max", ...}}'
            raise UserFormError("experiment", f"{location} with {given}", expected)
        for name in metrics:
            if (
                not isinstance(name, str)
                or not _METRIC.fullmatch(name)
                or name.split("/")[0] in _TAKEN
            ):
                expected = "letters, digits and _, in parts divided by /; no column of tables"
                raise UserFormError("experiment", f"{location} with the metric {name!r}", expected)
        self.objectives = metrics  # type: ignore[misc]
        self.Config = _read_fields(location, function)  # type: ignore[misc]

    def default_objectives(self, config: ExperimentConfig) -> Mapping[str, Direction]:
        """All metrics of the function."""
        return self.objectives

    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        """The metrics that the function declares."""
        return tuple(self.objectives)

    def invalid_fields(self, config: ExperimentConfig) -> list[InvalidField]:
        """None: the function itself raises for values that it cannot take."""
        return []

    def fingerprint(self, config: ExperimentConfig) -> str:
        """Digest of the function's module and of the modules in its folder that it imports."""
        return source_digest(self.name, "experiment")

    def cost(self, config: ExperimentConfig) -> Cost:
        """A guess: only a run shows what the function costs."""
        return Cost(10.0, _MEMORY)

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Calls the function once for each configuration.

        Raises:
            ValueError: If it returns other metrics than it declares.
        """
        for done, config in enumerate(configs, 1):
            try:
                metrics = self._function(**config.__dict__)
            except OSError as error:  # not of the sweep's storage, which another worker may reach
                raise RuntimeError(describe_error(error)) from error
            if not isinstance(metrics, Mapping) or metrics.keys() != self.objectives.keys():
                given = ", ".join(metrics) if isinstance(metrics, Mapping) else repr(metrics)
                expected = ", ".join(self.objectives)
                raise ValueError(f"{self.name} must return the metrics {expected}; got {given}.")
            values = {key: float(metrics[key]) for key in self.objectives}
            replicate = Replicate(config.seed, values, finished_at=time.time())
            yield Stage(done / len(configs), (self.point(config, replicate),), dict)


def _read_fields(location: str, function: Callable[..., object]) -> type[ExperimentConfig]:
    """Configuration with a field for each parameter of a function."""
    try:
        parameters = inspect.signature(function).parameters
        hints = get_type_hints(function)
    except (TypeError, ValueError, NameError) as error:
        given = f"{location}, whose parameters cannot be read ({error})"
        raise UserFormError("experiment", given, "a function with types that exist") from error
    if "seed" not in parameters:
        given, expected = f"{location} without a parameter seed", "seed, a source of all randomness"
        raise UserFormError("experiment", given, expected)
    fields: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name != "seed":
            kind, default = _read_parameter(location, parameter, hints.get(name))
            fields[name] = (kind, Field(default, description=f"parameter of {location}"))
    return create_model("OwnConfig", __base__=ExperimentConfig, __doc__=function.__doc__, **fields)


def _read_parameter(location: str, parameter: inspect.Parameter, hint: object) -> tuple[Any, Any]:
    """Type and default of a parameter; without a type, that of its default."""
    default = ... if parameter.default is parameter.empty else parameter.default
    kind: Any = type(default) if hint is None else hint
    given = f"{location} with the parameter {parameter}"
    if parameter.name.startswith("_") or hasattr(ExperimentConfig, parameter.name):
        raise UserFormError("experiment", given, "another name, which configurations do not have")
    parts = get_args(kind) or (kind,)
    is_literal = get_origin(kind) is Literal  # of values, where others have types
    allowed = set(map(type, parts)) <= _SCALARS if is_literal else {*parts} <= _TYPES
    if not allowed or kind is NoneType:
        expected = "parameters of the types bool, int, float or str, of a Literal, or None"
        raise UserFormError("experiment", given, expected)
    if default is None:
        kind = kind | None
    elif default is not ...:
        try:
            TypeAdapter(kind).validate_python(default, strict=True)
        except ValidationError as error:
            raise UserFormError("experiment", given, "a default of its type") from error
        if isinstance(default, float) and not math.isfinite(default):
            raise UserFormError("experiment", given, "a finite default, or None")
    return kind, default
