"""DP-SGD and convolutional shadow models per second on one core, against plain loops.

Time is the processor's, on one thread, and all contestants of a row group share data and settings.

- DP-SGD of a network 784-128-10, batches of about 256 of 2,048 records: this platform with a stack
  of 8 and with one model; a loop that writes ghost clipping out for the two layers.
- DP-SGD of the small convolutional network on 28x28 pixels, batches of about 128 of 1,024: this
  platform; a loop with gradients of single examples by `torch.func`.
- The small convolutional network without privacy, 8x8 pixels, batches of 64 of 500: this platform
  with a stack of 16; `torch.nn` and `torch.optim.Adam` in a loop.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from privnets.differential_privacy.dp_sgd import PrivateSchedule, train_privately
from privnets.differential_privacy.module_gradients import clipped_gradients
from privnets.membership.user_models.forms import TrainingRecipe
from privnets.membership.user_models.module_stacks import StackInTraining, record_losses, train
from privnets.networks.image_classifiers import cnn
from privnets.networks.training import StackedAdam
from privnets.randomness import generator
from tests.benchmarks.cleanup import run
from tests.benchmarks.harness import alternate, publish

_ROUNDS = 5
_STEPS = 10
_CLIP, _NOISE, _RATE = 1.0, 1.5, 0.002


def _perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def _data(records: int, *shape: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(records, *shape), torch.randint(0, 10, (records,))


def _private(make: Callable[[], nn.Module], models: int, x: Tensor, y: Tensor, rate: float) -> None:
    stack = StackInTraining.of([make() for _ in range(models)], "cpu", vectorised=True)
    gradients, _ = clipped_gradients(stack.network, x.shape[1:], record_losses)
    one = torch.ones(models)
    schedule = PrivateSchedule(_STEPS, rate, _CLIP * one, _NOISE * one, 0 * one)
    randoms = [generator(seed, "benchmark") for seed in range(models)]
    members = torch.arange(len(x)).expand(models, -1)
    optimiser = StackedAdam(stack.parameters, _RATE * one)
    train_privately(optimiser, gradients, x, y, schedule, randoms, members)


def _poisson(x: Tensor, y: Tensor, rate: float) -> Iterator[tuple[Tensor, Tensor]]:
    for _ in range(_STEPS):
        chosen = torch.rand(len(x)) < rate
        yield x[chosen], y[chosen]


def _noisy_step(module: nn.Module, optimiser: torch.optim.Optimizer, expected: float) -> None:
    for parameter in module.parameters():
        noise = _NOISE * _CLIP * torch.randn_like(parameter)
        parameter.grad = (parameter.grad + noise) / expected
    optimiser.step()


def _two_products(x: Tensor, y: Tensor, rate: float) -> None:
    """Norms and clipped sums of both dense layers, written out."""
    module = _perceptron()
    first, last = module[0], module[2]
    optimiser = torch.optim.Adam(module.parameters(), _RATE)
    for inputs, labels in _poisson(x, y, rate):
        before = first(inputs)
        hidden = before.relu()
        logits = last(hidden)
        loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
        slopes = torch.autograd.grad(loss, [before, logits])
        with torch.no_grad():
            squares = sum(
                (a.square().sum(1) + 1) * g.square().sum(1)
                for a, g in zip((inputs, hidden), slopes, strict=True)
            )
            factor = (_CLIP / squares.sqrt()).clamp(max=1)[:, None]
            for layer, a, g in zip((first, last), (inputs, hidden), slopes, strict=True):
                layer.weight.grad, layer.bias.grad = (g * factor).T @ a, (g * factor).sum(0)
            _noisy_step(module, optimiser, rate * len(x))


def _single_examples(x: Tensor, y: Tensor, rate: float) -> None:
    """Gradients of single examples by `torch.func`."""
    module = cnn((1, 28, 28), 10)
    optimiser = torch.optim.Adam(module.parameters(), _RATE)

    def loss(parameters: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
        logits = torch.func.functional_call(module, parameters, (record[None],))
        return nn.functional.cross_entropy(logits, label[None])

    per_example = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
    for inputs, labels in _poisson(x, y, rate):
        named = dict(module.named_parameters())
        gradients = per_example({k: p.detach() for k, p in named.items()}, inputs, labels)
        squares = sum(g.flatten(1).square().sum(1) for g in gradients.values())
        factor = (_CLIP / squares.sqrt()).clamp(max=1)
        with torch.no_grad():
            for name, parameter in named.items():
                parameter.grad = torch.einsum("b,b...->...", factor, gradients[name])
            _noisy_step(module, optimiser, rate * len(x))


def _shadow_batches(models: int, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    for _ in range(_STEPS):
        index = torch.randint(len(x), (models, 64))
        yield x[index], y[index]


def _stacked_shadows(models: int, x: Tensor, y: Tensor) -> None:
    make = partial(cnn, (1, 8, 8), 10)
    stack = StackInTraining.of([make() for _ in range(models)], "cpu", vectorised=True)
    recipe = TrainingRecipe(steps=_STEPS, learning_rate=_RATE)
    train(stack, _shadow_batches(models, x, y), recipe, lambda steps: None)


def _looped_shadows(models: int, x: Tensor, y: Tensor) -> None:
    for _ in range(models):
        module = cnn((1, 8, 8), 10)
        optimiser = torch.optim.Adam(module.parameters(), _RATE)
        for inputs, labels in _shadow_batches(1, x, y):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(inputs[0]), labels[0]).backward()
            optimiser.step()


def _rows(
    model: str, contestants: Mapping[str, tuple[int, Callable[[], None]]]
) -> list[dict[str, object]]:
    """Rows of contestants, each with the number of models that its work trains."""
    works = {name: work for name, (_, work) in contestants.items()}
    return [
        {
            "model": model,
            "contestant": name,
            "rounds": _ROUNDS,
            "model_steps_per_second": round(contestants[name][0] * _STEPS / timing.median, 1),
            "slowest_round": round(contestants[name][0] * _STEPS / timing.high, 1),
            "quickest_round": round(contestants[name][0] * _STEPS / timing.low, 1),
        }
        for name, timing in alternate(works, _ROUNDS, time.process_time).items()
    ]


def main() -> None:
    """Measure and publish."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    vectors = *_data(2048, 784), 0.125
    images = *_data(1024, 1, 28, 28), 0.125
    small = _data(500, 1, 8, 8)
    rows = _rows(
        "private perceptron",
        {
            "this platform, stack of 8": (8, partial(_private, _perceptron, 8, *vectors)),
            "this platform, one": (1, partial(_private, _perceptron, 1, *vectors)),
            "two products written out": (1, partial(_two_products, *vectors)),
        },
    )
    make = partial(cnn, (1, 28, 28), 10)
    rows += _rows(
        "private cnn",
        {
            "this platform": (1, partial(_private, make, 1, *images)),
            "gradients of single examples": (1, partial(_single_examples, *images)),
        },
    )
    rows += _rows(
        "cnn",
        {
            "this platform, stack of 16": (16, partial(_stacked_shadows, 16, *small)),
            "torch.nn loop": (4, partial(_looped_shadows, 4, *small)),
        },
    )
    publish("private_training", rows)


if __name__ == "__main__":
    run(main)
