"""Every kind of module, in every form of training, against plain torch on the same batches."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import privnets
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.training.inference_networks import NetworkGroup
from privnets.adversarial.training.user_networks import ModuleClassifier
from privnets.data import UserFormError
from privnets.differential_privacy.dp_sgd import PrivateSchedule, train_privately
from privnets.membership.user_models.module_stacks import (
    StackInTraining,
    make_optimiser,
    private_gradients,
    train,
)
from privnets.membership.user_models.module_trials import ModuleSource
from privnets.networks.module_stacks import seeded, split_tensors, stacking_obstacle
from privnets.randomness import generator
from privnets.references.models import ModuleReference, NetworkReference, TrainingRecipe
from tests.privnets.modules import MODULES, REFUSED

INPUTS, OUTPUTS, STEPS = 6, 3, 6
NEAR = {"rtol": 1e-4, "atol": 1e-5}
# Norms include a bound on rounding errors, which Adam divides by small gradients.
CLIPPED = {"rtol": 1e-4, "atol": 3e-4}
ROUNDED = {"rtol": 0.01, "atol": 0.01}  # for operations in float16
RECIPE = TrainingRecipe(steps=STEPS, learning_rate=0.01, weight_decay=0.01)
ALONE = {  # in words why they do not train in a stack
    "dropout": "random",
    "stochastic_depth": "random",
    "noise_of_numpy": "random",
    "recomputed": "",
    "gru": "",
    "lstm": "",
    "rnn": "",
    "counter": "buffers in a stack differ",
    "buffer_shares_memory": "outputs, gradients or buffers in a stack differ",
    "spectral_norm": "",
    "branches": "control flow",
    "plain_tensor": "outputs, gradients or buffers in a stack differ",
    "attention": "",
    "frozen_half": "",
    "weight_norm": "performance drop",
}
GAME_REFUSALS = {
    "dropout": "random numbers",
    "stochastic_depth": "random numbers",
    "noise_of_numpy": "random numbers",
    "recomputed": "cannot train among others",
    "batch_norm": "changes the buffer",
    "moving_centre": "changes the buffer",
    "counter": "changes the buffer",
    "spectral_norm": "changes the buffer",
    "buffer_shares_memory": "cannot train among others",
    "plain_tensor": "cannot train among others",
}


def _module(name: str, seed: int) -> nn.Module:
    with seeded(seed):
        module = MODULES[name](INPUTS, OUTPUTS)
        if name == "lazy":
            module(torch.zeros(2, INPUTS))
    return module


def _data() -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    x = 4 * torch.rand(STEPS, 2, 8, INPUTS, generator=source)
    return x, torch.randint(OUTPUTS, (STEPS, 2, 8), generator=source)


def _train_plainly(module: nn.Module, x: Tensor, y: Tensor, **options: object) -> nn.Module:
    """Plain torch, the oracle of all forms."""
    optimiser = torch.optim.Adam(
        [p for p in module.parameters() if p.requires_grad], **{"lr": 0.01, **options}
    )
    module.train()
    for inputs, labels in zip(x, y, strict=True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(inputs.clone()), labels).backward()
        optimiser.step()
    return module.eval()


def _assert_equal(found: list[Tensor], module: nn.Module, near=NEAR) -> None:
    trained, others = split_tensors(module)
    expected = [tensor.detach() for tensor in (*trained.values(), *others.values())]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **near)


def _train_stack(modules: list[nn.Module], x: Tensor, y: Tensor, *, alone: bool) -> list[Tensor]:
    """Tensors [S, ...] and outputs of modules that train by the code of the experiment."""
    make = (
        partial(StackInTraining.alone, modules[0])
        if alone
        else partial(StackInTraining.of, modules)
    )
    stack = make("cpu")
    train(stack, zip(x.clone(), y, strict=True), RECIPE, lambda steps: None)
    with torch.no_grad():
        outputs = stack(x[0].clone(), training=False)
    return [*stack.parameters, *stack.buffers.values(), outputs]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_alone_trains_as_in_plain_torch(name):
    x, y = _data()
    plain = _module(name, 1)
    with seeded(5):
        _train_plainly(plain, x[:, 0], y[:, 0], weight_decay=0.02)
    module = _module(name, 1)
    with seeded(5):
        *_, outputs = _train_stack([module], x[:, :1], y[:, :1], alone=True)
    trained, others = split_tensors(module)
    _assert_equal([t.detach() for t in (*trained.values(), *others.values())], plain)
    with torch.no_grad():
        torch.testing.assert_close(outputs[0], plain(x[0, 0].clone()), **NEAR)


@pytest.mark.parametrize("name", MODULES)
def test_a_stack_trains_as_plain_torch_or_says_why_it_does_not(name):
    x, y = _data()
    reason = stacking_obstacle([_module(name, seed) for seed in (1, 2)], [x[0]])
    if name in ALONE:
        assert reason
        assert ALONE[name] in reason
        return
    assert not reason
    *tensors, outputs = _train_stack([_module(name, s) for s in (1, 2)], x, y, alone=False)
    for i, seed in enumerate((1, 2)):
        plain = _train_plainly(_module(name, seed), x[:, i], y[:, i], weight_decay=0.02)
        _assert_equal([tensor[i] for tensor in tensors], plain)
        with torch.no_grad():
            torch.testing.assert_close(outputs[i], plain(x[0, i].clone()), **NEAR)


@pytest.mark.parametrize("name", MODULES)
def test_a_game_trains_as_plain_torch_or_refuses_the_network(name):
    """The steps of an adversary, from the draw of its tensors to its last."""
    x, y = _data()
    betas = (0.5, 0.999)
    reference = NetworkReference(torch=f"tests.privnets.modules:{name}")
    network = ModuleClassifier(reference, (INPUTS,), OUTPUTS, "secret")
    configs = [
        AdversarialConfig(problem="gaussian-mixture", adversary_learning_rate=0.01, seed=seed)
        for seed in (1, 2)
    ]
    if name in GAME_REFUSALS:
        with pytest.raises(UserFormError, match=GAME_REFUSALS[name]):
            network.check()
        return
    group = NetworkGroup(["adversary"], network, configs, torch.device("cpu"), betas, ["secret"])
    network.set_training(True)
    for inputs, labels in zip(x, y, strict=True):
        before = inputs.clone()
        group.train({"adversary": inputs}, {"adversary": labels}, torch.tensor(1.0))
        torch.testing.assert_close(inputs, before)  # other networks see them too
    network.set_training(False)
    with torch.no_grad():
        outputs = network.forward(group.stack.parameters, x[0])
    for i, config in enumerate(configs):
        plain = _module(name, int(generator(config.seed, "adversary").integers(2**62)))
        _train_plainly(plain, x[:, i], y[:, i], betas=betas)
        near = ROUNDED if name == "frozen_half" else NEAR
        _assert_equal([tensor[i] for tensor in group.stack.parameters], plain, near)
        with torch.no_grad():
            torch.testing.assert_close(outputs[i], plain(x[0, i].clone()), **near)


PRIVATE_REFUSALS = {
    "batch_norm": "mixes the records",
    "moving_centre": "training changes buffer centre by its records",
    "branches": "data-dependent control flow",
    "recomputed": "saved tensor hooks",
    "noise_of_numpy": "draws random numbers that are not torch's",
    "stochastic_depth": "draws random numbers that are not torch's",
}


def _train_by_records(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Clips the gradients of a loop over records to the median of their first norms; returns it."""
    trained = [p for p in module.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(trained, 0.01, weight_decay=0.02)
    module.train()
    clip = None
    for _ in range(STEPS):
        gradients, before = [], {name: buffer.clone() for name, buffer in module.named_buffers()}
        for inputs, label in zip(x.clone().split(1), y.split(1), strict=True):
            for name, buffer in module.named_buffers():
                buffer.detach().copy_(before[name])  # buffers change once in a step
            loss = nn.functional.cross_entropy(module(inputs), label)
            gradients.append(torch.autograd.grad(loss, trained, materialize_grads=True))
        norms = torch.stack([torch.cat([g.flatten() for g in own]).norm() for own in gradients])
        clip = norms.median() if clip is None else clip
        for parameter, own in zip(trained, zip(*gradients, strict=True), strict=True):
            factors = torch.clamp(clip / norms, max=1) / len(x)
            parameter.grad = torch.einsum("b,b...->...", factors, torch.stack(own))
        optimiser.step()
    return clip


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {"dropout"}))
def test_private_training_without_noise_clips_each_record_as_plain_torch_or_is_refused(name):
    x, y = (each[0, 0] for each in _data())
    stack = StackInTraining.alone(_module(name, 1), "cpu")
    if name in PRIVATE_REFUSALS:
        with pytest.raises(ValueError, match=PRIVATE_REFUSALS[name]):
            private_gradients(stack, x.clone(), y)
        return
    plain, one = _module(name, 1), torch.ones(1)
    clip = _train_by_records(plain, x, y)
    gradients = private_gradients(stack, x.clone(), y)
    schedule = PrivateSchedule(STEPS, 1.0, clip * one, 0 * one, 0.01 * one)
    optimiser, randoms = make_optimiser(stack, RECIPE), [np.random.default_rng(0)]
    train_privately(optimiser, gradients, x[None].clone(), y[None], schedule, randoms)
    tensors = [*stack.parameters, *stack.buffers.values()]
    _assert_equal([t[0] for t in tensors], plain, ROUNDED if name == "frozen_half" else CLIPPED)


