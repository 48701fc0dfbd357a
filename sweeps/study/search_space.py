"""The axes of a search space: which values one configuration field takes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
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

KINDS: Final = ("grid", "choice", "uniform", "loguniform", "range")
_T = TypeVar("_T")
_LARGEST: Final = 2**53
_LOG_DECADES: Final = 2.0
_MOST_PROBED: Final = 10_000


def _scalar(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError("a number, a text, true, false or null")


Value = Annotated[Scalar, PlainValidator(_scalar)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Whole = Annotated[int, Field(strict=True, ge=-_LARGEST, le=_LARGEST)]


class Axis(BaseModel, ABC):
    """The values that a field takes in a sweep."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def members(self) -> Sequence[Scalar] | None:
        """Every value in order, or None for a continuum."""

    @abstractmethod
    def at(self, share: float) -> Scalar:
        """The value at a share in [0, 1] of the way along the axis."""

    def probes(self) -> Sequence[Scalar]:
        """Every value, or those at the ends when there are too many."""
        members = self.members()
        if members is None or len(members) > _MOST_PROBED:
            return self.at(0.0), self.at(1.0)
        return members

    @property
    def log_scaled(self) -> bool:
        """Whether the axis reads better on a logarithmic scale."""
        return False


@final
class GridAxis(Axis):
    """Listed values that a grid search crosses with those of the other axes."""

    grid: tuple[Value, ...] = Field(min_length=1)

    def members(self) -> tuple[Scalar, ...]:
        """The listed values."""
        return self.grid

    def at(self, share: float) -> Scalar:
        """The value at that share of the list."""
        return _pick(self.grid, share)

    @property
    def log_scaled(self) -> bool:
        """Numbers, none negative, of which those above 0 and finite span at least two decades."""
        numbers = [value for value in self.grid if _is_number(value) and value >= 0]
        decades = [math.log10(number) for number in numbers if 0 < number < math.inf]
        whole = len(numbers) == len(self.grid) and bool(decades)
        return whole and max(decades) - min(decades) >= _LOG_DECADES


@final
class ChoiceAxis(Axis):
    """Listed values without an order."""

    choice: tuple[Value, ...] = Field(min_length=1)

    def members(self) -> tuple[Scalar, ...]:
        """The listed values."""
        return self.choice

    def at(self, share: float) -> Scalar:
        """The value at that share of the list."""
        return _pick(self.choice, share)


@final
class UniformAxis(Axis):
    """A continuum between two numbers."""

    uniform: tuple[Real, Real]

    @field_validator("uniform")
    @classmethod
    def _rising(cls, ends: tuple[float, float]) -> tuple[float, float]:
        if not ends[0] < ends[1]:
            raise ValueError("[lowest, highest] with the lowest below the highest")
        return ends

    def members(self) -> None:
        """None: a continuum."""

    def at(self, share: float) -> float:
        """Linear between the ends."""
        low, high = self.uniform
        return min(max(low * (1 - share) + high * share, low), high)


@final
class LogUniformAxis(Axis):
    """A continuum between two positive numbers, uniform in the logarithm."""

    loguniform: tuple[Real, Real]

    @field_validator("loguniform")
    @classmethod
    def _rising(cls, ends: tuple[float, float]) -> tuple[float, float]:
        if not 0 < ends[0] < ends[1]:
            raise ValueError("[lowest, highest] with 0 below the lowest below the highest")
        return ends

    def members(self) -> None:
        """None: a continuum."""

    def at(self, share: float) -> float:
        """Geometric between the ends."""
        low, high = self.loguniform
        value = math.exp(math.log(low) * (1 - share) + math.log(high) * share)
        return min(max(value, low), high)

    @property
    def log_scaled(self) -> bool:
        """Always."""
        return True


@final
class RangeAxis(Axis):
    """Whole numbers from the lowest up to the highest, which is included, a step apart."""

    range: tuple[Whole, ...] = Field(min_length=2, max_length=3)

    @field_validator("range")
    @classmethod
    def _rising(cls, ends: tuple[int, ...]) -> tuple[int, ...]:
        if ends[0] > ends[1] or min(ends[2:], default=1) < 1:
            raise ValueError(
                "[lowest, highest] or [lowest, highest, step] with the lowest not above the "
                "highest and a step of at least 1"
            )
        return ends

    def members(self) -> Sequence[int]:
        """The numbers, as a lazy sequence."""
        low, high, *step = self.range
        return range(low, high + 1, *step)

    def at(self, share: float) -> int:
        """The number at that share of the sequence."""
        return _pick(self.members(), share)


def _kind(raw: object) -> str | None:
    """Which axis a mapping of one key describes; None makes pydantic refuse it."""
    if isinstance(raw, Axis):
        return next(iter(type(raw).model_fields))
    keys = list(raw) if isinstance(raw, dict) else []
    return keys[0] if len(keys) == 1 and keys[0] in KINDS else None


AnyAxis = Annotated[
    Annotated[GridAxis, Tag("grid")]
    | Annotated[ChoiceAxis, Tag("choice")]
    | Annotated[UniformAxis, Tag("uniform")]
    | Annotated[LogUniformAxis, Tag("loguniform")]
    | Annotated[RangeAxis, Tag("range")],
    Discriminator(
        _kind,
        custom_error_type="axis",
        custom_error_message="a mapping of exactly one key: grid, choice, uniform, loguniform "
        "or range",
    ),
]


def _pick(values: Sequence[_T], share: float) -> _T:
    return values[min(int(share * len(values)), len(values) - 1)]


def _is_number(value: Scalar) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
