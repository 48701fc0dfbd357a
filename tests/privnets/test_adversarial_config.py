"""What an adversarial configuration accepts, and what may share a stack."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from privnets.adversarial.config import DEFAULTS, AdversarialConfig


@pytest.mark.parametrize("problem", sorted(DEFAULTS))
def test_what_is_not_given_takes_the_problems_default(problem):
    made = AdversarialConfig(problem=problem)
    for field, value in DEFAULTS[problem].items():
        assert getattr(made, field) == value
    given = {"steps": 7, "releaser_width": 3}
    assert AdversarialConfig(problem=problem, **given).model_dump(include=set(given)) == given


def test_numbers_may_differ_in_a_stack_and_shapes_may_not():
    base = AdversarialConfig(problem="digits")
    numbers = {"alpha": math.inf, "privacy_weight": 3.0, "seed": 5, "noise_std": 0.1}
    assert AdversarialConfig(problem="digits", **numbers).structure() == base.structure()
    for field, value in {"steps": 5, "gradient": "posterior", "releaser_width": 8}.items():
        other = AdversarialConfig(problem="digits", **{field: value})
        assert other.structure() != base.structure(), field


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": -1.0},
        {"alpha": math.nan},
        {"privacy_weight": math.inf},
        {"tradeoff": 1.5},
        {"dependence": 2.5},
        {"problem": "faces"},
        {"lambda": 1.0},
    ],
)
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ValidationError):
        AdversarialConfig.model_validate({"problem": "digits", **wrong})


def test_an_infinite_order_has_an_identity_of_its_own():
    structure = AdversarialConfig(problem="digits", alpha=math.inf)
    assert structure.resolved()["alpha"] == math.inf
