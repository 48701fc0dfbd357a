"""Training of stacks of torch modules by the recipe of a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from privnets.differential_privacy.module_gradients import clipped_gradients
from privnets.differential_privacy.per_example import ClippedGradients
from privnets.networks.capture import StepRunner
from privnets.networks.module_stacks import ModuleStack, split_tensors, stack_states
from privnets.networks.training import (
    FusedAdam,
    StackedMomentum,
    differentiable,
    rate_scales,
)
from privnets.references.models import TrainingRecipe

_FEW_CLASSES = 16  # up to them, a CPU takes the softmax of columns several times as fast as of rows


@dataclass(frozen=True, eq=False)
class StackInTraining:
    """Modules of equal shape with their tensors, S of them; or one module as it is.

    Attributes:
        parameters: Parameters that train, each of shape [S, ...].
        buffers: Frozen parameters and buffers, each of shape [S, ...].
        captures: Whether a CUDA graph may repeat a step of training. It would not repeat what a
            step does to Python's objects.
    """

    network: ModuleStack
    parameters: list[Tensor]
    buffers: dict[str, Tensor]
    captures: bool

    @classmethod
    def of(
        cls, modules: Sequence[torch.nn.Module], device: str, *, captures: bool = True
    ) -> StackInTraining:
        """Stacks modules."""
        parameters, buffers = stack_states(modules, device)
        modules[0].eval()
        return cls(ModuleStack(modules[0]), parameters, buffers, captures)

    @classmethod
    def alone(cls, module: torch.nn.Module, device: str) -> StackInTraining:
        """Prepares one module, which is called as it is; the stack shares its tensors."""
        trained, others = split_tensors(module.to(device).eval())
        for parameter in trained.values():
            parameter.data = parameter.data.contiguous()  # `FusedAdam` ignores strides
        return cls(
            ModuleStack(module, vectorised=False),
            [parameter.detach()[None] for parameter in trained.values()],
            {name: tensor.detach()[None] for name, tensor in others.items()},
            captures=False,  # the module may do other than it did when its step was captured
        )

    @property
    def leaves(self) -> list[Tensor]:
        """Tensors of which a loss has gradients: the parameters, or those of the module itself."""
        if self.network.vectorised:
            return self.parameters
        return list(split_tensors(self.network.module)[0].values())

    def set_training(self, training: bool) -> None:
        """Puts the modules into training or evaluation mode."""
        if self.network.module.training != training:
            self.network.module.train(training)

    def __call__(self, x: Tensor, *, training: bool) -> Tensor:
        """Outputs [S, n, ...] of records [S, n, ...]; in training, buffers may change."""
        self.set_training(training)
        if self.network.vectorised:
            return self.network(self.parameters, x, buffers=self.buffers)
        outputs: Tensor = self.network.module(x[0])
        return outputs[None]


def train(
    stack: StackInTraining,
    batches: Iterable[tuple[Tensor, Tensor]],
    recipe: TrainingRecipe,
    after_step: Callable[[int], None],
) -> None:
    """Trains a stack in place.

    Args:
        batches: Records [S, B, ...] and targets [S, B] of each step: float for numbers, int64 for
            classes.
        after_step: Called with the number of steps taken.
    """
    optimiser, device = make_optimiser(stack, recipe), stack.parameters[0].device
    factors = [learning_rate_factor(recipe, step) for step in range(recipe.steps)]

    def take_step(inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        x, y, scale = inputs
        with differentiable(leaves := stack.leaves):
            loss = record_losses(stack(x, training=True), y).mean(1)
            slopes = torch.autograd.grad(loss.sum(), leaves, materialize_grads=True)
        gradients = [g.view_as(p) for g, p in zip(slopes, stack.parameters, strict=True)]
        with torch.no_grad():
            torch._foreach_add_(gradients, stack.parameters, alpha=2 * recipe.weight_decay)
        optimiser.step(gradients, scale)
        return {}

    runner = StepRunner(device, captures=stack.captures)
    for step, (batch, scale) in enumerate(zip(batches, rate_scales(factors, device), strict=True)):
        runner.run(take_step, [*batch, scale])
        after_step(step + 1)


def make_optimiser(stack: StackInTraining, recipe: TrainingRecipe) -> FusedAdam | StackedMomentum:
    """Returns the optimiser of a recipe, at rest."""
    parameters = stack.parameters
    if recipe.optimizer == "adam":
        return FusedAdam(parameters, recipe.learning_rate)
    rates = torch.full((len(parameters[0]),), recipe.learning_rate, device=parameters[0].device)
    return StackedMomentum(parameters, rates, recipe.momentum)


def private_gradients(
    stack: StackInTraining, x: Tensor, y: Tensor, batch: int = 0
) -> ClippedGradients:
    """Clipped gradients for DP-SGD, tried on records [n, ...]; see `clipped_gradients`."""
    models = len(stack.parameters[0])
    few = x.expand(models, *x.shape), y.expand(models, *y.shape)
    state = stack.parameters, stack.buffers
    return clipped_gradients(stack.network.module, *state, *few, record_losses, batch)


def record_losses(outputs: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy, or squared error, of each record, shape [S, B]."""
    if y.is_floating_point():
        return (outputs.reshape(y.shape) - y).square()
    if outputs.shape[-1] <= _FEW_CLASSES:
        return cross_entropy(outputs.transpose(1, 2), y, reduction="none")
    return cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)


def learning_rate_factor(recipe: TrainingRecipe, step: int) -> float:
    """Factor on the learning rate in a step."""
    if recipe.schedule == "constant":
        return 1.0
    return (1 + math.cos(math.pi * step / recipe.steps)) / 2
