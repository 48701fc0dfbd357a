"""Operations whose per-example gradients have a form.

A form takes the arguments of an operation of `torch` and says how gradients of its parameters
follow from its input and the gradient at its output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from privnets.differential_privacy.per_example import (
    ExampleGradients,
    Materialised,
    Products,
    Rows,
)

Rule: TypeAlias = Callable[[Tensor, Tensor], ExampleGradients]
"""Gradients of a parameter from inputs [S, B, ...] and output gradients [S, B, ...]."""


@dataclass(frozen=True, eq=False)
class Form:
    """Operation with arguments.

    Attributes:
        inputs: Its input.
        rules: Its parameters, with their rules.
    """

    inputs: Tensor
    rules: Sequence[tuple[Tensor | None, Rule]]


def _dense(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Form:
    """Form of `functional.linear`."""
    return Form(x, [(weight, weight_rule(is_transposed=True)), (bias, shift_rule(1))])


def _product(x: Tensor, weight: Tensor) -> Form | None:
    """Form of `x @ weight`."""
    if x.ndim < 2 or weight.ndim != 2:
        return None
    return Form(x, [(weight, weight_rule())])


def _affine(bias: Tensor, x: Tensor, weight: Tensor, **factors: Any) -> Form | None:
    """Form of `torch.addmm`, for one bias of all examples."""
    if factors or bias.shape[:-1].numel() > 1:
        return None
    rules = [(weight, weight_rule()), (bias, shift_rule(1))]
    return Form(x, rules)


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Form | None:
    """Form of convolutions in one to three dimensions, as dense layers on patches."""
    sides = weight.shape[2:]
    if x.ndim != weight.ndim:
        return None
    steps, gaps = (
        value if isinstance(value, Sequence) else [value] * len(sides)
        for value in (stride, dilation)
    )
    if padding == "same":
        edges = [divmod(gap * (side - 1), 2) for gap, side in zip(gaps, sides, strict=True)]
        edges = [(half, half + odd) for half, odd in edges]
    else:
        given = 0 if padding == "valid" else padding
        given = given if isinstance(given, Sequence) else [given] * len(sides)
        edges = [(edge, edge) for edge in given]

    rule = convolution_rule(sides, steps, gaps, edges, groups)
    return Form(x, [(weight, rule), (bias, shift_rule(1, len(sides)))])


def convolution_rule(
    sides: Sequence[int],
    steps: Sequence[int],
    gaps: Sequence[int],
    edges: Sequence[tuple[int, int]],
    groups: int = 1,
) -> Rule:
    """Rule of the kernel of a convolution, as a dense layer on patches.

    Args:
        sides: Sides of the kernel.
        steps: Distances of neighbouring outputs, in pixels.
        gaps: Distances of neighbouring numbers of the kernel, in pixels.
        edges: Zeros before and after each dimension.
        groups: Groups of channels.
    """

    def rule(inputs: Tensor, gradient: Tensor) -> ExampleGradients:
        dims = len(sides)
        rows = inputs.flatten(2, -2 - dims) if inputs.ndim > 3 + dims else inputs[:, :, None]
        slopes = gradient.reshape(*rows.shape[:3], groups, -1, *gradient.shape[-dims:])
        patches = _patches(rows, sides, steps, gaps, edges, slopes.shape[-dims:])
        patches = patches.reshape(*rows.shape[:3], groups, -1, slopes[0, 0, 0, 0, 0].numel())
        left, right = (
            t.flatten(5).permute(0, 1, 3, 2, 5, 4).flatten(3, 4) for t in (slopes, patches)
        )
        return Products(left, right)

    return rule


def _patches(
    x: Tensor,
    sides: Sequence[int],
    steps: Sequence[int],
    gaps: Sequence[int],
    edges: Sequence[tuple[int, int]],
    outputs: Sequence[int],
) -> Tensor:
    """Patches under a kernel, shape [..., channels, *sides, *outputs]; faster than `unfold`."""
    padded = functional.pad(x, [edge for pair in reversed(edges) for edge in pair])
    channels = x.ndim - len(sides) - 1
    patches = x.new_empty(*x.shape[: x.ndim - len(sides)], *sides, *outputs)
    for place in product(*map(range, sides)):
        seen = [
            slice(i * gap, i * gap + step * (size - 1) + 1, step)
            for i, gap, step, size in zip(place, gaps, steps, outputs, strict=True)
        ]
        target = patches
        for side in place:
            target = target.select(channels + 1, side)
        index: Any = (..., *seen)
        target.copy_(padded[index])
    return patches


def _table(
    index: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Form | None:
    """Form of `functional.embedding`."""
    if max_norm is not None or scale_grad_by_freq:
        return None

    def rule(inputs: Tensor, gradient: Tensor) -> ExampleGradients:
        rows = inputs.flatten(2) if inputs.ndim > 2 else inputs[..., None]
        slopes = gradient.reshape(*rows.shape, -1)
        if padding_idx is not None:
            slopes = slopes.masked_fill((rows == padding_idx % len(weight))[..., None], 0)
        return Rows(rows, slopes, len(weight))

    return Form(index, [(weight, rule)])


def _layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Form:
    """Form of `functional.layer_norm`."""
    own = len(normalized_shape)
    normalise = partial(functional.layer_norm, normalized_shape=normalized_shape, eps=eps)
    return Form(x, [(weight, _scale_rule(normalise, own)), (bias, shift_rule(own))])


def _rms_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Form:
    """Form of `functional.rms_norm`."""
    own = len(normalized_shape)
    normalise = partial(functional.rms_norm, normalized_shape=normalized_shape, eps=eps)
    return Form(x, [(weight, _scale_rule(normalise, own))])


def _group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Form:
    """Form of `functional.group_norm`."""
    after = x.ndim - 2

    def normalise(inputs: Tensor) -> Tensor:
        rows = inputs.flatten(0, inputs.ndim - x.ndim)
        return functional.group_norm(rows, num_groups, eps=eps).view_as(inputs)

    return Form(x, [(weight, _scale_rule(normalise, 1, after)), (bias, shift_rule(1, after))])


def _scale_rule(normalise: Callable[[Tensor], Tensor], own: int, after: int = 0) -> Rule:
    """Rule of factors on normalised inputs; see `_total`."""
    return lambda a, g: Materialised(_total(g * normalise(a), own, after))


def shift_rule(own: int, after: int = 0) -> Rule:
    """Rule of a bias; see `_total`."""
    return lambda a, g: Materialised(_total(g, own, after))


def _total(values: Tensor, own: int, after: int) -> Tensor:
    """Sums over positions values [S, B, ..., *own, *after], to [S, B, *own]."""
    if after:
        values = values.flatten(values.ndim - after).sum(-1)
    return values.flatten(2, -own - 1).sum(2) if values.ndim > 2 + own else values


def weight_rule(is_transposed: bool = False) -> Rule:
    """Rule of a weight [in, out] of a dense layer, or [out, in] if transposed."""
    if is_transposed:
        return lambda a, g: Products(_rows(g), _rows(a))
    return lambda a, g: Products(_rows(a), _rows(g))


def _rows(values: Tensor) -> Tensor:
    """Values [S, B, ..., units] as [S, B, 1, positions, units]."""
    return values.reshape(*values.shape[:2], 1, -1, values.shape[-1])


FORMS: Final[Mapping[Callable[..., Any], Callable[..., Form | None]]] = {
    functional.linear: _dense,
    torch.matmul: _product,
    torch.mm: _product,
    Tensor.matmul: _product,
    Tensor.mm: _product,
    torch.addmm: _affine,
    torch.conv1d: _convolution,
    torch.conv2d: _convolution,
    torch.conv3d: _convolution,
    functional.embedding: _table,
    functional.layer_norm: _layer_norm,
    functional.rms_norm: _rms_norm,
    functional.group_norm: _group_norm,
}
"""Forms by operation; None for arguments without a form."""
