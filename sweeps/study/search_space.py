"""Search spaces: the values that a sweep tries for each configuration field."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeGuard, TypeVar, final

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    field_validator,
)

from privnets.points import Scalar

AXIS_KINDS: Final = ("grid", "choice", "uniform", "loguniform", "range")
_T = TypeVar("_T")
_MAX_WHOLE: Final = 2**53
_MIN_LOG_DECADES: Final = 2.0
_MAX_CHECKED_VALUES: Final = 10_000


def _check_scalar(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError("a number, a text, true, false or null")


Value = Annotated[Scalar, PlainValidator(_check_scalar)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Whole = Annotated[int, Field(strict=True, ge=-_MAX_WHOLE, le=_MAX_WHOLE)]


class Axis(BaseModel, ABC):
    """Values that a sweep tries for one field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def values(self) -> Sequence[Scalar] | None:
        """Returns every value in order, or None for an interval."""

    @abstractmethod
    def at(self, fraction: float) -> Scalar:
        """Returns the value at a fraction in [0, 1] of the way along the axis."""

    def check_values(self) -> Sequence[Scalar]:
        """Returns the values to validate: all, or both ends of an interval or a long range."""
        values = self.values()
        if values is None or len(values) > _MAX_CHECKED_VALUES:
            return self.at(0.0), self.at(1.0)
        return values

    @property
    def is_log_scaled(self) -> bool:
        """Whether plots should show the field on a logarithmic scale."""
        return False


@final
class GridAxis(Axis):
    """Listed values; a grid search crosses them with those of the other axes."""

    grid: tuple[Value, ...] = Field(min_length=1)

    def values(self) -> tuple[Scalar, ...]:
        """Returns the listed values."""
        return self.grid

    def at(self, fraction: float) -> Scalar:
        """Returns the value at a fraction of the list."""
        return _pick(self.grid, fraction)

    @property
    def is_log_scaled(self) -> bool:
        """Whether all are numbers >= 0, and the positive finite ones span two decades."""
        numbers = [value for value in self.grid if _is_number(value) and value >= 0]
        decades = [math.log10(number) for number in numbers if 0 < number < math.inf]
        if len(numbers) < len(self.grid) or not decades:
            return False
        return max(decades) - min(decades) >= _MIN_LOG_DECADES


@final
class ChoiceAxis(Axis):
    """Listed values without an order."""

    choice: tuple[Value, ...] = Field(min_length=1)

    def values(self) -> tuple[Scalar, ...]:
        """Returns the listed values."""
        return self.choice

    def at(self, fraction: float) -> Scalar:
        """Returns the value at a fraction of the list."""
        return _pick(self.choice, fraction)


@final
class UniformAxis(Axis):
    """Interval between two numbers."""

    uniform: tuple[Real, Real]

    @field_validator("uniform")
    @classmethod
    def _check_order(cls, ends: tuple[float, float]) -> tuple[float, float]:
        if not ends[0] < ends[1]:
            raise ValueError("[lowest, highest] with the lowest below the highest")
        return ends

    def values(self) -> None:
        """Returns None: an interval."""

    def at(self, fraction: float) -> float:
        """Interpolates linearly between the ends."""
        low, high = self.uniform
        return min(max(low * (1 - fraction) + high * fraction, low), high)


@final
class LogUniformAxis(Axis):
    """Interval between two positive numbers, uniform in the logarithm."""

    loguniform: tuple[Real, Real]

    @field_validator("loguniform")
    @classmethod
    def _check_order(cls, ends: tuple[float, float]) -> tuple[float, float]:
        if not 0 < ends[0] < ends[1]:
            raise ValueError("[lowest, highest] with 0 below the lowest below the highest")
        return ends

    def values(self) -> None:
        """Returns None: an interval."""

    def at(self, fraction: float) -> float:
        """Interpolates geometrically between the ends."""
        low, high = self.loguniform
        value = math.exp(math.log(low) * (1 - fraction) + math.log(high) * fraction)
        return min(max(value, low), high)

    @property
    def is_log_scaled(self) -> bool:
        """Always True."""
        return True


@final
class RangeAxis(Axis):
    """Whole numbers from the lowest to the highest, both included, a step apart."""

    range: tuple[Whole, ...] = Field(min_length=2, max_length=3)

    @field_validator("range")
    @classmethod
    def _check_order(cls, ends: tuple[int, ...]) -> tuple[int, ...]:
        if ends[0] > ends[1] or min(ends[2:], default=1) < 1:
            raise ValueError(
                "[lowest, highest] or [lowest, highest, step] with the lowest not above the "
                "highest and a step of at least 1"
            )
        return ends

    def values(self) -> Sequence[int]:
        """Returns the numbers as a lazy sequence."""
        low, high, *step = self.range
        return range(low, high + 1, *step)

    def at(self, fraction: float) -> int:
        """Returns the number at a fraction of the sequence."""
        return _pick(self.values(), fraction)


def _axis_kind(raw: object) -> str | None:
    """Returns the kind of axis that a mapping of one key describes; pydantic refuses None."""
    if isinstance(raw, Axis):
        return next(iter(type(raw).model_fields))
    keys = list(raw) if isinstance(raw, dict) else []
    return keys[0] if len(keys) == 1 and keys[0] in AXIS_KINDS else None


AnyAxis = Annotated[
    Annotated[GridAxis, Tag("grid")]
    | Annotated[ChoiceAxis, Tag("choice")]
    | Annotated[UniformAxis, Tag("uniform")]
    | Annotated[LogUniformAxis, Tag("loguniform")]
    | Annotated[RangeAxis, Tag("range")],
    Discriminator(
        _axis_kind,
        custom_error_type="axis",
        custom_error_message="a mapping of exactly one key: grid, choice, uniform, loguniform "
        "or range",
    ),
]


def grid_size(space: Mapping[str, Axis]) -> int:
    """Counts the combinations of the listed values of a space; an interval counts as one."""
    return math.prod(len(axis.values() or (None,)) for axis in space.values())


def _pick(values: Sequence[_T], fraction: float) -> _T:
    return values[min(int(fraction * len(values)), len(values) - 1)]


def _is_number(value: Scalar) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
