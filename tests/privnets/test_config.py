"""What a configuration and a point are known by."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from privnets.config import ExperimentConfig, point_id

ORDERS = st.floats(0, allow_nan=False)


class Ordered(ExperimentConfig):
    """A field that may be infinite, in the stack or before it, and one that may not."""

    stackable: ClassVar[frozenset[str]] = frozenset({"seed", "alpha"})

    alpha: float = Field(1.0, ge=0, allow_inf_nan=True)
    power: float = Field(2.0, ge=0, allow_inf_nan=True)
    weight: float = 1.0


def named(**values: float) -> str:
    return point_id("e", 1, Ordered.model_validate(values), "data")


@given(ORDERS, ORDERS)
def test_points_are_known_by_their_values_infinite_ones_included(a: float, b: float) -> None:
    assert (named(alpha=a) == named(alpha=b)) == (a == b)


@given(ORDERS, ORDERS)
def test_only_what_may_not_differ_in_a_stack_is_structure(a: float, power: float) -> None:
    one, other = (Ordered(alpha=x, power=power).structure() for x in (a, math.inf))
    assert one == other
    assert (Ordered(power=power).structure() == Ordered(power=2.0).structure()) == (power == 2)


def test_a_point_s_identity_does_not_drift() -> None:
    """Or every finished sweep would be trained again."""
    assert named() == "cb51bf4588164fae9deb"
    assert named(alpha=math.inf) == "f64421945336e059f51b"


@pytest.mark.parametrize("value", [{"alpha": math.nan}, {"weight": math.inf}, {"weight": math.nan}])
def test_what_is_no_number_is_refused_and_infinity_where_it_has_no_meaning(
    value: dict[str, float],
) -> None:
    with pytest.raises(ValidationError):
        Ordered.model_validate(value)
