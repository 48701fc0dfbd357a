"""Norms and sums of per-example gradients, without the gradients themselves (ghost clipping).

A layer with inputs a and output gradients g has the weight gradient sum_t a_t g_t' for an example
with positions t. Its squared norm is the sum over t, u of (a_t'a_u) (g_t'g_u); for one position
that is |a|^2 |g|^2 (Goodfellow, arXiv 1510.01799; Li et al., arXiv 2110.05679). A clipped sum of
gradients is then one product, as in ordinary training, with g scaled for each example.

Tensors have leading dimensions S (models of a stack) and B (examples).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from torch.nn.functional import pad

from privnets.networks.convolution import convolve
from privnets.networks.layers import dense

WeightedSums = Callable[[Tensor], list[Tensor]]
"""Sums of gradients over examples with weights [S, B], a tensor for each parameter of a layer."""


class LayerForm(ABC):
    """Gradients of one layer's parameters for each example, from its inputs and output gradients.

    Inputs have shape [S, B, ...]; gradients of the summed loss at the outputs have shape
    [S, B, ...].
    """

    @abstractmethod
    def gradients(self, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, WeightedSums]:
        """Squared norm of each example's gradient of all parameters, [S, B], and their sums."""


@dataclass(frozen=True)
class DenseForm(LayerForm):
    """Dense layer on vectors [S, B, in]: weight [S, in, out] and, if present, bias [S, 1, out].

    Attributes:
        has_bias: Whether there is a bias.
        is_transposed: Whether the weight is a view of memory [S, out, in]; its sums are then too.
    """

    has_bias: bool
    is_transposed: bool = False

    def gradients(self, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, WeightedSums]:
        """Squared norms are (|a|^2 + 1) |g|^2, or |a|^2 |g|^2 without a bias."""
        sizes, squares = (
            torch.linalg.vector_norm(each, dim=-1).square_() for each in (inputs, gradient)
        )
        squares.mul_(sizes.add_(1) if self.has_bias else sizes)

        def sums(weight: Tensor) -> list[Tensor]:
            scaled = gradient * weight[..., None]
            product = (
                torch.bmm(scaled.mT, inputs).mT
                if self.is_transposed
                else torch.bmm(inputs.mT, scaled)
            )
            return [product, scaled.sum(1, keepdim=True)] if self.has_bias else [product]

        return squares, sums


