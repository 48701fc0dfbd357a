"""Sections `metrics` and `groups` of a study: they reach every configuration, or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from sweeps.errors import StudyError
from sweeps.planning.plan import make_plan
from sweeps.study.loader import load, read_study


def study(**sections: Any) -> dict[str, Any]:
    """Study of scikit-learn's digits, whose classes are numbers."""
    fixed = {"dataset": "digits", "model": "logistic", "train_size": 100, "draws": 64}
    return {"name": "own", "experiment": "membership", "fixed": fixed, **sections}


def test_own_metrics_reach_every_configuration_and_may_be_objectives():
    own = study(
        metrics={"utility/top": "balanced_accuracy"},
        objectives={"privacy/membership_advantage": "min", "utility/top": "max"},
        constraints={"utility/top": ">= 0.1"},
    )
    plan = make_plan(load(own))
    assert all(config.metrics == own["metrics"] for config in plan.samples)
    assert "utility/top" in plan.objectives
    assert plan.study.settings()["metrics.utility/top"] == "balanced_accuracy"
    assert read_study(plan.study.to_dict()) == plan.study


def test_a_study_may_be_changed_in_its_metrics():
    changed = load(study(), overrides=["metrics.utility/top=roc_auc_ovr"])
    assert changed.metrics == {"utility/top": "roc_auc_ovr"}


def test_limits_at_the_ends_of_a_range_and_of_metrics_without_one_are_kept():
    limits = {"utility/test_accuracy": ">= 1", "utility/test_log_loss": "<= 90"}
    assert {*make_plan(load(study(constraints=limits))).study.constraints} == {*limits}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"metrics": {"utility/top": "rocauc"}}, "metrics.utility/top: got 'rocauc'"),
        ({"metrics": {"utility/top": "nowhere:f"}}, "metrics.utility/top: got 'nowhere:f'"),
        ({"metrics": {"Top": "roc_auc"}}, 'metrics.Top: got "Top"; expected utility/ and a name'),
        ({"metrics": {"utility/test_auc": "roc_auc"}}, "a name that no other metric has"),
        ({"metrics": ["roc_auc"]}, "metrics: got"),
        ({"metrics": {"utility/top": 3}}, "metrics.utility/top: got 3; expected a text"),
        ({"objectives": {"utility/unknown": "max"}}, "which not every point reports"),
        (
            {"constraints": {"utility/test_accuracy": ">= 90"}},
            "utility/test_accuracy: got 90; expected limits in [0, 1]; divide percentages by 100",
        ),
        ({"constraints": {"privacy/membership_advantage": "<= 10"}}, "limits in [-1, 1]"),
        (
            {
                "claims": [
                    {
                        "statement": "useful at little leakage",
                        "metric": "utility/test_auc",
                        "at_least": 0.5,
                        "given": {"privacy/attack/lira_online/auc": {"at_most": 60.0}},
                    }
                ]
            },
            "got 60; expected limits in [0, 1]",
        ),
        (
            {
                "experiment": "adversarial",
                "fixed": {"problem": "digits"},
                "constraints": {"privacy/attacker_auc": "<= 60"},
            },
            "got 60; expected limits in [0, 1]",
        ),
        ({"fixed": {**study()["fixed"], "metrics": {}}}, "as a section of the study"),
        ({"space": {"groups": {"grid": ["class"]}}}, "as a section of the study"),
        (
            {"experiment": "adversarial", "fixed": {"problem": "digits"}, "groups": "class"},
            "groups: got a value; expected none with adversarial",
        ),
    ],
)
def test_mistakes_are_named_by_their_place(sections, message):
    with pytest.raises(StudyError) as error:
        make_plan(load(study(**sections)))
    assert message in str(error.value)
