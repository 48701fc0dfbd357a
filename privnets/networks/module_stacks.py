"""Stacks of torch modules of equal shape, computed from stacked parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from privnets.networks.forms import Form, compute_fastest
from privnets.networks.precision import cast_inputs

Tensors: TypeAlias = Mapping[str, Tensor]
ImageShape: TypeAlias = tuple[int, int, int]
"""Channels, height and width."""


class ModuleStack:
    """Computes modules of equal shape from their tensors with a leading dimension S.

    Attributes:
        module: Module that is called with the tensors of each of the modules.
        vectorised: Whether one call serves all modules (`torch.func.vmap`), else one call each. A
            module that branches on values of its input, or draws random numbers, needs the latter.
    """

    def __init__(self, module: torch.nn.Module, *, vectorised: bool = True) -> None:
        """Wraps a module; its own parameters are not used."""
        self.module, self.vectorised = module, vectorised
        self._names = list(split_tensors(module)[0])

    def __call__(
        self, parameters: Sequence[Tensor], *inputs: Tensor, buffers: Tensors | None = None
    ) -> Tensor:
        """Outputs [S, n, ...] of inputs [S, n, ...] by trained parameters [S, ...], in order.

        `buffers` [S, ...] hold frozen parameters too. In training, the module may change buffers in
        place.
        """
        state = dict(zip(self._names, parameters, strict=True)) | dict(buffers or {})
        if self.vectorised:
            stacked: Tensor = vmap(self._call, randomness="error")(state, *inputs)
            return stacked
        outputs = [
            self._call({name: tensor[i] for name, tensor in state.items()}, *(x[i] for x in inputs))
            for i in range(len(inputs[0]))
        ]
        return torch.stack(outputs)

    def _call(self, state: Tensors, *inputs: Tensor) -> Tensor:
        output: Tensor = functional_call(self.module, dict(state), inputs)
        return output


class ConvolutionStack:
    """Computes convolutional modules of equal shape as a `ModuleStack`.

    They run one after another or together, whichever measures faster on the device.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        """Wraps a module; its own parameters are not used."""
        self._forms: dict[str, Form] = {
            "one by one": ModuleStack(module, vectorised=False),
            "together": ModuleStack(module),
        }
        self._name = f"{type(module).__name__} {module}"

    def __call__(self, parameters: Sequence[Tensor], *inputs: Tensor) -> Tensor:
        """Outputs [S, n, ...] of inputs [S, n, ...] by parameters [S, ...], in module order."""
        return compute_fastest(
            self._name, self._forms, cast_inputs(parameters), *cast_inputs(inputs)
        )


def split_tensors(module: torch.nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Tensors of a module by name: parameters that train; frozen parameters and buffers."""
    trained: dict[str, Tensor] = {}
    others: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        (trained if parameter.requires_grad else others)[name] = parameter
    return trained, others | dict(module.named_buffers())


def stack_states(
    modules: Sequence[torch.nn.Module], device: str
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Stacks the tensors of modules, each to [S, ...], contiguous; see `split_tensors`.

    Raises:
        ValueError: If modules differ in the names of their tensors, or in what is frozen.
    """
    states = [split_tensors(module.float().to(device)) for module in modules]
    if any(list(map(list, state)) != list(map(list, states[0])) for state in states):
        raise ValueError("modules must have the same parameters and freeze the same ones.")
    trained, others = (
        # A module's memory format may be channels_last, and `FusedAdam` ignores strides.
        {name: torch.stack([own[name].detach() for own in part]).contiguous() for name in part[0]}
        for part in zip(*states, strict=True)
    )
    return list(trained.values()), others


def draw_parameters(
    make: Callable[[], torch.nn.Module], random: np.random.Generator
) -> list[Tensor]:
    """Tensors of one module as its constructor draws them, not stacked: those that train first."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(random.integers(2**62)))
        trained, others = split_tensors(make())
    return [tensor.detach().clone() for tensor in (*trained.values(), *others.values())]


@dataclass(frozen=True)
class ImageClassifier:
    """Classifier of images by a torch module without buffers; an `Architecture`.

    Attributes:
        make: Makes the module from the shape of an image, the number of classes and the width.
        shape: Channels, height and width of an image.
    """

    make: Callable[[ImageShape, int, int], torch.nn.Module]
    shape: ImageShape
    classes: int
    width: int

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Draws the parameters of one network; see `Architecture.initial`."""
        return draw_parameters(self._make, random)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Returns logits [S, n, classes] of images [S, n, *shape]."""
        return self._stack(parameters, x)

    @cached_property
    def _stack(self) -> ConvolutionStack:
        return ConvolutionStack(self._make())

    def _make(self) -> torch.nn.Module:
        return self.make(self.shape, self.classes, self.width)
