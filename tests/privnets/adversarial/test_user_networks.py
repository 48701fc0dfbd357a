"""Networks of the user in the game: equal in any stack, stored without code, checked early."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import privnets
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import load_pool, select_exposure
from privnets.adversarial.trained_releaser import load_releaser, save_releaser
from privnets.adversarial.training.game import Game
from privnets.data import DataError, UserFormError
from privnets.networks.streams import RandomStreams, standard_normal
from privnets.randomness import stream_key
from privnets.references.user_files import set_folder
from tests.traced_steps import TracedSteps

SOURCE = """\
import torch
from torch.utils.checkpoint import checkpoint

SHIFT = 1  # in place of a file of weights

class Copier(torch.nn.Module):
    def __init__(self, shape, noise, scale=1.0):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(shape))
        self.mix = torch.nn.Linear(noise, shape[0])
        self.scale = scale

    def forward(self, x, noise):
        return self.scale * x + self.bias + self.mix(noise)


class Branching(Copier):
    def forward(self, x, noise):
        return super().forward(x, noise) if x.sum() >= 0 else super().forward(x, 2 * noise)


class Counting(Copier):
    calls = 0
    def forward(self, x, noise):
        self.calls += 1
        return super().forward(x, noise) * (1 if self.calls < 20 else 2)


def counting_classifier(inputs, classes):
    class Counted(torch.nn.Linear):
        calls = 0
        def forward(self, x):
            self.calls += 1
            return super().forward(x) * (1 if self.calls < 20 else 2)

    return Counted(inputs, classes)


def classifier(inputs, classes, width=8):
    layers = torch.nn.Linear(inputs, width), torch.nn.ReLU(), torch.nn.Linear(width, classes)
    return torch.nn.Sequential(*layers)


class HalfFrozen(Copier):
    def __init__(self, shape, noise):
        super().__init__(shape, noise)
        self.bias.requires_grad_(False)


def frozen_features(inputs, classes):
    module = classifier(inputs, classes)
    module[0].requires_grad_(False)
    return module


def all_frozen(shape, noise):
    return Copier(shape, noise).requires_grad_(False)


class Normalised(Copier):
    def __init__(self, shape, noise):
        super().__init__(shape, noise)
        self.normal = torch.nn.BatchNorm1d(shape[0])

    def forward(self, x, noise):
        return self.normal(super().forward(x, noise))


class WithDropout(Copier):
    def forward(self, x, noise):
        return torch.nn.functional.dropout(super().forward(x, noise), training=self.training)


class Recomputed(Copier):
    def forward(self, x, noise):
        forward = super().forward
        return checkpoint(lambda x: forward(x, noise) * self.bias.exp(), x, use_reentrant=False)


class Rounded(Copier):
    def forward(self, x, noise):
        x.mul_(2)  # in place: other networks see their own copy
        soft = torch.tanh(super().forward(x, noise))
        return soft if self.training else soft.sign()


def tuple_of(shape, noise):
    class Two(Copier):
        def forward(self, x, noise):
            return super().forward(x, noise), noise

    return Two(shape, noise)


def service(inputs, classes, label):
    torch.manual_seed(len(label))  # in place of trained weights
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(inputs), torch.nn.Linear(inputs, classes))
    module[0].running_mean += SHIFT
    return module.requires_grad_(False)


def short(shape, noise):
    return torch.nn.Bilinear(shape[0], noise, 1)


def misfit(shape, noise):
    return torch.nn.Bilinear(shape[0] + 1, noise, 2)


