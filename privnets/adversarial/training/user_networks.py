"""Torch modules of users as releasers and as inference networks, in stacks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn.parameter import is_lazy

from privnets.data import UserFormError
from privnets.differential_privacy.module_state import attributes, changed_attribute
from privnets.networks.module_stacks import (
    ModuleStack,
    draw_parameters,
    draws_random_numbers,
    split_tensors,
    stack_states,
    stacking_obstacle,
)
from privnets.references.models import NetworkReference
from privnets.references.user_files import describe_error, import_object

Module: TypeAlias = torch.nn.Module
Factory: TypeAlias = Callable[..., Any]

_TRIED_RECORDS = 2


class UserModules:
    """Modules of a user: their random tensors, and their outputs as a stack.

    The first `trained` tensors of a module train; `output` is the shape for one record.
    `captures` says whether a CUDA graph may repeat their calls.
    """

    def __init__(self, make: Callable[[], Module], entry: str, shapes: Sequence[tuple[int, ...]]):
        """Makes a module and tries it on zeros of these shapes, with records in front.

        Args:
            entry: Field of the configuration, for errors.

        Raises:
            UserFormError: If the module fails, or cannot be trained in a game.
        """
        self._make, self._entry, self._shapes = make, entry, shapes
        modules = [self._create() for _ in range(2)]
        uniform = torch.Generator().manual_seed(0)
        inputs = [torch.rand(2, _TRIED_RECORDS, *shape, generator=uniform) for shape in shapes]
        parameters, others = stack_states(modules, "cpu")
        self.trained, self._others = len(parameters), list(others)
        self.output = self._try(modules[0].eval(), inputs)
        if self.trained:
            self._try(modules[0].train(), inputs)
        self._stack = ModuleStack(modules[0])
        if stacking_obstacle(modules, inputs):
            modules = [self._create() for _ in range(2)]
            self._stack = ModuleStack(modules[0], vectorised=False)
            self.captures = False  # it may branch on values of its input
            if reason := stacking_obstacle(modules, inputs, vectorised=False):
                raise self._refusal(f"a module that cannot train among others: {reason}")
        self.set_training(False)

    def _try(self, module: Module, inputs: Sequence[Tensor]) -> tuple[int, ...]:
        """Shape of the output for one record.

        Raises:
            UserFormError: If the module fails, draws random numbers, or changes its buffers.
        """
        outputs: list[Any] = []
        before = {name: buffer.clone() for name, buffer in module.named_buffers()}
        state = attributes(module)
        try:
            is_random = draws_random_numbers(
                lambda: outputs.append(module(*(x[0].clone() for x in inputs)))
            )
        except Exception as error:  # any exception of the user's code
            raise self._refusal(f"a module that fails: {describe_error(error)}") from error
        if is_random:
            raise self._refusal("a module that draws random numbers, as dropout does")
        for name, buffer in module.named_buffers():
            if not torch.equal(buffer, before[name]):
                raise self._refusal(f"a module that changes the buffer {name}")
        self.captures = not changed_attribute(state, module)
        if not isinstance(outputs[0], Tensor):
            raise self._refusal(f"a module that returns a {type(outputs[0]).__name__}")
        return tuple(outputs[0].shape[1:])

    def _refusal(self, given: str) -> UserFormError:
        shapes = describe_shapes(self._shapes)
        expected = f"one that maps inputs of shapes {shapes} to a tensor, by constant rules"
        return UserFormError(f"{self._entry}.torch", given, expected)

    def set_training(self, training: bool) -> None:
        """Puts the modules into training or evaluation mode; frozen ones stay in the latter."""
        self._stack.module.train(training and self.trained > 0)

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Tensors of one module, as its constructor draws them."""
        return draw_parameters(self._create, random)

    def frozen_digest(self) -> str | None:
        """Sha256 of the tensors of a frozen module; None if it is trained."""
        if self.trained:
            return None
        tensors = {name: t.contiguous() for name, t in self._stack.module.state_dict().items()}
        return hashlib.sha256(save(tensors)).hexdigest()

    def __call__(self, tensors: Sequence[Tensor], *inputs: Tensor) -> Tensor:
        """Outputs [S, n, ...] of inputs [S, n, ...] by tensors [S, ...]."""
        others = dict(zip(self._others, tensors[self.trained :], strict=True))
        # A module may change its inputs, which other networks share.
        own = [x.clone() for x in inputs]
        return self._stack(tensors[: self.trained], *own, buffers=others)

    def _create(self) -> Module:
        entry = f"{self._entry}.torch"
        try:
            module = self._make()
        except UserFormError:
            raise
        except Exception as error:  # any exception of the user's code
            given = f"a function that fails: {describe_error(error)}"
            raise UserFormError(entry, given, "one that returns a torch module") from error
        if not isinstance(module, Module) or not any(True for _ in module.parameters()):
            raise UserFormError(entry, type(module).__name__, "a torch module with parameters")
        if any(map(is_lazy, chain(module.parameters(), module.buffers()))):
            with torch.no_grad():
                module.eval()(*(torch.zeros(_TRIED_RECORDS, *shape) for shape in self._shapes))
        for name, parameter in split_tensors(module)[0].items():
            if parameter.dtype != torch.float32:
                given = f"a module whose parameter {name} trains in {parameter.dtype}"
                raise UserFormError(entry, given, "parameters to train in torch.float32")
        return module