def _source(name: str, **fields: object) -> ModuleSource:
    experiment = privnets.experiment("membership")
    reference = ModuleReference(torch=f"tests.privnets.modules:{name}")
    model = {"torch": reference.torch}
    config = experiment.Config(dataset="digits", model=model, train_size=20, **fields)
    x, y = _data()
    return ModuleSource(config, reference, INPUTS, OUTPUTS, x[0].flatten(0, 1), y[0].flatten())


@pytest.mark.parametrize("name", REFUSED)
def test_a_module_that_cannot_be_trained_is_refused_by_name(name):
    with pytest.raises(UserFormError, match=REFUSED[name][1]):
        _source(name).check()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_trains_is_not_refused(name):
    _source(name).check()


def test_private_training_is_tried_with_batches_of_its_size():
    source = _source("mixes_larger_training_batches", epsilon=8.0, sample_rate=0.5)
    with pytest.raises(UserFormError, match="depend on the other records of its batch"):
        source.check()
    _source("mixes_larger_training_batches", epsilon=8.0, sample_rate=0.4).check()


def test_records_that_are_tried_differ():
    source = _source("dense")
    source.x[:6] = source.x[0]
    x, y = source.few()
    assert len(x) == 4
    assert len(x.unique(dim=0)) == 4
    torch.testing.assert_close(x[1], source.x[6])
    assert y[1] == source.y[6]
