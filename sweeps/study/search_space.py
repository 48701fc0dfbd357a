"""Search spaces: the values that a sweep tries for each configuration field."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Final, Literal, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from privnets.points import Scalar
from sweeps.errors import FieldError, describe_choices, format_value

AxisKind = Literal["grid", "choice", "uniform", "loguniform", "range"]
AXIS_KINDS: Final[tuple[AxisKind, ...]] = get_args(AxisKind)
_MAX_WHOLE: Final = 2**53
_MIN_LOG_DECADES: Final = 2.0
_MAX_CHECKED_VALUES: Final = 10_000
_MAX_SHOWN_VALUES: Final = 5
_MAX_COUNTED: Final = 1_000_001


def _check_scalar(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError("a number, a text, true, false or null")


def _check_plain(value: object) -> object:
    if isinstance(value, dict):
        if not all(isinstance(key, str) and "." not in key for key in value):
            raise ValueError("texts without dots as keys")
        return {key: _check_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_check_plain(each) for each in value]
    return _check_scalar(value)


Value = Annotated[Scalar, PlainValidator(_check_scalar)]
FixedValue = Annotated[Scalar | list[Any] | dict[str, Any], PlainValidator(_check_plain)]
ListedValues = Annotated[
    tuple[Value, ...],
    Field(min_length=1),
    BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,)),
]
"""One value or several."""
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Whole = Annotated[int, Field(strict=True, ge=-_MAX_WHOLE, le=_MAX_WHOLE)]
OBFUSCATION, _STRENGTH = "obfuscation", "strength"
_STRENGTHS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 6.4)  # from raw records to the floor
SHARED_FIELDS: Final = ("problem", "panel", "evaluation")
"""Fields of the records and the yardstick: only releases of equal ones are comparable."""
_UNSET: Any = Field(None, exclude_if=lambda values: values is None)


Proposal = dict[str, Scalar]
"""One value per swept field, without the fields whose condition the others do not meet."""


class Axis(BaseModel):
    """Values that a sweep tries for one field; exactly one of the first five attributes is set.

    Attributes:
        grid: Listed values that a grid search crosses with those of the other axes.
        choice: Listed values without an order.
        uniform: Ends of an interval.
        loguniform: Ends of an interval of positive numbers, uniform in the logarithm.
        range: First and last of a range of whole numbers, and the step (1 by default).
        along: Field above it in the space, whose values its own ones accompany: the first goes with
            the first, and so on, so that several fields are one knob. Only in a grid search.
        when: Value, or list of values, of other swept fields beside which the field has an effect.
            A point with other values leaves it at its default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    grid: Annotated[tuple[Value, ...], Field(min_length=1)] | None = _UNSET
    choice: Annotated[tuple[Value, ...], Field(min_length=1)] | None = _UNSET
    uniform: tuple[Real, Real] | None = _UNSET
    loguniform: tuple[Real, Real] | None = _UNSET
    range: Annotated[tuple[Whole, ...], Field(min_length=2, max_length=3)] | None = _UNSET
    along: Annotated[str, Field(strict=True)] | None = _UNSET
    when: Annotated[dict[str, ListedValues], Field(min_length=1)] | None = _UNSET

    @model_validator(mode="before")
    @classmethod
    def _check_kind(cls, raw: object) -> object:
        if isinstance(raw, Axis):
            return raw
        kinds = [k for k in raw if k not in ("along", "when")] if isinstance(raw, Mapping) else []
        if not isinstance(raw, Mapping) or len(kinds) != 1 or None in raw.values():
            raise ValueError(
                f"a mapping of exactly one key (beside along and when): {', '.join(AXIS_KINDS)}"
            )
        (kind,) = kinds
        if kind not in AXIS_KINDS:
            raise ValueError(describe_choices(AXIS_KINDS, kind))
        return raw

    @model_validator(mode="after")
    def _check_order(self) -> Axis:
        if self.uniform and not self.uniform[0] < self.uniform[1]:
            raise ValueError("[lowest, highest] with the lowest below the highest")
        if self.loguniform and not 0 < self.loguniform[0] < self.loguniform[1]:
            raise ValueError("[lowest, highest] with 0 below the lowest below the highest")
        if self.range and (self.range[0] > self.range[1] or min(self.range[2:], default=1) < 1):
            raise ValueError("[lowest, highest] or [lowest, highest, step], with step at least 1")
        return self

    @property
    def kind(self) -> AxisKind:
        """The attribute that is set."""
        return next(kind for kind in AXIS_KINDS if getattr(self, kind) is not None)

    def values(self) -> Sequence[Scalar] | None:
        """Returns every value in order, or None for an interval."""
        if self.range is not None:
            low, high, *step = self.range
            return range(low, high + 1, *step)
        return self.grid or self.choice

    def at(self, fraction: float) -> Scalar:
        """Returns the value at a fraction in [0, 1] of the way along the axis."""
        values = self.values()
        if values is not None:
            return values[min(int(fraction * len(values)), len(values) - 1)]
        low, high = self.uniform or self.loguniform or (0.0, 1.0)
        if self.uniform:
            value = low * (1 - fraction) + high * fraction
        else:
            value = math.exp(math.log(low) * (1 - fraction) + math.log(high) * fraction)
        return min(max(value, low), high)

    def contains(self, value: object) -> bool:
        """Returns whether a value is one of the axis, of the same type as well."""
        values = self.values()
        if isinstance(values, range):
            return type(value) is int and value in values
        if values is not None:
            return any(type(value) is type(each) and value == each for each in values)
        low, high = self.uniform or self.loguniform or (0.0, 1.0)
        return type(value) in (int, float) and low <= cast(float, value) <= high

    def equal_value(self, value: Scalar) -> Scalar:
        """Returns the listed value that a number is equal to, 2 for 2.0; others unchanged."""
        values = self.values()
        if values is None or type(value) not in (int, float):
            return value
        if isinstance(values, range):
            return int(value) if isinstance(value, float) and value.is_integer() else value
        return next(
            (each for each in values if type(each) in (int, float) and each == value), value
        )

    def applies(self, values: Mapping[str, object]) -> bool:
        """Returns whether values of other fields meet the axis's condition."""
        conditions = (self.when or {}).items()
        return all(name in values and values[name] in listed for name, listed in conditions)

    def check_values(self) -> Sequence[Scalar]:
        """Returns the values to validate: all, or both ends of an interval or a long range."""
        values = self.values()
        if values is None or len(values) > _MAX_CHECKED_VALUES:
            return self.at(0.0), self.at(1.0)
        return values

    @property
    def is_log_scaled(self) -> bool:
        """Whether plots should show the field on a logarithmic scale.

        A grid should if all its values are numbers >= 0, and the positive finite ones span at least
        two decades.
        """
        values = [v for v in self.grid or () if isinstance(v, int | float) and v >= 0]
        numbers = [value for value in values if not isinstance(value, bool)]
        decades = [math.log10(number) for number in numbers if 0 < number < math.inf]
        if self.grid is None or len(numbers) < len(self.grid) or not decades:
            return self.kind == "loguniform"
        return max(decades) - min(decades) >= _MIN_LOG_DECADES


