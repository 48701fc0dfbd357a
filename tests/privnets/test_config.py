"""Identities of configurations and points."""

from __future__ import annotations

import math
from functools import cached_property
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

    @cached_property
    def strength(self) -> float:
        return self.weight * self.power


def make_id(**values: float) -> str:
    return point_id("e", 1, Ordered.model_validate(values), "data")


@given(ORDERS, ORDERS)
def test_point_ids_depend_on_values_including_infinity(a: float, b: float) -> None:
    assert (make_id(alpha=a) == make_id(alpha=b)) == (a == b)


@given(ORDERS, ORDERS)
def test_stackable_fields_are_not_structure(a: float, power: float) -> None:
    one, other = (Ordered(alpha=x, power=power).structure() for x in (a, math.inf))
    assert one == other
    assert (Ordered(power=power).structure() == Ordered(power=2.0).structure()) == (power == 2)


def test_point_ids_are_stable() -> None:
    """A changed identity would train every finished sweep again."""
    assert make_id() == "cb51bf4588164fae9deb"
    assert make_id(alpha=math.inf) == "f64421945336e059f51b"


def test_cached_properties_are_no_fields() -> None:
    config = Ordered()
    before = config.structure(), config.resolved(), make_id()
    assert config.strength == 2
    assert (config.structure(), config.resolved(), point_id("e", 1, config, "data")) == before


@pytest.mark.parametrize("value", [{"alpha": math.nan}, {"weight": math.inf}, {"weight": math.nan}])
def test_nan_and_meaningless_infinities_are_refused(
    value: dict[str, float],
) -> None:
    with pytest.raises(ValidationError):
        Ordered.model_validate(value)
