"""Ten kinds of modules in five forms of training, against plain torch on the same batches.

Each row has the largest difference in a parameter or buffer after 20 steps of Adam with rate 0.01,
or the refusal. The forms: one module by itself, a stack of two, DP-SGD without noise that clips
nothing (full batches), the adversaries of two games, and the same from recorded operations. A CUDA
graph repeats the operations of one step on fixed tensors; on a CPU, those of a trace do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from benchmarks.harness import publish
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
from privnets.networks.module_stacks import seeded, split_tensors, stacking_obstacle
from privnets.randomness import generator
from privnets.references.models import NetworkReference, TrainingRecipe
from tests.privnets.modules import MODULES

_MODULES = (
    "dense", "residual", "frozen_layer", "adapter", "layer_norm", "batch_norm", "embedding",
    "convolution", "gru", "attention",
)  # fmt: skip
_STEPS, _RATE, _SEEDS = 20, 0.01, (1, 2)
_RECIPE = TrainingRecipe(steps=_STEPS, learning_rate=_RATE)


def main() -> None:
    """Trains every module in every form."""
    source = torch.Generator().manual_seed(0)
    x = 4 * torch.rand(_STEPS, 2, 16, 6, generator=source)
    y = torch.randint(3, (_STEPS, 2, 16), generator=source)
    forms: dict[str, Callable[[str, Tensor, Tensor], float]] = {
        "alone": _alone,
        "stack": _stack,
        "private": _private,
        "game": _game,
        "recorded game": partial(_game, recorded=True),
    }
    publish(
        "module_forms",
        [
            {"contestant": name, "form": form, "difference": _cell(work, name, x, y), "rounds": 1}
            for name in _MODULES
            for form, work in forms.items()
        ],
    )


def _cell(work: Callable[[str, Tensor, Tensor], float], name: str, x: Tensor, y: Tensor) -> str:
    """The difference, or why the form refuses the module."""
    try:
        return f"{work(name, x, y):.1e}"
    except (UserFormError, ValueError) as error:
        return "refused: " + re.split(", which|;", str(error).partition("got ")[2] or str(error))[0]


def _module(name: str, seed: int) -> nn.Module:
    with seeded(seed):
        return MODULES[name](6, 3)


def _difference(
    found: Sequence[Tensor], module: nn.Module, x: Tensor, y: Tensor, **k: object
) -> float:
    """Largest difference from a module that plain torch trains."""
    trained = [p for p in module.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(trained, **{"lr": _RATE, **k})
    for inputs, labels in zip(x, y, strict=True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module.train()(inputs), labels).backward()
        optimiser.step()
    expected = [tensor for part in split_tensors(module) for tensor in part.values()]
    return max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True))


def _tensors(stack: StackInTraining, model: int = 0) -> list[Tensor]:
    return [tensor[model] for tensor in (*stack.parameters, *stack.buffers.values())]


def _alone(name: str, x: Tensor, y: Tensor) -> float:
    stack = StackInTraining.alone(_module(name, 1), "cpu")
    train(stack, zip(x[:, :1], y[:, :1], strict=True), _RECIPE, lambda steps: None)
    return _difference(_tensors(stack), _module(name, 1), x[:, 0], y[:, 0])


def _stack(name: str, x: Tensor, y: Tensor) -> float:
    if stacking_obstacle([_module(name, seed) for seed in _SEEDS], [x[0]]):
        raise ValueError("trains alone")
    stack = StackInTraining.of([_module(name, seed) for seed in _SEEDS], "cpu")
    train(stack, zip(x, y, strict=True), _RECIPE, lambda steps: None)
    return max(
        _difference(_tensors(stack, i), _module(name, seed), x[:, i], y[:, i])
        for i, seed in enumerate(_SEEDS)
    )


def _private(name: str, x: Tensor, y: Tensor) -> float:
    stack, one = StackInTraining.alone(_module(name, 1), "cpu"), torch.ones(1)
    gradients = private_gradients(stack, x[0, 0], y[0, 0])
    schedule = PrivateSchedule(_STEPS, 1.0, 1e6 * one, 0 * one, 0 * one)
    optimiser, randoms = make_optimiser(stack, _RECIPE), [np.random.default_rng(0)]
    train_privately(optimiser, gradients, x[0, :1], y[0, :1], schedule, randoms)
    batches = (each.expand(_STEPS, *each.shape) for each in (x[0, 0], y[0, 0]))
    return _difference(_tensors(stack), _module(name, 1), *batches)


def _game(name: str, x: Tensor, y: Tensor, *, recorded: bool = False) -> float:
    reference = NetworkReference(torch=f"tests.privnets.modules:{name}")
    network, betas = ModuleClassifier(reference, (6,), 3, "secret"), (0.5, 0.999)
    configs = [
        AdversarialConfig(problem="gaussian-mixture", adversary_learning_rate=_RATE, seed=seed)
        for seed in _SEEDS
    ]
    group = NetworkGroup(["adversary"], network, configs, torch.device("cpu"), betas, ["secret"])
    network.set_training(True)

    def step(x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
        group.train({"adversary": x}, {"adversary": y}, scale)
        return scale

    one, before = torch.tensor(1.0), group.stack.state()
    run = make_fx(step)(x[0], y[0], one) if recorded else step
    group.stack.restore(before)  # a trace takes the step
    for batch in zip(x, y, strict=True):
        run(*batch, one)
    seeds = [int(generator(seed, "adversary").integers(2**62)) for seed in _SEEDS]
    found = [[tensor[i] for tensor in group.stack.parameters] for i in range(len(_SEEDS))]
    return max(
        _difference(found[i], _module(name, seed), x[:, i], y[:, i], betas=betas)
        for i, seed in enumerate(seeds)
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