def failing(shape, noise):
    raise RuntimeError("no network today")
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "own_networks.py").write_text(SOURCE)
    set_folder(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_networks", None)


def config_of(**changes) -> AdversarialConfig:
    given = {
        "problem": "gaussian-mixture",
        "releaser": {"torch": "own_networks:Copier", "params": {"scale": 0.5}},
        "inference_network": {"torch": "own_networks:classifier"},
        "steps": 3,
        "panel": "quick",
        "train_size": 64,
    }
    return AdversarialConfig.model_validate({**given, **changes})


def _parameters(configs) -> list[list[torch.Tensor]]:
    problem = problem_of(configs[0])
    pool, splits = load_pool(problem, configs, "cpu")
    game = Game(problem, configs, pool, splits)
    assert not game.advance(configs[0].steps)
    return [game.parameters(member) for member in range(len(configs))]


@pytest.mark.parametrize("name", ["Copier", "Branching"])
def test_a_network_trains_the_same_alone_and_in_a_stack(name) -> None:
    releaser = {"torch": f"own_networks:{name}"}
    configs = [config_of(releaser=releaser, seed=seed) for seed in (0, 1)]
    together = _parameters(configs)
    for config, stacked in zip(configs, together, strict=True):
        (alone,) = _parameters([config])
        for one, other in zip(alone, stacked, strict=True):
            torch.testing.assert_close(one, other)
    assert not torch.equal(together[0][0], together[1][0])


@pytest.mark.parametrize(
    ("releaser", "classifier"),
    [("Counting", "classifier"), ("Copier", "counting_classifier"), ("Branching", "classifier")],
)
def test_steps_of_networks_that_change_are_not_repeated(releaser, classifier, monkeypatch) -> None:
    own = {"torch": f"own_networks:{classifier}"}
    releasers = {"torch": f"own_networks:{releaser}"}
    config = config_of(releaser=releasers, inference_network=own, steps=30)
    usual = _parameters([config])
    monkeypatch.setattr("privnets.adversarial.training.game.StepRunner", TracedSteps)
    for one, other in zip(usual[0], _parameters([config])[0], strict=True):
        assert torch.equal(one, other)


def test_frozen_parameters_stay_in_the_game() -> None:
    releaser = {"torch": "own_networks:HalfFrozen"}
    own = {"torch": "own_networks:frozen_features"}
    config = config_of(releaser=releaser, inference_network=own)
    problem = problem_of(config)
    pool, splits = load_pool(problem, [config], "cpu")
    game = Game(problem, [config], pool, splits)
    before = game.state()
    game.advance(3)
    for name, tensor in game.state().items():
        if "parameter" in name:
            place = int(name.rpartition(".")[2])  # frozen ones are last
            is_frozen = place == 2 if name.startswith("releaser") else place > 1
            assert torch.equal(tensor, before[name]) == is_frozen, name
    parameters = game.parameters(0)
    loaded = load_releaser(
        save_releaser(problem, config, parameters), sys.modules["own_networks"].HalfFrozen
    )
    x = np.zeros((4, 2), dtype=np.float32)
    torch.testing.assert_close(
        torch.from_numpy(loaded(x, seed=1)).mean(0), parameters[2], atol=5, rtol=0
    )


def test_a_network_trains_in_training_mode_and_releases_in_evaluation_mode() -> None:
    config = config_of(releaser={"torch": "own_networks:Rounded"})
    problem = problem_of(config)
    pool, splits = load_pool(problem, [config], "cpu")
    game = Game(problem, [config], pool, splits)
    before = game.parameters(0)
    game.advance(3)
    after = game.parameters(0)
    assert not torch.equal(before[0], after[0])  # a sign alone has no gradient
    released = game.record_releaser(0).release(splits[0].test, "test")
    assert set(released.unique().tolist()) == {-1.0, 1.0}


def test_a_stored_network_names_no_code_and_needs_its_function() -> None:
    config = config_of()
    (parameters,) = _parameters([config])
    content = save_releaser(problem_of(config), config, parameters)
    assert b"own_networks" not in content
    with pytest.raises(DataError, match="name the function that makes it"):
        load_releaser(content)
    factory = sys.modules["own_networks"].Copier
    releaser = load_releaser(content, factory)
    bias, weight, offset = parameters
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    noise = (torch.from_numpy(releaser(x, seed=1)) - 0.5 * torch.from_numpy(x) - bias) - offset
    streams = RandomStreams([stream_key(1, "release")], 16, torch.device("cpu"))
    drawn = standard_normal(streams.rows(0, 50))[:, 0]
    torch.testing.assert_close(noise, config.noise_std * drawn @ weight.T, rtol=1e-4, atol=1e-5)


def test_changed_code_is_another_point(tmp_path) -> None:
    experiment = privnets.experiment("adversarial")
    before = experiment.fingerprint(config_of())
    assert experiment.fingerprint(config_of()) == before
    (tmp_path / "own_networks.py").write_text(SOURCE + "\n# changed\n")
    assert experiment.fingerprint(config_of()) != before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "cannot be imported"),
        ("Normalised", "changes the buffer normal.running_mean"),
        ("WithDropout", "draws random numbers"),
        ("Recomputed", "cannot train among others"),
        ("tuple_of", "returns a tuple"),
        ("short", r"have the shape \[n, 1\]; expected \[n, 2\]"),
        ("failing", "no network today"),
        ("SOURCE", "cannot be imported"),
        ("misfit", "a module that fails"),
        ("all_frozen", "all frozen"),
    ],
)
def test_a_network_that_does_not_fit_is_named_before_training(name, words) -> None:
    config = config_of(releaser={"torch": f"own_networks:{name}"})
    with pytest.raises(UserFormError, match=words) as raised:
        privnets.experiment("adversarial").fingerprint(config)
    assert raised.value.field == "releaser.torch"


def test_widths_have_no_effect_and_sequences_no_such_network() -> None:
    experiment = privnets.experiment("adversarial")
    changed = config_of().model_copy(update={"releaser_width": 5, "adversary_width": 5})
    fields = {error.field for error in experiment.invalid_fields(changed)}
    assert fields == {"releaser_width", "adversary_width"}
    own = config_of().releaser
    eco = AdversarialConfig(problem="eco", releaser=own, inference_network=own)
    fields = {error.field for error in PROBLEMS.get("eco").invalid_fields(eco)}
    assert fields == {"releaser", "inference_network"}


@pytest.mark.parametrize("objective", ["alpha", "squared-kl"])
@pytest.mark.parametrize("scenario", ["joint", "fixed-utility", "fixed-both"])
def test_a_frozen_network_of_a_provider_is_used_as_it_is(scenario, objective) -> None:
    """It may have buffers, and receives its label."""
    fields = {"objective": objective, "scenario": scenario, "pretrain_steps": 2}
    config = config_of(inference_network={"torch": "own_networks:service"}, **fields)
    problem = problem_of(config)
    pool, (splits,) = load_pool(problem, [config], "cpu")
    game, test = Game(problem, [config], pool, [splits]), select_exposure(pool, splits.test)
    game.advance(5)
    for role, label in (("adversary", "secret"), ("utility", "utility")):
        module = sys.modules["own_networks"].service(2, 2, label).eval()
        torch.testing.assert_close(game.infer(role, 0, test), module(test.z).log_softmax(-1))


def test_other_weights_of_a_frozen_network_are_another_point() -> None:
    experiment = privnets.experiment("adversarial")
    config = config_of(inference_network={"torch": "own_networks:service"})
    before = experiment.fingerprint(config)
    assert experiment.fingerprint(config) == before
    sys.modules["own_networks"].SHIFT = 2
    assert experiment.fingerprint(config) != before