def add_obfuscation(space: Mapping[str, Any], names: Sequence[Any]) -> dict[str, Any]:
    """Adds trivial obfuscations, each over its strengths, to the plain values of a space.

    All other axes belong to learned releases from then on, except those of records and yardstick.
    """
    both = {OBFUSCATION: {"choice": ["none", *names]}, _STRENGTH: {"grid": [*_STRENGTHS]}}

    def belong(name: str, axis: Any) -> Any:
        if name == OBFUSCATION or is_shared(name) or not isinstance(axis, Mapping):
            return axis
        belongs = {OBFUSCATION: [*names] if name == _STRENGTH else ["none"]}
        return {**axis, "when": {**(axis.get("when") or {}), **belongs}}

    return {name: belong(name, axis) for name, axis in {**both, **space}.items()}


def is_shared(field: str) -> bool:
    """Whether a field, or an entry of one, is of the records or the yardstick."""
    return field.partition(".")[0] in SHARED_FIELDS


def keep_applicable(space: Mapping[str, Axis], values: Mapping[str, Scalar]) -> Proposal:
    """Returns values without those of fields whose condition the others do not meet."""
    kept: Proposal = {}
    for name, axis in space.items():
        if name in values and axis.applies(kept):
            kept[name] = values[name]
    return kept


def lists_applicable(space: Mapping[str, Axis], values: Mapping[str, object]) -> bool:
    """Returns whether values are of exactly the fields whose condition they meet."""
    return values.keys() == {name for name, axis in space.items() if axis.applies(values)}


