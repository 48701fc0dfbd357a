"""Rungs: stacks whose members may be removed, and the estimates that decide it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pytest
import torch

import privnets
from privnets import TradeoffPoint
from privnets.adversarial import metrics as metrics_module
from privnets.adversarial.evaluation.interim import estimate_from_curve
from privnets.contract import Rung, Stage
from tests.support import requires_data

ADVERSARIAL = privnets.experiment("adversarial")
SMALL = {
    "problem": "gaussian-mixture",
    "evaluation": "exact",
    "objective": "alpha",
    "train_size": 256,
    "batch_size": 16,
    "steps": 48,
}
WEIGHTS = (0.0, 0.5, 2.0, 8.0)


def config(**given: object):
    return ADVERSARIAL.Config.model_validate({**SMALL, **given})


def stack(**given: object) -> list:
    return [config(privacy_weight=w, seed=s, **given) for s in (1, 2) for w in WEIGHTS]


def train(
    configs: Sequence, shares: Sequence[float], leave: Callable[[Rung], Sequence[int]]
) -> Iterable[tuple[Stage, list]]:
    """Every stage with the configurations unfinished at it."""
    stages, left = ADVERSARIAL.stages_with_rungs(configs, shares), list(configs)
    stage = next(stages, None)
    while stage is not None:
        ended = {(p.point_id, p.replicates[0].seed) for p in stage.points}
        left = [c for c in left if (ADVERSARIAL.point_id(c), c.seed) not in ended]
        yield stage, list(left)
        places = leave(stage) if isinstance(stage, Rung) else []
        left = [c for i, c in enumerate(left) if i not in places]
        stage = stages.send(places) if places else next(stages, None)


def metrics(points: Iterable[TradeoffPoint]) -> dict[tuple[str, int], dict[str, float]]:
    return {(p.point_id, r.seed): dict(r.metrics) for p in points for r in p.replicates}


@pytest.mark.parametrize("steps", [48, 7])
def test_removing_members_does_not_change_the_others(steps):
    configs = stack(steps=steps)
    places = {0.25: [0, 5], 0.5: [1, 2]}  # of 8, then of the 6 that are left
    stays = [configs[i] for i in (1, 4, 6, 7)]
    found = [
        point
        for stage, _ in train(configs, (0.25, 0.5), lambda rung: places[rung.share])
        for point in stage.points
    ]
    whole = metrics(ADVERSARIAL.run(configs))
    assert metrics(found).keys() == {(ADVERSARIAL.point_id(c), c.seed) for c in stays}
    for member, values in metrics(found).items():
        assert values == pytest.approx(whole[member], rel=1e-6, abs=1e-9, nan_ok=True)


def test_a_stack_shrinks_at_once_and_its_state_can_be_continued():
    configs = stack()
    sizes, states = [], []
    for stage, left in train(configs, (0.25, 0.5), lambda rung: [0, 1, 2]):
        state = dict(stage.state())
        sizes.append(len(left))
        states.append((state, left))
        own = [t for name, t in state.items() if name.startswith("releaser.") and t.ndim]
        assert {len(t) for t in own} == {len(left)}
    assert sizes[:4] == [8, 5, 5, 2]
    state, left = states[1]
    again = ADVERSARIAL.stages_with_rungs(left, (0.25, 0.5), state=state)
    assert [s.share for s in again if isinstance(s, Rung)] == [0.5]
    shares = [s.done for s, _ in train(configs, (0.25, 0.5), lambda rung: [0])]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_rungs_without_removals_change_nothing():
    configs = stack()
    with_rungs = [p for s in ADVERSARIAL.stages_with_rungs(configs, (0.3, 0.9)) for p in s.points]
    stages = list(ADVERSARIAL.stages(configs))
    without = [p for s in stages for p in s.points]
    for member, values in metrics(with_rungs).items():
        assert values == pytest.approx(metrics(without)[member], rel=1e-6, nan_ok=True)
    assert not any(isinstance(s, Rung) for s in stages)


def test_rungs_are_at_the_requested_shares_and_the_last_of_several_counts():
    def places(shares: Sequence[float], **given: object) -> list[tuple[float, int]]:
        stages = ADVERSARIAL.stages_with_rungs([config(**given)], shares)
        return [(s.share, int(s.state()["step"])) for s in stages if isinstance(s, Rung)]

    assert places((0.125, 0.25, 0.5, 1.0)) == [(0.125, 6), (0.25, 12), (0.5, 24), (1.0, 48)]
    assert places((0.1, 0.2, 0.6), steps=4) == [(0.2, 1), (0.6, 3)]
    pretrained = {"scenario": "fixed-utility", "pretrain_steps": 20, "steps": 20}
    assert places((0.25, 0.5, 0.75), **pretrained) == [(0.25, 0), (0.5, 0), (0.75, 10)]


def test_estimates_at_the_end_of_training_agree_with_the_reported_metrics():
    configs = stack(steps=300)
    rung, points = None, []
    for stage, _ in train(configs, (1.0,), lambda rung: []):
        rung = stage if isinstance(stage, Rung) else rung
        points += stage.points
    assert isinstance(rung, Rung)
    reported = metrics(points)
    for told, each in zip(rung.estimates, configs, strict=True):
        own = reported[ADVERSARIAL.point_id(each), each.seed]
        for metric in ("exact/leakage", "exact/censored", "utility/accuracy"):
            allowed = 6 * told[metric].error + 0.02
            assert told[metric].value == pytest.approx(own[metric], abs=allowed), metric


JUDGED = {
    "problem": "digits",
    "panel": "quick",
    "steps": 24,
    "releaser_width": 16,
    "adversary_width": 8,
}


def attacked_stack(**given: object) -> list:
    """Configurations that only attackers can evaluate."""
    each = {**JUDGED, **given}
    return [
        ADVERSARIAL.Config.model_validate({**each, "privacy_weight": w, "seed": 3}) for w in (0, 3)
    ]


def rungs(stages: Iterable[Stage]) -> list[Rung]:
    return [stage for stage in stages if isinstance(stage, Rung)]


def with_states(stages: Iterable[Stage], steps: int) -> list[tuple[Stage, Mapping]]:
    """Stages with their states, up to the game's last step."""
    pairs: list[tuple[Stage, Mapping]] = []
    for stage in stages:
        pairs.append((stage, stage.state()))
        if int(pairs[-1][1]["step"]) == steps:
            break
    return pairs


