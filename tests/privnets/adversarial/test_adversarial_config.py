"""Valid adversarial configurations, and fields that may differ in a stack."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from pydantic import ValidationError

import privnets
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.objectives import OBJECTIVES
from privnets.adversarial.problems import PROBLEMS


@pytest.mark.parametrize("problem", PROBLEMS.names())
def test_fields_that_are_not_given_take_the_problems_default(problem):
    made = AdversarialConfig(problem=problem)
    for field, value in PROBLEMS.get(problem).spec.defaults.items():
        assert getattr(made, field) == value
    given = {"steps": 7, "releaser_width": 3}
    assert AdversarialConfig(problem=problem, **given).model_dump(include=set(given)) == given


def test_only_numeric_fields_may_differ_in_a_stack():
    base = AdversarialConfig(problem="digits")
    numbers = {"alpha": math.inf, "privacy_weight": 3.0, "seed": 5, "noise_std": 0.1}
    assert AdversarialConfig(problem="digits", **numbers).structure() == base.structure()
    others = {"steps": 5, "gradient": "posterior", "releaser_width": 8, "precision": "bf16"}
    for field, value in others.items():
        other = AdversarialConfig(problem="digits", **{field: value})
        assert other.structure() != base.structure(), field


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": -1.0},
        {"alpha": math.nan},
        {"privacy_weight": math.inf},
        {"tradeoff": 1.5},
        {"problem": {"gaussian-mixture": {"dependence": 2.5}}},
        {"problem": {"digits": {"dependence": 0.5}}},
        {"problem": "faces"},
        {"lambda": 1.0},
    ],
)
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ValidationError):
        AdversarialConfig.model_validate({"problem": "digits", **wrong})


def test_an_infinite_order_is_kept_in_the_resolved_configuration():
    structure = AdversarialConfig(problem="digits", alpha=math.inf)
    assert structure.resolved()["alpha"] == math.inf


@pytest.mark.parametrize(
    "fields",
    [
        {"problem": "gaussian-mixture", "releaser": "linear", "evaluation": "exact"},
        {"problem": "gaussian-mixture", "objective": "squared-kl", "scenario": "fixed-both"},
        {"problem": "digits"},
        {"problem": "eco"},
    ],
)
def test_unused_fields_are_those_whose_change_is_refused(fields):
    experiment = privnets.experiment("adversarial")
    config = AdversarialConfig(**fields)
    refused = set()
    for name, value in config.resolved().items():
        if name.partition(".")[0] not in fields:
            other = config.model_copy(update={name: _other(name, value)})
            problems = [
                p for p in experiment.invalid_fields(other) if "has no use for" in p.expected
            ]
            refused |= {problem.field for problem in problems}
    assert refused
    assert experiment.unused_fields(config) == refused


def _other(name, value):
    """Another value of the field's own kind."""
    if name == "metrics":
        return {"utility/own": "accuracy"}
    allowed = get_args(AdversarialConfig.model_fields[name].annotation)
    if name == "objective":
        allowed = OBJECTIVES.names()
    if isinstance(value, str):
        return next(each for each in allowed if each != value)
    if isinstance(value, bool):
        return not value
    return value / 2 + 0.1 if isinstance(value, float) else (value or 0) + 1


def test_membership_fields_of_networks_are_unused_by_other_models():
    experiment = privnets.experiment("membership")
    fields = {"dataset": "digits", "train_size": 50}
    trained = {"hidden_layers", "hidden_units", "steps", "learning_rate"}
    assert not trained & experiment.unused_fields(experiment.Config(model="mlp", **fields))
    assert "hidden_units" in experiment.unused_fields(experiment.Config(model="logistic", **fields))


def test_only_a_releaser_that_copies_first_may_leave_out_the_game():
    experiment, faces = privnets.experiment("adversarial"), {"problem": "gender-emotion"}
    for releaser, expected in {"unet": [], "fader": [], "convolutional": ["steps"]}.items():
        config = AdversarialConfig.model_validate({**faces, "releaser": releaser, "steps": 0})
        assert [error.field for error in experiment.invalid_fields(config)] == expected
