"""Stacks of games: each member trains as it would alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackView
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.records import load_pool
from privnets.adversarial.training.batches import BatchSource, _release_together
from privnets.adversarial.training.game import Game
from privnets.adversarial.training.inference_networks import TrainingSchedule
from privnets.adversarial.training.releasers import build_releaser
from privnets.networks.capture import StepRunner
from privnets.networks.devices import computed_in
from tests.traced_steps import TracedSteps

STEPS = 30


def config(**given: object) -> AdversarialConfig:
    small = {"steps": STEPS, "batch_size": 16, "releaser_width": 16, "adversary_width": 8}
    return AdversarialConfig.model_validate({"problem": "digits", **small, **given})


def game(*configs: AdversarialConfig) -> Game:
    problem = PROBLEMS.get(configs[0].problem)
    pool, splits = load_pool(problem, configs, "cpu")
    made = Game(problem, configs, pool, splits)
    if configs[0].scenario != "joint":
        made.advance(configs[0].pretrain_steps)
    return made


def make_game_before_pretraining(*configs: AdversarialConfig) -> Game:
    problem = PROBLEMS.get(configs[0].problem)
    return Game(problem, configs, *load_pool(problem, configs, "cpu"))


def parameters(played: Game, member: int) -> torch.Tensor:
    return torch.cat([p.flatten() for p in played.parameters(member)])


def networks(played: Game, name: str) -> list[torch.Tensor]:
    return next(g for g in played._groups if name in g.roles).parameters((name,))


VARIED = [
    {"seed": 1, "privacy_weight": 0.0},
    {"seed": 2, "privacy_weight": 3.0, "alpha": 0.5, "noise_std": 0.1},
    {"seed": 1, "privacy_weight": 3.0, "alpha": math.inf, "learning_rate": 3e-3},
]
OBJECTIVES = [
    {"objective": "alpha", "gradient": "posterior"},
    {"objective": "alpha", "gradient": "label", "scenario": "fixed-utility", "pretrain_steps": 20},
    {"objective": "squared-kl"},
    {"objective": "squared-kl", "scenario": "fixed-utility", "pretrain_steps": 20},
    {"objective": "squared-kl", "scenario": "fixed-both", "pretrain_steps": 20},
]


COPYING = {"releaser": "unet", "releaser_width": 2, "pretrain_steps": 6}


@pytest.mark.parametrize("shared", [*OBJECTIVES, COPYING])
def test_no_training_step_reads_a_value_from_the_device(shared):
    configs = [config(**shared, **one) for one in VARIED]
    problem = PROBLEMS.get("digits")
    # Tensors of the device `meta` have no values: any read raises, where a GPU would wait.
    training = Game(problem, configs, *load_pool(problem, configs, "meta"))
    training._pretrain(training._pretraining)
    training._play(3)
    assert training.step == 3
    with pytest.raises(RuntimeError, match="meta"):
        training.parameters(0)[0].tolist()


@pytest.mark.parametrize("shared", [*OBJECTIVES[:3], {**COPYING, "precision": "bf16"}])
def test_the_operations_of_one_step_repeat_as_the_following_steps(shared, monkeypatch):
    """No number of the step is among them."""
    configs = [config(**shared, **one) for one in VARIED]
    played = make_game_before_pretraining(*configs)
    played.advance(played._pretraining + 6)
    monkeypatch.setattr("privnets.adversarial.training.game.StepRunner", TracedSteps)
    repeated = make_game_before_pretraining(*configs)
    repeated.advance(repeated._pretraining + 6)
    assert repeated._runner.operations is not None
    for name, tensor in played.state().items():
        torch.testing.assert_close(repeated.state()[name], tensor)


def test_members_release_together_what_each_releases_alone():
    played = game(*(config(**one) for one in VARIED))
    releasers = [played.record_releaser(i) for i in range(3)]
    records = [np.arange(i, i + 40) for i in range(3)]
    together = _release_together(releasers, records, "attack")
    for releaser, own, z in zip(releasers, records, together, strict=True):
        torch.testing.assert_close(releaser.release(own, "attack"), z)


@pytest.mark.gpu
@pytest.mark.parametrize("shared", [*OBJECTIVES, COPYING, {**OBJECTIVES[1], "precision": "bf16"}])
def test_captured_steps_train_as_eager_ones(shared, monkeypatch):
    configs = [config(**shared, **one) for one in VARIED]
    problem = PROBLEMS.get("digits")
    material = load_pool(problem, configs, "cuda")
    captured = Game(problem, configs, *material)
    if captured._pretraining:
        captured.advance(captured._pretraining - 1)
        assert captured._runner._graph is not None
    captured.advance(captured.steps_to(1) - 10)
    assert captured._runner._graph is not None
    with monkeypatch.context() as patch:
        patch.setattr("privnets.networks.capture._WARM_UPS", 1000)
        eager = Game(problem, configs, *material)
        eager.advance(eager.steps_to(1) - 10)
        assert eager._runner._graph is None
    for i in range(len(configs)):
        torch.testing.assert_close(parameters(captured, i), parameters(eager, i), atol=2e-3, rtol=0)
    captured.keep([0, 2])
    captured.advance(10)
    assert captured.step == STEPS


@pytest.mark.gpu
def test_a_step_that_reads_from_the_device_is_not_captured_and_a_warning_says_why():
    def step(inputs):
        return {"loss": inputs[0].sum() * float(inputs[1])}

    stream, x = torch.cuda.current_stream(), torch.ones(2, device="cuda")
    runner = StepRunner(x.device)
    for _ in range(3):
        runner.run(step, [x, torch.tensor(1.5, device="cuda")])
    with pytest.warns(RuntimeWarning, match="cannot be a CUDA graph"):
        result = runner.run(step, [x, torch.tensor(2.0, device="cuda")])
    assert result["loss"] == 4
    assert torch.cuda.current_stream() == stream


def test_games_in_bfloat16_end_within_the_spread_of_replicates():
    rates = {"learning_rate": 1e-2, "adversary_learning_rate": 1e-2}
    fields = {"steps": 60, "batch_size": 32, **rates}
    ends = {}
    for precision in ("float32", "bf16"):
        played = game(*(config(**fields, precision=precision, seed=seed) for seed in range(8)))
        assert not played.advance(60)
        state = played.state()
        assert {t.dtype for t in state.values() if t.is_floating_point()} == {torch.float32}
        curves = [played.curves(i) for i in range(8)]
        ends[precision] = {
            name: np.array([curve[name].values[-1] for curve in curves]) for name in curves[0]
        }
    for name, exact in ends["float32"].items():
        assert not np.array_equal(ends["bf16"][name], exact)
        # The deviation of eight replicates is two standard errors of a difference of means.
        assert abs(ends["bf16"][name].mean() - exact.mean()) < exact.std(ddof=1), name


def test_a_game_in_bfloat16_releases_in_float32():
    played = game(config(precision="bf16"))
    played.advance(STEPS)
    released = played.record_releaser(0).release(np.arange(10), "test")
    assert not torch.equal(released, released.bfloat16().float())
    logits = played.infer("utility", 0, AttackView(released, torch.zeros(10)))
    assert not torch.equal(logits, logits.bfloat16().float())


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_products_of_a_gpu_are_rounded_only_while_the_game_computes(precision):
    """PyTorch's own setting rounds convolutions to TF32."""
    settings = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [each.allow_tf32 for each in settings]
    with computed_in(precision, torch.device("cuda")):
        is_rounded = [each.allow_tf32 for each in settings]
        with torch.backends.cudnn.flags(enabled=False):  # as a module of the user may ask
            pass
    assert is_rounded == [precision == "tf32"] * 2
    assert [each.allow_tf32 for each in settings] == before