def is_in_space(space: Mapping[str, Axis], values: Mapping[str, object]) -> bool:
    """Returns whether each field that applies, and no other, has a value of its axis."""
    return lists_applicable(space, values) and all(
        space[name].contains(value) for name, value in values.items()
    )


def example_point(
    space: Mapping[str, Axis], values: Mapping[str, Scalar] | None = None
) -> Proposal:
    """Returns a point with some given values, or with others only where conditions contradict.

    Fields that the conditions of given ones name get those values, all others their first one.
    """
    wanted = dict(values or {})
    allowed: dict[str, Sequence[Scalar]] = {}
    for name in reversed([*space]):
        if name in allowed:
            wanted.setdefault(name, allowed[name][0])
        for field, listed in (space[name].when or {}).items() if name in wanted else ():
            both = [value for value in allowed.get(field, listed) if value in listed]
            allowed[field] = both or allowed[field]
    first = {name: axis.at(0.0) for name, axis in space.items()}
    return keep_applicable(space, first | {n: v for n, v in wanted.items() if n in space})


def grid_points(space: Mapping[str, Axis]) -> Iterable[Proposal]:
    """Combinations of the listed values of a space, the last axis changing fastest.

    An interval has one value here, null.
    """

    def cross(points: Iterable[Proposal], name: str, root: str) -> Iterator[Proposal]:
        axis = space[name]
        for point in points:
            if not axis.applies(point) or (axis.along is not None and axis.along not in point):
                yield point
            else:
                values: Sequence[Scalar] = axis.values() or (None,)
                leading = space[root].values()
                if axis.along is not None and leading:  # the one at the place of the root's value
                    place = leading.index(point[root])
                    values = values[place : place + 1]
                yield from ({**point, name: value} for value in values)

    points: Iterable[Proposal] = [{}]
    for name, root in axis_roots(space).items():
        points = cross(points, name, root)
    return points


def axis_roots(space: Mapping[str, Axis]) -> dict[str, str]:
    """The field that each one accompanies in the end: itself, or the first of its chain."""
    roots: dict[str, str] = {}
    for name, axis in space.items():
        roots[name] = roots.get(axis.along or name, name)
    return roots


def grid_size(space: Mapping[str, Axis]) -> int:
    """Counts the combinations of the listed values of a space; an interval counts as one.

    Where fields depend on others, counting ends after a million.
    """
    if any(axis.when or axis.along for axis in space.values()):
        return sum(1 for _ in islice(grid_points(space), _MAX_COUNTED))
    return math.prod(len(axis.values() or (None,)) for axis in space.values())


def find_condition_errors(space: Mapping[str, Axis]) -> list[FieldError]:
    """Finds conditions on fields that are not swept before, and on values that they never have.

    A field that others accompany must not repeat a value: each has one place.
    """
    errors, roots = [], axis_roots(space)
    for name in sorted({root for field, root in roots.items() if root != field}):
        leading = space[name].values() or ()
        if not isinstance(leading, range) and len(leading) > len({*leading}):
            repeated = next(value for value in leading if leading.count(value) > 1)
            followers = " and ".join(f for f, root in roots.items() if name == root != f)
            given = f"{format_value(repeated)} more than once"
            expected = f"each value once, for those of {followers} beside it"
            errors.append(FieldError(("space", name, space[name].kind), given, expected))
    for position, (name, axis) in enumerate(space.items()):
        before = [*space][:position]
        if axis.along is not None:
            sizes = [len(one.values() or ()) for one in (axis, space.get(axis.along, axis))]
            if axis.along not in before or sizes[0] != sizes[1] or not sizes[0]:
                expected = "a field above it in space that lists as many values"
                errors.append(FieldError(("space", name, "along"), axis.along, expected))
        for field, listed in (axis.when or {}).items():
            path = ("space", name, "when", field)
            if field not in before:
                expected = f"a field above it in space: {', '.join(before) or 'there is none'}"
                errors.append(FieldError(path, field, expected))
                continue
            values = space[field].values()
            if values is None:
                given = f"{field}, which is {space[field].kind}"
                errors.append(FieldError(path, given, "a field with listed values"))
                continue
            shown = ", ".join(map(format_value, values[:_MAX_SHOWN_VALUES]))
            errors += [
                FieldError(path, format_value(value), f"a listed value of {field}: {shown}")
                for value in listed
                if value not in values
            ]
    return errors