@dataclass(frozen=True)
class ModuleClassifier:
    """A module `forward(x)` that maps records or releases to logits [n, classes]."""

    reference: NetworkReference
    record_shape: tuple[int, ...]
    classes: int
    label: Literal["secret", "utility"]

    @property
    def trained(self) -> int:
        """Number of leading tensors of `initial` that train; the others are frozen."""
        return self._modules.trained

    def frozen_digest(self) -> str | None:
        """Sha256 of its parameters and buffers if it is frozen; None if it is trained."""
        return self._modules.frozen_digest()

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Tensors of one module; see `Architecture.initial`."""
        return self._modules.initial(random)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Logits [S, n, classes]; see `Architecture.forward`."""
        return self._modules(parameters, x)

    @property
    def captures(self) -> bool:
        """Whether a CUDA graph may repeat its calls."""
        return self._modules.captures

    def set_training(self, training: bool) -> None:
        """Puts the modules into training or evaluation mode."""
        self._modules.set_training(training)

    def check(self) -> None:
        """Makes a module and tries it.

        Raises:
            UserFormError: If it fails, or its outputs have another shape than [n, classes].
        """
        assert self._modules

    @cached_property
    def _modules(self) -> UserModules:
        factory = import_factory(self.reference.torch, "inference_network.torch")
        shape, classes, params = self.record_shape, self.classes, self.reference.params
        inputs = shape[0] if len(shape) == 1 else shape
        if "label" in signature(factory).parameters:
            params = {"label": self.label, **params}
        modules = UserModules(
            lambda: factory(inputs, classes, **params), "inference_network", [shape]
        )
        if tuple(modules.output) != (classes,):
            given = f"a module whose outputs have the shape {describe_shapes([modules.output])}"
            raise UserFormError("inference_network.torch", given, describe_shapes([(classes,)]))
        return modules


def import_factory(location: str, field: str) -> Factory:
    """Imports a factory of modules at `module:name`.

    Raises:
        UserFormError: If it cannot be imported or called.
    """
    factory = import_object(location, field)
    if not callable(factory):
        raise UserFormError(field, repr(location), "a class or function that returns a module")
    return factory


def describe_shapes(shapes: Sequence[Sequence[int]]) -> str:
    """Shapes of several inputs or outputs in words."""
    return " and ".join(f"[n, {', '.join(map(str, shape))}]" for shape in shapes)