@pytest.mark.parametrize("shared", OBJECTIVES)
def test_a_stack_trains_its_members_as_alone(shared):
    configs = [config(**shared, **one) for one in VARIED]
    together = game(*configs)
    together.advance(STEPS)
    for i, one in enumerate(configs):
        alone = game(one)
        alone.advance(STEPS)
        # Products of one matrix round otherwise than of several; 30 steps of Adam amplify that.
        torch.testing.assert_close(parameters(together, i), parameters(alone, 0), atol=2e-3, rtol=0)
        for name, curve in alone.curves(0).items():
            found = together.curves(i)[name]
            assert found.steps == curve.steps
            np.testing.assert_allclose(found.values, curve.values, rtol=2e-2, atol=2e-3)


def test_seeds_and_weights_make_different_games():
    played = game(*(config(**one) for one in VARIED))
    played.advance(STEPS)
    assert not torch.allclose(parameters(played, 0), parameters(played, 1), atol=1e-2)
    assert not torch.allclose(parameters(played, 0), parameters(played, 2), atol=1e-2)


def test_a_diverged_member_leaves_alone_with_its_reason():
    wild = config(seed=2, privacy_weight=1.0, distortion_weight=1e6, learning_rate=1.0)
    calm = [config(seed=1), config(seed=3)]
    together = game(calm[0], wild, calm[1])
    # A release that overflows: its parameters are set beyond what float32 squares hold.
    for parameter in together._releaser.parameters:
        parameter[1] = 1e38
    lost = together.advance(10)
    assert list(lost) == [1]
    assert "diverged" in lost[1]
    assert [c.seed for c in together.configs] == [1, 3]
    together.advance(STEPS)
    undisturbed = game(*calm)
    undisturbed.advance(STEPS)
    for i in range(2):
        assert torch.equal(parameters(together, i), parameters(undisturbed, i))