@pytest.mark.parametrize(
    "given",
    [
        {"problem": "digits", "alpha": 2.0},
        {"problem": "gaussian-mixture", "evaluation": "attackers", "objective": "alpha"},
        {"problem": "gaussian-mixture", "releaser": "mlp", "objective": "squared-kl"},
        {"problem": "gaussian-mixture", "evaluation": "exact"},
        pytest.param(
            {"problem": "eco", "steps": 20, "releaser_width": 8, "adversary_width": 8},
            marks=requires_data("eco"),
        ),
    ],
)
def test_rungs_estimate_the_interim_objectives_and_no_other(given):
    each = ADVERSARIAL.Config.model_validate({"steps": 80, "panel": "quick", **given})
    promised = ADVERSARIAL.interim_objectives(each)
    assert promised <= ADVERSARIAL.objectives.keys() & set(ADVERSARIAL.metric_keys(each))
    judges = "privacy/attacker_balanced_accuracy" in promised
    assert judges == (each.evaluation == "attackers")
    assert not any(key.startswith("privacy/attacker/") for key in promised)
    (rung,) = rungs(itertools.islice(ADVERSARIAL.stages_with_rungs([each], (1.0,)), 1))
    (told,) = rung.estimates
    assert told.keys() == promised
    assert all(math.isfinite(e.value) and math.isfinite(e.error) for e in told.values())


def test_a_judged_stack_trains_as_one_without_rungs():
    """Bit by bit, also if it is continued from the state of a rung."""
    configs, shares, steps = attacked_stack(), (0.25, 0.5), JUDGED["steps"]
    plain = with_states(ADVERSARIAL.stages(configs), steps)
    whole = with_states(ADVERSARIAL.stages_with_rungs(configs, shares), steps)
    (first, state), (second, _) = ((s, state) for s, state in whole if isinstance(s, Rung))
    resumed = ADVERSARIAL.stages_with_rungs(configs, shares, state=state)
    continued = with_states(resumed, steps)
    for pairs in (whole, continued):
        assert pairs[-1][1].keys() == plain[-1][1].keys()
        assert all(torch.equal(pairs[-1][1][name], plain[-1][1][name]) for name in plain[-1][1])
    (again,) = rungs(stage for stage, _ in continued)
    assert again.estimates == second.estimates
    assert first.estimates != second.estimates


@pytest.mark.slow
def test_a_judged_configuration_reports_the_metrics_of_a_run_without_rungs():
    configs = attacked_stack()[:1]
    stages = ADVERSARIAL.stages_with_rungs(configs, (0.25, 0.5))
    with_rungs = metrics(point for stage in stages for point in stage.points)
    for member, values in metrics(ADVERSARIAL.run(configs)).items():
        assert with_rungs[member] == pytest.approx(values, rel=1e-6, abs=1e-9, nan_ok=True)


