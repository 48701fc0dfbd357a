"""DP-SGD and convolutional shadow models per second, against Opacus and plain loops.

Time is the processor's, on one thread, and all contestants of a row group share data and settings.
Opacus takes part where it is installed (`pip install opacus==1.6.*`, not a dependency), with ghost
clipping, its fastest form, on Poisson batches without its data loader.

- DP-SGD of a network 784-128-10, batches of about 256 of 2,048 records: this platform with a stack
  of 8 and with one model; a loop that writes ghost clipping out for the two layers; Opacus.
- The same on two threads, in elapsed time: a stack of 8; Opacus.
- DP-SGD of a network with its own `forward`, a residual link and a LayerNorm, 784-128-128-10, on
  the same batches: this platform; its dense layers as an `nn.Sequential`; Opacus.
- DP-SGD of the small convolutional network on 28x28 pixels, batches of about 128 of 1,024: this
  platform; a loop with gradients of single examples by `torch.func`; Opacus.
- The small convolutional network without privacy, 8x8 pixels, batches of 64 of 500: this platform
  with a stack of 16; `torch.nn` and `torch.optim.Adam` in a loop.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.cleanup import run
from benchmarks.harness import alternate, publish
from privnets.differential_privacy.dp_sgd import PrivateSchedule, train_privately
from privnets.membership.user_models.module_stacks import (
    StackInTraining,
    make_optimiser,
    private_gradients,
    train,
)
from privnets.networks.image_classifiers import cnn
from privnets.randomness import generator
from privnets.references.models import TrainingRecipe

_ROUNDS = 5
_STEPS = 40
_CLIP, _NOISE, _RATE = 1.0, 1.5, 0.002


def _perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


class _Residual(nn.Module):
    """Network with its own `forward`, as most users write them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(784, 128), nn.Linear(128, 10)
        self.norm, self.middle = nn.LayerNorm(128), nn.Linear(128, 128)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        outputs: Tensor = self.last(hidden + self.middle(self.norm(hidden)).relu())
        return outputs


def _deep_perceptron() -> nn.Sequential:
    middle = nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
    return nn.Sequential(nn.Linear(784, 128), *middle, nn.Linear(128, 10))


def _data(records: int, *shape: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(records, *shape), torch.randint(0, 10, (records,))


def _private(make: Callable[[], nn.Module], models: int, x: Tensor, y: Tensor, rate: float) -> None:
    stack = StackInTraining.of([make() for _ in range(models)], "cpu")
    gradients = private_gradients(stack, x[:16], y[:16])
    one = torch.ones(models)
    schedule = PrivateSchedule(_STEPS, rate, _CLIP * one, _NOISE * one, 0 * one)
    randoms = [generator(seed, "benchmark") for seed in range(models)]
    members = torch.arange(len(x)).expand(models, -1)
    optimiser = make_optimiser(stack, TrainingRecipe(steps=_STEPS, learning_rate=_RATE))
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


def _opacus(make: Callable[[], nn.Module], x: Tensor, y: Tensor, rate: float) -> None:
    """Ghost clipping by Opacus."""
    module = make()
    data = torch.utils.data.TensorDataset(x, y)
    private, optimiser, loss, _ = (
        importlib.import_module("opacus")
        .PrivacyEngine()
        .make_private(
            module=module,
            optimizer=torch.optim.Adam(module.parameters(), _RATE),
            criterion=nn.CrossEntropyLoss(),
            data_loader=torch.utils.data.DataLoader(data, batch_size=int(rate * len(x))),
            noise_multiplier=_NOISE,
            max_grad_norm=_CLIP,
            grad_sample_mode="ghost",
        )
    )
    for inputs, labels in _poisson(x, y, rate):
        optimiser.zero_grad()
        loss(private(inputs), labels).backward()
        optimiser.step()


def _shadow_batches(models: int, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    for _ in range(_STEPS):
        index = torch.randint(len(x), (models, 64))
        yield x[index], y[index]


def _stacked_shadows(models: int, x: Tensor, y: Tensor) -> None:
    make = partial(cnn, (1, 8, 8), 10)
    stack = StackInTraining.of([make() for _ in range(models)], "cpu")
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


Contestants = Mapping[str, tuple[int, Callable[[], None]]]
"""Work by name, with the number of models that it trains."""


def _rows(
    model: str, contestants: Contestants, clock: Callable[[], float] = time.process_time
) -> list[dict[str, object]]:
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
        for name, timing in alternate(works, _ROUNDS, clock).items()
    ]


def _residual_rows(vectors: tuple[Tensor, Tensor, float]) -> list[dict[str, object]]:
    opacus: Contestants = {"Opacus": (1, partial(_opacus, _Residual, *vectors))}
    return _rows(
        "private residual network",
        {
            "this platform, stack of 8": (8, partial(_private, _Residual, 8, *vectors)),
            "this platform, one": (1, partial(_private, _Residual, 1, *vectors)),
            "dense layers as nn.Sequential": (1, partial(_private, _deep_perceptron, 1, *vectors)),
            **(opacus if importlib.util.find_spec("opacus") else {}),
        },
    )


def main() -> None:
    """Measure and publish."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    vectors = *_data(2048, 784), 0.125
    images = *_data(1024, 1, 28, 28), 0.125
    small = _data(500, 1, 8, 8)
    make = partial(cnn, (1, 28, 28), 10)
    has_opacus = importlib.util.find_spec("opacus") is not None
    opacus: Contestants = {"Opacus": (1, partial(_opacus, _perceptron, *vectors))}
    opacus_images: Contestants = {"Opacus": (1, partial(_opacus, make, *images))}
    stack: Contestants = {
        "this platform, stack of 8": (8, partial(_private, _perceptron, 8, *vectors))
    }
    rows = _rows(
        "private perceptron",
        {
            **stack,
            "this platform, one": (1, partial(_private, _perceptron, 1, *vectors)),
            "two products written out": (1, partial(_two_products, *vectors)),
            **(opacus if has_opacus else {}),
        },
    )
    rows += _residual_rows(vectors)
    rows += _rows(
        "private cnn",
        {
            "this platform": (1, partial(_private, make, 1, *images)),
            "gradients of single examples": (1, partial(_single_examples, *images)),
            **(opacus_images if has_opacus else {}),
        },
    )
    rows += _rows(
        "cnn",
        {
            "this platform, stack of 16": (16, partial(_stacked_shadows, 16, *small)),
            "torch.nn loop": (4, partial(_looped_shadows, 4, *small)),
        },
    )
    torch.set_num_threads(2)
    contestants = {**stack, **(opacus if has_opacus else {})}
    rows += _rows("private perceptron, two threads", contestants, time.perf_counter)
    publish("private_training", rows)


if __name__ == "__main__":
    run(main)