@pytest.mark.parametrize("shared", [OBJECTIVES[0], OBJECTIVES[2]])
def test_a_game_continued_from_its_state_ends_the_same(shared):
    configs = [config(**shared, **one) for one in VARIED[:2]]
    whole = game(*configs)
    whole.advance(STEPS)
    first = game(*configs)
    first.advance(13)
    state = first.state()
    first.advance(5)  # what it does afterwards must not reach into the state
    second = game(*configs)
    second.restore(state)
    second.advance(STEPS)
    for i in range(2):
        assert torch.equal(parameters(whole, i), parameters(second, i))
        assert whole.curves(i) == second.curves(i)


@pytest.mark.parametrize("pauses", [(20,), (3, 9, 28)])
def test_a_game_continued_from_within_its_pretraining_ends_the_same(pauses):
    configs = [config(**OBJECTIVES[3], **one) for one in VARIED[:2]]
    whole = make_game_before_pretraining(*configs)
    whole.advance(20 + STEPS)
    assert whole.is_finished
    shares, taken, state = [], 0, make_game_before_pretraining(*configs).state()
    for pause in (*pauses, 20 + STEPS):
        part = make_game_before_pretraining(*configs)
        part.restore(state)
        part.advance(pause - taken)
        taken, state = pause, part.state()
        part.advance(4)  # what it does afterwards must not reach into the state
        shares.append(part.done)
    assert shares == sorted(shares)
    last = make_game_before_pretraining(*configs)
    last.restore(state)
    assert last.is_finished
    assert last.done == 1
    for i in range(2):
        assert torch.equal(parameters(whole, i), parameters(last, i))
        assert whole.curves(i) == last.curves(i)


def test_the_releaser_trains_after_the_pretrained_networks():
    played = make_game_before_pretraining(config(**OBJECTIVES[3]))
    before = parameters(played, 0)
    utility = [p.clone() for p in networks(played, "utility")]
    played.advance(19)
    assert torch.equal(parameters(played, 0), before)
    assert not torch.equal(networks(played, "utility")[0], utility[0])
    assert not played.curves(0)
    played.advance(2)
    assert not torch.equal(parameters(played, 0), before)


def test_a_member_that_diverges_in_pretraining_leaves_alone():
    configs = [config(**OBJECTIVES[3], seed=seed) for seed in (1, 2, 3)]
    together = make_game_before_pretraining(*configs)
    for parameter in networks(together, "utility"):
        parameter[1] = 1e38
    lost = together.advance(10)
    assert list(lost) == [1]
    assert "10 steps of pretraining" in lost[1]
    together.advance(10 + STEPS)
    undisturbed = game(*configs[::2])
    undisturbed.advance(STEPS)
    for i in range(2):
        assert torch.equal(parameters(together, i), parameters(undisturbed, i))


def test_a_state_of_another_stack_is_refused():
    state = game(config(), config(seed=1)).state()
    with pytest.raises(ValueError, match="another stack"):
        game(config()).restore(state)
    with pytest.raises(ValueError, match="another stack"):
        game(config()).restore({})
    with pytest.raises(ValueError, match="another stack"):
        game(config(steps=5), config(steps=5, seed=1)).restore({**state, "step": torch.tensor(6)})
    pretrained = game(config(**OBJECTIVES[3])).state()
    fewer = make_game_before_pretraining(config(**OBJECTIVES[3] | {"pretrain_steps": 19}))
    with pytest.raises(ValueError, match="another stack"):
        fewer.restore(pretrained)


def test_without_privacy_the_release_is_the_record_to_within_training_error():
    weights = {"privacy_weight": 0.0, "utility_weight": 0.0, "releaser_width": 128}
    played = game(config(**weights, steps=500, batch_size=64, learning_rate=1e-2, noise_std=0.1))
    before = played._batches  # the same records before and after
    rows = np.arange(200)
    played.advance(500)
    released = played.record_releaser(0).release(rows, "test")
    images = before._pool.x[torch.from_numpy(rows)]
    relative = float((released - images).square().sum() / images.square().sum())
    assert relative < 0.03