def test_a_member_is_judged_alike_alone_and_in_a_stack():
    configs = attacked_stack()
    (together,) = rungs(itertools.islice(ADVERSARIAL.stages_with_rungs(configs, (0.5,)), 1))
    for told, each in zip(together.estimates, configs, strict=True):
        (alone,) = rungs(itertools.islice(ADVERSARIAL.stages_with_rungs([each], (0.5,)), 1))
        for key, estimate in alone.estimates[0].items():
            assert told[key].value == pytest.approx(estimate.value, abs=0.02), key
            assert told[key].error == pytest.approx(estimate.error, rel=0.1, abs=1e-3), key


def test_releases_are_ranked_right_where_the_games_adversaries_rank_them_wrong():
    """An adversary that learns too slowly calls the release that leaks most the most private."""
    weak = {"adversary_learning_rate": 1e-7, "tradeoff": 0.1}
    strong = {"adversary_learning_rate": 1e-2, "tradeoff": 0.8}
    given = {"objective": "squared-kl", "steps": 300, "batch_size": 64}
    given["problem"] = {"gaussian-mixture": {"dependence": 0.0}}
    configs = [config(**given, **each) for each in (weak, strong)]
    # The same releases, of which the exact evaluation knows the leakage.
    leaky, private = (point.replicates[0].metrics for point in ADVERSARIAL.run(configs))
    judged_by = [config(**given, **each, evaluation="attackers") for each in (weak, strong)]
    (rung,) = rungs(itertools.islice(ADVERSARIAL.stages_with_rungs(judged_by, (1.0,)), 1))
    in_loop, exact = "diagnostic/adversary_balanced_accuracy", "exact/leakage"
    assert leaky[in_loop] < private[in_loop] - 0.02
    assert leaky[exact] > private[exact] + 0.1
    for key in metrics_module.PRIVACY_KEYS:
        judged_leaky, judged_private = (told[key] for told in rung.estimates)
        error = math.hypot(judged_leaky.error, judged_private.error)
        assert judged_leaky.value > judged_private.value + 5 * error, key
    for told, own in zip(rung.estimates, (leaky, private), strict=True):
        judged_leakage = told["privacy/leakage"]
        assert -0.03 < judged_leakage.value - own[exact] < 3 * judged_leakage.error


def test_pretraining_gives_no_estimate_of_a_releaser_that_has_not_begun():
    configs = attacked_stack(scenario="fixed-both", pretrain_steps=60)
    first, second = rungs(itertools.islice(ADVERSARIAL.stages_with_rungs(configs, (0.25, 0.75)), 2))
    for rung, is_known in ((first, False), (second, True)):
        for told in rung.estimates:
            assert all(math.isfinite(estimate.value) == is_known for estimate in told.values())


def test_an_experiment_without_estimates_has_no_rungs():
    membership = privnets.experiment("membership")
    each = membership.Config.model_validate(
        {"dataset": "digits", "model": "logistic", "train_size": 40}
    )
    assert membership.interim_objectives(each) == frozenset()
    with pytest.raises(ValueError, match="'membership' estimates no objective during training"):
        membership.stages_with_rungs([each], (0.5,))


def test_the_standard_error_of_a_curve_is_that_of_a_mean():
    """Intervals from independent values have nominal coverage (t with 9 degrees of freedom)."""
    random = np.random.default_rng(3)
    covered = []
    for values in random.normal(2.0, 0.5, (2000, 30)):
        told = estimate_from_curve(values.tolist())
        covered.append(abs(told.value - 2.0) <= 2.262 * told.error)
    assert np.mean(covered) == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / 2000))


@pytest.mark.parametrize(("count", "used"), [(4, 4), (7, 4), (10, 5), (19, 9), (20, 10), (100, 10)])
def test_an_estimate_uses_the_last_values_of_a_curve(count, used):
    values = [math.inf if i < count - used else float(i) for i in range(count)]
    last = np.array(values[-used:])
    told = estimate_from_curve(values)
    assert told.value == pytest.approx(last.mean())
    assert told.error == pytest.approx(last.std(ddof=1) / math.sqrt(used))


@pytest.mark.parametrize("values", [(), (1.0, 2.0, 3.0), (1.0, 2.0, math.nan, 3.0)])
def test_too_few_or_undefined_values_give_no_estimate(values):
    told = estimate_from_curve(values)
    assert math.isnan(told.value)
    assert math.isnan(told.error)
