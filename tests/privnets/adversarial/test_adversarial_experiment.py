"""The adversarial experiment as a whole: stacks, stages, metric keys and failures."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load

import privnets
from privnets import TradeoffPoint, cache
from privnets.adversarial import stages as stages_module
from privnets.adversarial.problems import PROBLEMS as ALL_PROBLEMS
from privnets.adversarial.training.game import Game
from privnets.contract import Stage
from tests.support import requires_data

pytestmark = pytest.mark.usefixtures("small_panel")

ADVERSARIAL = privnets.experiment("adversarial")
SMALL = {
    "gaussian-mixture": {"train_size": 512, "batch_size": 64},
    "digits": {"releaser_width": 16, "adversary_width": 8, "batch_size": 32},
    "eco": {"releaser_width": 8, "adversary_width": 8, "batch_size": 16},
    "amnist": {
        "releaser_width": 8,
        "adversary_width": 4,
        "batch_size": 16,
        "train_size": 300,
    },
}
PROBLEMS = [
    "gaussian-mixture",
    "digits",
    pytest.param("eco", marks=[requires_data("eco"), pytest.mark.slow]),
    pytest.param("amnist", marks=[requires_data("mnist"), pytest.mark.slow]),
]


def _config(problem: str, **given: object):
    quick = {"steps": 20, "panel": "quick"}
    return ADVERSARIAL.Config.model_validate(
        {"problem": problem, **quick, **SMALL[problem], **given}
    )


def test_labels_are_described_by_their_classes_and_shares():
    secret, utility = ADVERSARIAL.describe_labels(_config("digits"))
    assert secret == "secret has 2 classes; 0: 907 (50.5%), 1: 890 (49.5%)."
    assert utility.startswith("utility has 10 classes; 3: 183 (10.2%), ")


def _three_configs(problem: str) -> list:
    knob = "tradeoff" if problem == "gaussian-mixture" else "privacy_weight"
    return [_config(problem, **{knob: v}, seed=s) for v, s in ((0.0, 1), (1.0, 1), (0.5, 2))]


def _close(one: TradeoffPoint, other: TradeoffPoint, tolerance: float) -> None:
    assert one.point_id == other.point_id
    first, second = one.replicates[0], other.replicates[0]
    assert first.metrics.keys() == second.metrics.keys()
    for key, value in first.metrics.items():
        expected = second.metrics[key]
        assert value == pytest.approx(expected, rel=tolerance, abs=tolerance, nan_ok=True), key


@pytest.fixture(scope="module")
def digits(small_panel) -> list[TradeoffPoint]:
    """The points of `_three_configs("digits")`, trained as one stack."""
    return ADVERSARIAL.run(_three_configs("digits"))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_replicate_reports_every_key_and_a_reason_for_each_undefined_one(problem, digits):
    configs = _three_configs(problem)[: 3 if problem == "digits" else 1]
    points = digits if problem == "digits" else ADVERSARIAL.run(configs)
    for config, point in zip(configs, points, strict=True):
        (replicate,) = point.replicates
        assert replicate.failure is None
        assert point.config == config.resolved()
        assert tuple(sorted(replicate.metrics)) == ADVERSARIAL.metric_keys(config)
        for key, value in replicate.metrics.items():
            assert not math.isinf(value), key
            if math.isnan(value):
                assert replicate.notes.get(key), key
        for key in ADVERSARIAL.default_objectives(config):
            assert not math.isnan(replicate.metrics[key]), key
            assert replicate.standard_errors[key] >= 0
        assert load(replicate.artifacts["releaser.safetensors"])


def test_a_replicate_is_the_same_in_any_stack(digits):
    """In another order, and with fewer others."""
    backwards = ADVERSARIAL.run(_three_configs("digits")[:0:-1])
    for one, other in zip(digits[:0:-1], backwards, strict=True):
        _close(one, other, 1e-4)


def test_a_stack_resumed_from_any_stage_ends_the_same(digits):
    configs = _three_configs("digits")
    whole = {(p.point_id, p.replicates[0].seed): p for p in digits}
    stages: list[tuple[Stage, dict[str, torch.Tensor], int]] = []
    finished: set[tuple[str, int]] = set()
    for stage in ADVERSARIAL.stages(configs):
        finished |= {(p.point_id, p.replicates[0].seed) for p in stage.points}
        stages.append((stage, dict(stage.state()), len(finished)))
    shares = [stage.done for stage, *_ in stages]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    changes = [i for i in range(1, len(stages)) if stages[i][2] != stages[i - 1][2]]
    assert len(changes) == len(configs)
    for i in (0, changes[0]):
        _, state, count = stages[i]
        left = configs[count:]
        rest = [p for s in ADVERSARIAL.stages(left, state=state) for p in s.points]
        assert len(rest) == len(left)
        for point in rest:
            _close(point, whole[point.point_id, point.replicates[0].seed], 1e-4)


def test_stages_report_losses_and_the_adversary_s_accuracy_while_training():
    stages = ADVERSARIAL.stages(_three_configs("digits"))
    live = next(values for values in (stage.live() for stage in stages) if values)
    assert {"loss/releaser", "loss/adversary", "accuracy/adversary"} <= live.keys()
    assert all(math.isfinite(value) for value in live.values())


def test_a_stack_resumed_from_within_its_pretraining_ends_the_same(monkeypatch):
    monkeypatch.setattr(stages_module, "_STAGE_SECONDS", 0.0)  # one step a stage
    quick = {"scenario": "fixed-utility", "pretrain_steps": 3, "steps": 2}
    configs = [_config("digits", **quick)]
    stages = [(stage, dict(stage.state())) for stage in ADVERSARIAL.stages(configs)]
    shares = [stage.done for stage, _ in stages]
    assert shares == sorted(shares)
    assert shares[:5] == sorted(set(shares[:5]))
    assert not any(stage.points for stage, _ in stages[:5])
    (whole,) = (p for stage, _ in stages for p in stage.points)
    rest = [p for s in ADVERSARIAL.stages(configs, state=stages[1][1]) for p in s.points]
    _close(rest[0], whole, 1e-4)


def test_a_stage_takes_the_steps_of_five_seconds_as_measured(monkeypatch):
    """Whatever was estimated: a second for a step, of which five then take 10 ms."""
    clock, asked = itertools.count(), []
    monkeypatch.setattr(
        stages_module, "time", SimpleNamespace(perf_counter=lambda: 0.01 * next(clock))
    )
    monkeypatch.setattr(stages_module.cost_model, "step_seconds", lambda *_: 1.0)
    play = stages_module.Game.advance

    def advance(game: Game, steps: int) -> dict[int, str]:
        asked.append(steps)
        return play(game, steps)

    monkeypatch.setattr(stages_module.Game, "advance", advance)
    for _ in ADVERSARIAL.stages([_config("digits", steps=8)]):
        pass
    assert asked == [5, 2500]


def test_the_cost_includes_pretraining():
    def seconds(**given: object) -> float:
        return ADVERSARIAL.cost(_config("digits", **given)).seconds

    fixed = [seconds(scenario="fixed-utility", pretrain_steps=n) for n in (1000, 2000)]
    assert seconds() < fixed[0] < fixed[1]
    assert seconds() == seconds(pretrain_steps=2000)


def test_a_diverging_configuration_fails_alone():
    """One step of that length, which no study may have, leaves parameters beyond float32."""
    calm = [_config("digits", seed=seed) for seed in (1, 2, 3)]
    configs = [calm[0], calm[1].model_copy(update={"learning_rate": 1e38}), calm[2]]
    points = ADVERSARIAL.run(configs)
    assert [p.status for p in points] == ["finished", "failed", "finished"]
    assert "diverged" in str(points[1].failure)
    assert set(points[1].replicates[0].metrics) == set(ADVERSARIAL.metric_keys(configs[1]))
    _close(ADVERSARIAL.run(calm[:1])[0], points[0], 1e-4)


def test_a_baseline_is_computed_once_for_points_that_share_it(digits):
    def baselines() -> dict[str, int]:
        paths = cache.directory().glob("baseline-*")
        return {path.name: path.stat().st_mtime_ns for path in paths}

    one, other, _ = digits
    known = baselines()
    (again,) = ADVERSARIAL.run([_config("digits", seed=1, privacy_weight=2.0, alpha=4.0)])
    assert known
    assert baselines() == known
    key = "baseline/attacker_balanced_accuracy"
    assert one.metrics[key] == other.metrics[key] == again.metrics[key]
    assert 0.5 < one.metrics[key] <= 1


def test_different_structures_do_not_stack():
    with pytest.raises(ValueError, match="a stack needs one structure; got 2"):
        ADVERSARIAL.run([_config("digits"), _config("digits", gradient="posterior")])


def test_unsupported_values_are_reported_before_training():
    eco = ADVERSARIAL.invalid_fields(_config("eco", objective="squared-kl"))
    assert {p.field for p in eco} >= {"objective"}
    digits = ADVERSARIAL.invalid_fields(_config("digits", releaser="recurrent", tradeoff=0.4))
    assert {p.field for p in digits} >= {"releaser", "tradeoff"}
    assert ADVERSARIAL.invalid_fields(_config("digits")) == []


CHANGED = {
    "privacy_weight": 3.0,
    "gradient": "posterior",
    "distortion_weight": 3.0,
    "utility_weight": 3.0,
    "tradeoff": 0.25,
    "estimator": "full",
    "squaring": "batch",
    "pretrain_steps": 77,
}
OF_ALPHA = {"privacy_weight", "gradient", "distortion_weight", "utility_weight"}
OF_SQUARED_KL = {"tradeoff", "estimator", "squaring", "distortion_weight"}


@pytest.mark.parametrize("problem", ["gaussian-mixture", "digits", "amnist"])
@pytest.mark.parametrize("scenario", ["joint", "fixed-utility", "fixed-both"])
@pytest.mark.parametrize("objective", ["alpha", "squared-kl"])
def test_only_fields_without_effect_are_refused(problem, scenario, objective):
    served = OF_ALPHA if objective == "alpha" else OF_SQUARED_KL
    served = served if scenario == "joint" else served | {"pretrain_steps"}
    game = {"objective": objective, "scenario": scenario}
    assert ADVERSARIAL.invalid_fields(_config(problem, **game, alpha=2.0)) == []
    every = ADVERSARIAL.invalid_fields(_config(problem, **game, **CHANGED))
    assert sorted(p.field for p in every) == sorted(CHANGED.keys() - served)
    for name, value in CHANGED.items():
        found = ADVERSARIAL.invalid_fields(_config(problem, **game, **{name: value}))
        assert [p.field for p in found] == ([] if name in served else [name])
        assert all(p.value == str(value) for p in found)


@pytest.mark.parametrize("problem", ALL_PROBLEMS.names())
def test_the_defaults_of_a_problem_are_valid(problem):
    config = ADVERSARIAL.Config.model_validate({"problem": problem})
    assert ADVERSARIAL.invalid_fields(config) == []


def test_a_field_unused_for_two_reasons_is_reported_once():
    found = ADVERSARIAL.invalid_fields(
        _config("eco", tradeoff=0.2, pretrain_steps=7, squaring="batch")
    )
    assert sorted(p.field for p in found) == ["pretrain_steps", "squaring", "tradeoff"]
