"""Stacks of torch modules of equal shape: one call of a module for all models, or one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from privnets.membership.user_models.forms import TrainingRecipe
from privnets.networks.training import StackedAdam, StackedMomentum, differentiable

Tensors: TypeAlias = dict[str, Tensor]


class StackedModules:
    """Modules of equal shape, S of them.

    Attributes:
        parameters: Each of shape [S, ...].
        buffers: Each of shape [S, ...].
        vectorised: Whether one call serves all modules (`torch.func.vmap`). A module whose forward
            pass branches on values of its input, or draws random numbers, does not allow it.
    """

    def __init__(
        self, module: torch.nn.Module, parameters: Tensors, buffers: Tensors, *, vectorised: bool
    ) -> None:
        """Creates a stack; `module` is called with the tensors of each of the modules."""
        self.parameters, self.buffers, self.vectorised = parameters, buffers, vectorised
        self._module = module

    @classmethod
    def of(
        cls, modules: Sequence[torch.nn.Module], device: str, *, vectorised: bool
    ) -> StackedModules:
        """Stacks the parameters and buffers of modules, in float32."""
        parameters, buffers = (
            {name: tensor.detach() for name, tensor in state.items()}
            for state in stack_module_state([module.float().to(device) for module in modules])
        )
        return cls(modules[0], parameters, buffers, vectorised=vectorised)

    def split(self) -> list[StackedModules]:
        """Returns the stacks that train by themselves; they share the tensors of this one."""
        if self.vectorised:
            return [self]
        parameters, buffers = (
            {name: torch.split(tensor, 1) for name, tensor in state.items()}
            for state in (self.parameters, self.buffers)
        )
        return [
            StackedModules(
                self._module,
                {name: tensors[i] for name, tensors in parameters.items()},
                {name: tensors[i] for name, tensors in buffers.items()},
                vectorised=False,
            )
            for i in range(len(next(iter(parameters.values()))))
        ]

    def __call__(self, x: Tensor, *, training: bool) -> Tensor:
        """Outputs [S, n, ...] of records [S, n, ...]; in training, buffers may change."""
        self._module.train(training)
        if self.vectorised:
            stacked: Tensor = vmap(self._call, randomness="error")(self.parameters, self.buffers, x)
            return stacked
        own = [
            {name: t[0] for name, t in state.items()} for state in (self.parameters, self.buffers)
        ]
        return self._call(own[0], own[1], x[0])[None]

    def _call(self, parameters: Tensors, buffers: Tensors, x: Tensor) -> Tensor:
        outputs: Tensor = functional_call(self._module, (parameters, buffers), (x,))
        return outputs


def train(
    stack: StackedModules, batches: Iterable[tuple[Tensor, Tensor]], recipe: TrainingRecipe
) -> None:
    """Trains a stack in place.

    Args:
        batches: Records [S, B, ...] and targets [S, B] of each step: float for numbers, int64 for
            classes.
    """
    parameters = [*stack.parameters.values()]
    rates = torch.full((len(parameters[0]),), recipe.learning_rate, device=parameters[0].device)
    optimiser = (
        StackedAdam(parameters, rates)
        if recipe.optimizer == "adam"
        else StackedMomentum(parameters, rates, recipe.momentum)
    )
    for step, (x, y) in enumerate(batches):
        gradients = loss_gradients(stack, x, y)
        with torch.no_grad():
            torch._foreach_add_(gradients, parameters, alpha=2 * recipe.weight_decay)
        optimiser.step(gradients, _scale(recipe, step))


def loss_gradients(stack: StackedModules, x: Tensor, y: Tensor) -> list[Tensor]:
    """Gradients of the mean cross-entropy, or squared error, of each module."""
    parameters = [*stack.parameters.values()]
    with differentiable(parameters):
        loss = _mean_losses(stack(x, training=True), y)
        gradients = torch.autograd.grad(loss.sum(), parameters, materialize_grads=True)
    return list(gradients)


def _mean_losses(outputs: Tensor, y: Tensor) -> Tensor:
    """Mean loss of each module, shape [S]."""
    if y.is_floating_point():
        return (outputs.reshape(y.shape) - y).square().mean(1)
    losses = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none")
    return losses.view(y.shape).mean(1)


def _scale(recipe: TrainingRecipe, step: int) -> float:
    """Factor on the learning rate."""
    if recipe.schedule == "constant":
        return 1.0
    return (1 + math.cos(math.pi * step / recipe.steps)) / 2