def test_a_large_privacy_weight_reduces_the_adversary_to_guessing():
    played = game(config(privacy_weight=20.0, utility_weight=0.0, steps=300, batch_size=64))
    played.advance(300)
    assert abs(played.curves(0)["information/leakage"].values[-1]) < 0.02


def test_release_noise_depends_on_the_configuration_and_the_split():
    played = game(config(seed=1), config(seed=2))
    alone = game(config(seed=2), config(seed=5))
    rows = np.arange(10)
    own, same = played.record_releaser(1), alone.record_releaser(0)
    assert torch.equal(own.release(rows, "test"), same.release(rows, "test"))
    assert not torch.equal(own.release(rows, "test"), same.release(rows, "attack"))
    assert own.is_random(rows)


def test_batches_do_not_depend_on_the_steps_that_are_drawn_together(monkeypatch):
    source = game(config(seed=1), config(seed=2))._batches
    together = list(source.game_batches(3, 9))
    monkeypatch.setattr("privnets.adversarial.training.batches._MAX_DRAWN_WORDS_ON_CPU", 1)
    alone = [next(source.game_batches(step, step + 1)) for step in range(3, 9)]
    for several, one in zip(together, alone, strict=True):
        for batch, same in zip(several, one, strict=True):
            assert torch.equal(batch.x, same.x)
            assert torch.equal(batch.noise, same.noise)


def test_batches_are_uniform_over_the_training_split_of_each_member():
    configs = [config(seed=seed, batch_size=512) for seed in (1, 2)]
    problem = PROBLEMS.get("digits")
    pool, splits = load_pool(problem, configs, "cpu")
    numbered = replace(pool, secret=torch.arange(len(pool.x)))
    source = BatchSource(configs, build_releaser(problem, configs[0]), numbered, splits)
    drawn = torch.cat([batch.secret for step in source.game_batches(0, 40) for batch in step], 1)
    for records, split in zip(drawn.numpy(), splits, strict=True):
        counts = np.bincount(records, minlength=len(pool.x))
        assert counts.sum() == counts[split.train].sum()
        assert chisquare(counts[split.train]).pvalue > 0.01


@pytest.mark.parametrize(
    ("given", "adversary_step", "releaser_step", "pretrained"),
    [
        ({"objective": "alpha"}, {"adversary"}, {"utility"}, set()),
        ({"objective": "alpha", "scenario": "fixed-utility"}, {"adversary"}, set(), {"utility"}),
        ({"objective": "squared-kl"}, {"adversary", "utility", "reference"}, set(), set()),
        (
            {"objective": "squared-kl", "scenario": "fixed-utility"},
            {"adversary"},
            set(),
            {"utility"},
        ),
        (
            {"objective": "squared-kl", "scenario": "fixed-both"},
            set(),
            set(),
            {"adversary", "utility"},
        ),
    ],
)
def test_the_scenario_decides_which_networks_train(
    given, adversary_step, releaser_step, pretrained
):
    schedule = TrainingSchedule.from_config(config(**given), has_utility=True)
    assert set(schedule.adversary_step) == adversary_step
    assert set(schedule.releaser_step) == releaser_step
    assert set(schedule.pretrained) == pretrained


def test_networks_that_are_held_fixed_stay_as_pretrained():
    played = game(config(objective="squared-kl", scenario="fixed-both", pretrain_steps=50))
    before = {
        name: [p.clone() for p in networks(played, name)] for name in ("adversary", "utility")
    }
    played.advance(STEPS)
    for name, kept in before.items():
        for old, new in zip(kept, networks(played, name), strict=True):
            assert torch.equal(old, new)
    assert played.curves(0)["accuracy/utility"].values  # and the game still measures them


def test_records_outside_the_training_split_do_not_influence_the_game():
    """Altering every record outside `train` does not change the game."""
    one = config()
    problem = PROBLEMS.get("digits")
    pool, splits = load_pool(problem, [one], "cpu")
    outside = np.setdiff1d(np.arange(len(pool.x)), splits[0].train)
    played = Game(problem, [one], pool, splits)
    played.advance(STEPS)
    pool.secret[outside] = 1 - pool.secret[outside]
    pool.utility[outside] = (pool.utility[outside] + 3) % 10
    pool.x[outside] = 1 - pool.x[outside]
    again = Game(problem, [one], pool, splits)
    again.advance(STEPS)
    assert torch.equal(parameters(played, 0), parameters(again, 0))
