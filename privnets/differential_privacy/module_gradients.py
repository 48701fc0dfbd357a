"""Clipped gradients of torch modules, as stacks: by ghost clipping where every layer has a form.

A sequence of convolutions, dense layers and layers without parameters runs on a `LayerTape`. Any
other module has its per-example gradients materialised by `torch.func`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import torch
from torch import Tensor, nn

from privnets.differential_privacy.per_example import (
    ClippedGradients,
    LayerTape,
    Loss,
    ghost_clipping,
    materialised_clipping,
)
from privnets.networks.module_stacks import ModuleStack

_ELEMENTWISE: Final = (
    nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid,
    nn.Softplus,
)  # fmt: skip
_POOLING: Final = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
# Images whose activations are held at once: of each model on a CPU, of all models on a GPU.
_CPU_IMAGES, _GPU_IMAGES = 32, 4096
_MATERIALISED_NUMBERS = 2**25


def clipped_gradients(
    stack: ModuleStack, record_shape: Sequence[int], loss: Loss
) -> tuple[ClippedGradients, str]:
    """Chooses how the per-example gradients of a module are clipped.

    Args:
        record_shape: Shape of a record without its example dimension.

    Returns:
        Clipped gradients, for parameters in the order of the module, and in words why they are
        materialised; empty with ghost clipping.

    Raises:
        ValueError: If the module normalises batches, so that no example has a gradient of its own,
            or if layers share parameters, which `torch.func` cannot differentiate so.
    """
    names = [name for name, _ in stack.module.named_parameters(remove_duplicate=False)]
    if len(names) > sum(1 for _ in stack.module.parameters()):
        raise ValueError("DP-SGD needs layers that share no parameters.")
    for name, layer in stack.module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"layer {name} is a {type(layer).__name__}, which mixes the records of a batch; "
                "DP-SGD needs normalisation of single records, such as nn.GroupNorm."
            )
    try:
        network = _Sequence.of(stack.module, is_vector=len(record_shape) == 1)
    except _WithoutForm as reason:
        forward = _single_forward(stack)
        per_example = sum(p.numel() for p in stack.module.parameters())
        chunk = _MATERIALISED_NUMBERS // per_example
        clipping = materialised_clipping(forward, loss)
        return _in_chunks(clipping, lambda x: chunk // len(x)), str(reason)
    clipped = ghost_clipping(network, loss)

    def in_module_order(
        parameters: Sequence[Tensor], x: Tensor, y: Tensor, clip: Tensor, counted: Tensor
    ) -> list[Tensor]:
        return network.to_module(clipped(parameters, x, y, clip, counted))

    if len(record_shape) == 1:
        return in_module_order, ""
    return _in_chunks(in_module_order, _images_at_once), ""


class _WithoutForm(Exception):
    """Raised for a module that a `LayerTape` cannot run; the message says why."""


@dataclass(frozen=True, eq=False)
class _Sequence:
    """Layers that a `LayerTape` can run in turn.

    Attributes:
        layers: Each with the number of its parameters.
    """

    layers: list[tuple[nn.Module, int]]

    @classmethod
    def of(cls, module: nn.Module, *, is_vector: bool) -> _Sequence:
        """Checks the layers of a module.

        Raises:
            _WithoutForm: If a layer has no form, or does not fit the shape of its input.
        """
        if not all(p.requires_grad for p in module.parameters()):
            raise _WithoutForm("some parameters are frozen")
        layers = list(_leaves(module))
        for layer in layers:
            if isinstance(layer, nn.Flatten):
                if (layer.start_dim, layer.end_dim) != (1, -1):
                    raise _WithoutForm("nn.Flatten keeps some dimensions")
                is_vector = True
            elif isinstance(layer, nn.Linear):
                if not is_vector:
                    raise _WithoutForm("nn.Linear acts on more than vectors")
            elif isinstance(layer, (nn.Conv2d, *_POOLING)):
                if is_vector or (isinstance(layer, nn.Conv2d) and not _has_form(layer)):
                    raise _WithoutForm(f"{layer} has no form for ghost clipping")
            elif not isinstance(layer, _ELEMENTWISE):
                raise _WithoutForm(f"{type(layer).__name__} has no form for ghost clipping")
        return cls([(layer, len(list(layer.parameters()))) for layer in layers])

    def __call__(self, tape: LayerTape, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Computes outputs [S, B, q] from parameters in the order of the module."""
        remaining = iter(parameters)
        for layer, count in self.layers:
            own = list(islice(remaining, count))
            if isinstance(layer, nn.Linear):
                x = tape.dense(x, own[0].mT, *(bias[:, None] for bias in own[1:]))
            elif isinstance(layer, nn.Conv2d):
                x = tape.convolve(x, own[0], own[1], layer.stride[0])
            elif isinstance(layer, nn.Flatten):
                x = x.flatten(2)
            elif isinstance(layer, _POOLING):
                x = layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])
            else:
                x = layer(x)
        return x

    def to_module(self, sums: Sequence[Tensor]) -> list[Tensor]:
        """Sums of the tape, in the shapes of the module's parameters."""
        remaining, converted = iter(sums), []
        for layer, count in self.layers:
            own = list(islice(remaining, count))
            if isinstance(layer, nn.Linear):
                own = [own[0].mT, *(bias[:, 0] for bias in own[1:])]
            converted += own
        return converted


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, nn.Sequential):
        for child in module:
            yield from _leaves(child)
    else:
        yield module


def _has_form(layer: nn.Conv2d) -> bool:
    """Whether a convolution is one of `privnets.networks.convolution`."""
    side = layer.kernel_size[0]
    padding = layer.padding if layer.padding != "same" else (side // 2, side // 2)
    return (
        side % 2 == 1
        and layer.kernel_size == (side, side)
        and padding == (side // 2, side // 2)
        and layer.stride[0] == layer.stride[1]
        and layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and layer.bias is not None
    )


def _single_forward(stack: ModuleStack) -> Callable[[Sequence[Tensor], Tensor], Tensor]:
    """Forward pass of one module, with a leading dimension 1, for `materialised_clipping`."""
    alone = ModuleStack(stack.module, vectorised=False)
    return lambda parameters, x: alone(parameters, x)


def _images_at_once(x: Tensor) -> int:
    """Number of images of each model [S, B, ...] whose activations are held at once."""
    return _GPU_IMAGES // len(x) if x.is_cuda else _CPU_IMAGES


def _in_chunks(clipped: ClippedGradients, size: Callable[[Tensor], int]) -> ClippedGradients:
    """Adds up the gradients of `size(x)` examples of all models at a time."""

    def total(
        parameters: Sequence[Tensor], x: Tensor, y: Tensor, clip: Tensor, counted: Tensor
    ) -> list[Tensor]:
        chunk = max(1, size(x))
        sums: list[Tensor] = []
        for own in zip(*(torch.split(each, chunk, dim=1) for each in (x, y, counted)), strict=True):
            part = clipped(parameters, own[0], own[1], clip, own[2])
            if not sums:
                sums = [each.contiguous() for each in part]
            else:
                torch._foreach_add_(sums, part)
        return sums

    return total