@dataclass(frozen=True)
class ConvolutionForm(LayerForm):
    """Convolution of `privnets.networks.convolution`, as a dense layer on patches.

    Attributes:
        kernel: Side of the square kernel, odd.
        stride: Distance of neighbouring outputs in pixels.
    """

    kernel: int
    stride: int

    def gradients(self, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, WeightedSums]:
        """Uses the products of positions, or each example's gradient if that is smaller."""
        patches, slopes = self._patches(inputs), gradient.flatten(3)
        positions, biases = patches.shape[-1], slopes.sum(-1)
        shape = (*gradient.shape[:1], gradient.shape[2], inputs.shape[2], self.kernel, self.kernel)
        if positions**2 <= patches.shape[-2] * slopes.shape[-2]:
            squares = ((patches.mT @ patches) * (slopes.mT @ slopes)).sum((-2, -1))

            def weighted_sum(weight: Tensor) -> Tensor:
                scaled = (slopes * weight[..., None, None]).transpose(1, 2).flatten(2)
                return scaled @ patches.transpose(1, 2).flatten(2).mT
        else:
            single = (slopes @ patches.mT).flatten(2)
            squares = torch.linalg.vecdot(single, single)

            def weighted_sum(weight: Tensor) -> Tensor:
                return weight[:, None] @ single

        def sums(weight: Tensor) -> list[Tensor]:
            return [weighted_sum(weight).reshape(shape), (weight[:, None] @ biases)[:, 0]]

        return squares + biases.square().sum(-1), sums

    def _patches(self, inputs: Tensor) -> Tensor:
        """Patches under the kernel, shape [S, B, in k^2, positions]; faster than `unfold`."""
        edge, stride = self.kernel // 2, self.stride
        padded = pad(inputs, (edge, edge, edge, edge))
        height, width = (-(-side // stride) for side in inputs.shape[-2:])
        patches = inputs.new_empty(*inputs.shape[:3], self.kernel, self.kernel, height, width)
        for i, j in product(range(self.kernel), repeat=2):
            rows = slice(i, i + stride * (height - 1) + 1, stride)
            columns = slice(j, j + stride * (width - 1) + 1, stride)
            patches[:, :, :, i, j] = padded[..., rows, columns]
        return patches.view(*inputs.shape[:2], -1, height * width)


@dataclass(frozen=True)
class _AppliedLayer:
    form: LayerForm
    inputs: Tensor
    outputs: Tensor


class LayerTape:
    """Layers of one forward pass, with what their per-example gradients need.

    A network computes its parametric layers by these methods, in the order of its parameters.
    """

    def __init__(self) -> None:
        """Creates an empty tape."""
        self._layers: list[_AppliedLayer] = []

    def dense(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Computes x w + b, shape [S, B, out], for x [S, B, in]."""
        y = x @ weight if bias is None else dense(x, weight, bias)
        return self._keep(DenseForm(bias is not None, weight.mT.is_contiguous()), x, y)

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
        """Convolves images [S, B, in, h, w]; see `privnets.networks.convolution.convolve`."""
        form = ConvolutionForm(weight.shape[-1], stride)
        return self._keep(form, x, convolve(x, weight, bias, stride))

    def clipped_sums(self, losses: Tensor, clip: Tensor, counted: Tensor) -> list[Tensor]:
        """Sums of gradients; see `ClippedGradients`. Losses have shape [S, B]."""
        outputs = [layer.outputs for layer in self._layers]
        gradients = torch.autograd.grad(losses, outputs, torch.ones_like(losses))
        with torch.no_grad():
            squares, sums = zip(
                *(
                    layer.form.gradients(layer.inputs, gradient)
                    for layer, gradient in zip(self._layers, gradients, strict=True)
                ),
                strict=True,
            )
            weight = counted * _clip_factors(squares, clip)
            return [each for layer in sums for each in layer(weight)]

    def _keep(self, form: LayerForm, inputs: Tensor, outputs: Tensor) -> Tensor:
        if not outputs.requires_grad:
            outputs.requires_grad_()
        self._layers.append(_AppliedLayer(form, inputs.detach(), outputs))
        return outputs


Forward = Callable[[LayerTape, Sequence[Tensor], Tensor], Tensor]
"""Network on a tape: from parameters [S, ...] and records [S, B, ...] to outputs [S, B, q]."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Loss of each record: from outputs [S, B, q] and targets [S, B] to shape [S, B]."""

ClippedGradients = Callable[[Sequence[Tensor], Tensor, Tensor, Tensor, Tensor], list[Tensor]]
"""Sums of per-example gradients, each scaled down to at most a norm; one for each parameter.

From parameters [S, ...], records [S, B, ...], targets [S, B], the largest norm of each model [S],
and a factor on each record's clipped gradient, 0 for padding, [S, B].
"""


def ghost_clipping(forward: Forward, loss: Loss) -> ClippedGradients:
    """Clips without materialised gradients, for networks whose layers all have a form."""

    def clipped_gradients(
        parameters: Sequence[Tensor], x: Tensor, y: Tensor, clip: Tensor, counted: Tensor
    ) -> list[Tensor]:
        tape = LayerTape()
        losses = loss(forward(tape, parameters, x), y)
        return tape.clipped_sums(losses, clip, counted)

    return clipped_gradients


def materialised_clipping(
    forward: Callable[[Sequence[Tensor], Tensor], Tensor], loss: Loss
) -> ClippedGradients:
    """Clips each example's gradient as it is: for any network that `torch.func` can map over.

    On a CPU it takes tens of times as long as `ghost_clipping`.

    Args:
        forward: From parameters [S, ...] and records [S, B, ...] to outputs [S, B, q].
    """

    def example_loss(parameters: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
        one = [parameter[None] for parameter in parameters]
        return loss(forward(one, x[None, None]), y[None, None])[0, 0]

    per_example = torch.func.vmap(torch.func.grad(example_loss), (None, 0, 0))
    stacked = torch.func.vmap(per_example)

    def clipped_gradients(
        parameters: Sequence[Tensor], x: Tensor, y: Tensor, clip: Tensor, counted: Tensor
    ) -> list[Tensor]:
        gradients = stacked(list(parameters), x, y)
        squares = [g.flatten(2).square().sum(-1) for g in gradients]
        weight = counted * _clip_factors(squares, clip)
        return [torch.einsum("sb,sb...->s...", weight, g) for g in gradients]

    return clipped_gradients


def _clip_factors(squares: Sequence[Tensor], clip: Tensor) -> Tensor:
    """Factors in [0, 1] that scale gradients down to the norm `clip` [S].

    Args:
        squares: Squared norms of the parts of each gradient, each of shape [S, B].
    """
    largest = clip[:, None]
    return largest / torch.maximum(sum(squares[1:], squares[0]).sqrt(), largest)
