"""Training of stacks of torch modules by the recipe of a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from privnets.membership.user_models.forms import TrainingRecipe
from privnets.networks.module_stacks import ModuleStack, stack_states
from privnets.networks.training import FusedAdam, StackedMomentum, differentiable

_FEW_CLASSES = 16  # up to them, a CPU takes the softmax of columns several times as fast as of rows


@dataclass(frozen=True, eq=False)
class StackInTraining:
    """Modules of equal shape with their parameters and buffers, S of them.

    Attributes:
        parameters: Each of shape [S, ...].
        buffers: Each of shape [S, ...].
    """

    network: ModuleStack
    parameters: list[Tensor]
    buffers: dict[str, Tensor]

    @classmethod
    def of(
        cls, modules: Sequence[torch.nn.Module], device: str, *, vectorised: bool
    ) -> StackInTraining:
        """Stacks modules, in float32."""
        parameters, buffers = stack_states(modules, device)
        return cls(ModuleStack(modules[0], vectorised=vectorised), parameters, buffers)

    def split(self) -> list[StackInTraining]:
        """Returns the stacks that train by themselves; they share the tensors of this one."""
        if self.network.vectorised:
            return [self]
        return [
            StackInTraining(
                self.network,
                [tensor[i : i + 1] for tensor in self.parameters],
                {name: tensor[i : i + 1] for name, tensor in self.buffers.items()},
            )
            for i in range(len(self.parameters[0]))
        ]

    def __call__(self, x: Tensor, *, training: bool) -> Tensor:
        """Outputs [S, n, ...] of records [S, n, ...]; in training, buffers may change."""
        self.network.module.train(training)
        return self.network(self.parameters, x, buffers=self.buffers)


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
    optimiser = make_optimiser(stack, recipe)
    for step, (x, y) in enumerate(batches):
        gradients = loss_gradients(stack, x, y)
        with torch.no_grad():
            torch._foreach_add_(gradients, stack.parameters, alpha=2 * recipe.weight_decay)
        optimiser.step(gradients, learning_rate_factor(recipe, step))
        after_step(step + 1)


def make_optimiser(stack: StackInTraining, recipe: TrainingRecipe) -> FusedAdam | StackedMomentum:
    """Returns the optimiser of a recipe, at rest."""
    parameters = stack.parameters
    if recipe.optimizer == "adam":
        return FusedAdam(parameters, recipe.learning_rate)
    rates = torch.full((len(parameters[0]),), recipe.learning_rate, device=parameters[0].device)
    return StackedMomentum(parameters, rates, recipe.momentum)


def loss_gradients(stack: StackInTraining, x: Tensor, y: Tensor) -> list[Tensor]:
    """Gradients of the mean cross-entropy, or squared error, of each module."""
    with differentiable(stack.parameters):
        loss = record_losses(stack(x, training=True), y).mean(1)
        gradients = torch.autograd.grad(loss.sum(), stack.parameters, materialize_grads=True)
    return list(gradients)


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
