"""Early stopping by a judge, on sweeps whose in-loop adversaries do not rank releases."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from support import requires_data

import privnets
from privnets import TradeoffPoint, merge_replicates
from privnets.contract import Rung
from privnets.statistics.estimates import Estimate
from sweeps.engine.early_stopping import StoppingRule, dominated_points
from sweeps.errors import StudyError
from sweeps.planning.plan import Plan, make_plan
from sweeps.study.loader import load

ATTACKER, IN_LOOP = "privacy/attacker_balanced_accuracy", "diagnostic/adversary_balanced_accuracy"
ADVERSARIAL = privnets.experiment("adversarial")
AMNIST = (
    "fixed.steps=1000",
    "fixed.adversary_width=8",
    "replicates=1",
    "space.gradient.choice=[label]",
    "space.alpha.grid=[1.0]",
    "space.privacy_weight.grid=[0.5, 2.0, 4.0]",
)

Estimates = Mapping[tuple[str, int], Mapping[str, Estimate]]


def judged_plan(study: str, *overrides: str) -> Plan:
    return make_plan(load(study, ["early_stopping=true", "fixed.panel=quick", *overrides]))


def train_judged(plan: Plan) -> tuple[dict[float, Estimates], dict[str, TradeoffPoint]]:
    """Trains all points to their ends; returns the estimates at rungs, also at the end."""
    replicates = plan.replicates()
    keys = [(replicate.point_id, replicate.seed) for replicate in replicates]
    rungs: dict[float, Estimates] = {}
    points: list[TradeoffPoint] = []
    rule = StoppingRule.from_plan(plan)
    assert rule is not None
    configs = [replicate.config for replicate in replicates]
    for stage in ADVERSARIAL.stages_with_rungs(configs, (*rule.rungs, 1.0)):
        points += stage.points
        if isinstance(stage, Rung):
            rungs[stage.share] = dict(zip(keys, stage.estimates, strict=True))
    return rungs, {point.point_id: point for point in merge_replicates(points)}


def stopped_points(plan: Plan, rungs: Mapping[float, Estimates]) -> set[str]:
    """Points that the study's rule stops at one rung after the other."""
    rule = StoppingRule.from_plan(plan)
    assert rule is not None
    stopped: set[str] = set()
    for share in rule.rungs:
        left = {key: told for key, told in rungs[share].items() if key[0] not in stopped}
        safe = rule.safe_points(len(plan.points), share)
        stopped |= dominated_points(left, rule, safe).keys()
    return stopped


def front(plan: Plan, points: Mapping[str, TradeoffPoint]) -> set[str]:
    """Points that no other point beats in every objective, by means over replicates."""
    signs = np.array([1 if way == "min" else -1 for way in plan.objectives.values()])
    values = {
        name: signs * [point.metrics[metric] for metric in plan.objectives]
        for name, point in points.items()
    }
    return {
        name
        for name, own in values.items()
        if not any((other <= own).all() and (other < own).any() for other in values.values())
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan",
    [
        lambda: judged_plan("digits-quick", "replicates=2"),
        pytest.param(lambda: judged_plan("amnist-alpha", *AMNIST), marks=requires_data("mnist")),
    ],
    ids=["digits", "amnist"],
)
def test_no_point_of_the_final_front_is_stopped(plan):
    study = plan()
    rungs, points = train_judged(study)
    assert not front(study, points) & stopped_points(study, rungs)
    if study.study.name != "amnist-alpha":
        return
    by_weight = sorted(
        points.values(), key=lambda point: float(str(point.config["privacy_weight"]))
    )
    in_loop, attackers = ([p.metrics[key] for p in by_weight] for key in (IN_LOOP, ATTACKER))
    assert in_loop == sorted(in_loop, reverse=True)
    assert attackers == sorted(attackers)
    judged = [rungs[1.0][p.point_id, p.replicates[0].seed][ATTACKER].value for p in by_weight]
    assert judged == sorted(judged)
    assert judged == pytest.approx(attackers, abs=0.05)


@pytest.mark.parametrize(
    "objective", ["privacy/attacker/network/leakage", "privacy/attacker/boosted_trees/auc"]
)
def test_objectives_that_no_judge_measures_are_refused(objective):
    with pytest.raises(StudyError) as caught:
        judged_plan("digits-quick", f"objectives={{{objective}: min, utility/accuracy: max}}")
    assert len(caught.value.errors) == 1
    expected = (
        f"got early stopping by {objective}, which training does not estimate; expected false"
    )
    assert expected in str(caught.value)


def test_every_order_of_leakage_is_judged():
    plan = judged_plan(
        "digits-gradients", "objectives={privacy/alpha_leakage: min, utility/accuracy: max}"
    )
    assert {point.config.alpha for point in plan.points} == {0.5, 1.0, 8.0}
