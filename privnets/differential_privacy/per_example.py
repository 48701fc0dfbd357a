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

import torch
from torch import Tensor
from torch.nn.functional import unfold

from privnets.networks.convolution import convolve
from privnets.networks.layers import dense


class LayerForm(ABC):
    """Gradients of one layer's parameters for each example, from its inputs and output gradients.

    Inputs have shape [S, B, ...]; gradients of the summed loss at the outputs have shape
    [S, B, ...].
    """

    @abstractmethod
    def squared_norms(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        """Squared norm of each example's gradient of all parameters of the layer, shape [S, B]."""

    @abstractmethod
    def weighted_sums(self, inputs: Tensor, gradient: Tensor, weight: Tensor) -> list[Tensor]:
        """Sums of gradients over examples with a `weight` [S, B], a tensor for each parameter."""


@dataclass(frozen=True)
class DenseForm(LayerForm):
    """Dense layer on vectors [S, B, in]: weight [S, in, out] and, if present, bias [S, 1, out]."""

    has_bias: bool

    def squared_norms(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        """Computes (|a|^2 + 1) |g|^2, or |a|^2 |g|^2 without a bias."""
        sizes = torch.linalg.vecdot(inputs, inputs) + float(self.has_bias)
        squares: Tensor = sizes * torch.linalg.vecdot(gradient, gradient)
        return squares

    def weighted_sums(self, inputs: Tensor, gradient: Tensor, weight: Tensor) -> list[Tensor]:
        """One product for the weight, one sum for the bias."""
        scaled = gradient * weight[..., None]
        sums = [inputs.mT @ scaled]
        return [*sums, scaled.sum(1, keepdim=True)] if self.has_bias else sums


@dataclass(frozen=True)
class ConvolutionForm(LayerForm):
    """Convolution of `privnets.networks.convolution`, as a dense layer on patches.

    Attributes:
        kernel: Side of the square kernel, odd.
        stride: Distance of neighbouring outputs in pixels.
    """

    kernel: int
    stride: int

    def squared_norms(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        """Uses the products of positions, or each example's gradient if that is smaller."""
        patches, slopes = self._patches(inputs), gradient.flatten(3)
        positions = patches.shape[-1]
        if positions**2 <= patches.shape[-2] * slopes.shape[-2]:
            for_weight = ((patches.mT @ patches) * (slopes.mT @ slopes)).sum((-2, -1))
        else:
            for_weight = (slopes @ patches.mT).square().sum((-2, -1))
        return for_weight + slopes.sum(-1).square().sum(-1)

    def weighted_sums(self, inputs: Tensor, gradient: Tensor, weight: Tensor) -> list[Tensor]:
        """One product over examples and positions for the weight, one sum for the bias."""
        slopes = gradient.flatten(3) * weight[..., None, None]
        patches = self._patches(inputs).transpose(1, 2).flatten(2)
        sums = slopes.transpose(1, 2).flatten(2) @ patches.mT
        shape = (*gradient.shape[:1], gradient.shape[2], inputs.shape[2], self.kernel, self.kernel)
        return [sums.view(shape), slopes.sum((1, 3))]

    def _patches(self, inputs: Tensor) -> Tensor:
        """Patches under the kernel, shape [S, B, in k^2, positions]."""
        padding = self.kernel // 2
        columns = unfold(inputs.flatten(0, 1), self.kernel, padding=padding, stride=self.stride)
        return columns.view(*inputs.shape[:2], *columns.shape[1:])


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
        return self._keep(DenseForm(bias is not None), x, y)

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
        """Convolves images [S, B, in, h, w]; see `privnets.networks.convolution.convolve`."""
        form = ConvolutionForm(weight.shape[-1], stride)
        return self._keep(form, x, convolve(x, weight, bias, stride))

    def clipped_sums(self, losses: Tensor, clip: Tensor, counted: Tensor) -> list[Tensor]:
        """Sums of gradients; see `ClippedGradients`. Losses have shape [S, B]."""
        gradients = torch.autograd.grad(losses.sum(), [layer.outputs for layer in self._layers])
        with torch.no_grad():
            pairs = list(zip(self._layers, gradients, strict=True))
            squares = [layer.form.squared_norms(layer.inputs, g) for layer, g in pairs]
            weight = counted * _clip_factors(torch.stack(squares).sum(0).sqrt(), clip)
            sums = [layer.form.weighted_sums(layer.inputs, g, weight) for layer, g in pairs]
        return [each for layer in sums for each in layer]

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
and which records count, 1 or 0 (padding), [S, B].
"""


def ghost_clipping(forward: Forward, loss: Loss) -> ClippedGradients:
    """Clips without materialised gradients, for networks whose layers all have a form."""

    def clipped(
        parameters: Sequence[Tensor], x: Tensor, y: Tensor, clip: Tensor, counted: Tensor
    ) -> list[Tensor]:
        tape = LayerTape()
        losses = loss(forward(tape, parameters, x), y)
        return tape.clipped_sums(losses, clip, counted)

    return clipped


def materialised_clipping(
    forward: Callable[[Sequence[Tensor], Tensor], Tensor], loss: Loss
) -> ClippedGradients:
    """Clips each example's gradient as it is: for any network that `torch.func` can map over.

    On a CPU it takes tens of times as long as `ghost_clipping`, and memory for B gradients.

    Args:
        forward: From parameters [S, ...] and records [S, B, ...] to outputs [S, B, q].
    """

    def example_loss(parameters: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
        one = [parameter[None] for parameter in parameters]
        return loss(forward(one, x[None, None]), y[None, None])[0, 0]

    per_example = torch.func.vmap(torch.func.grad(example_loss), (None, 0, 0))
    stacked = torch.func.vmap(per_example)

    def clipped(
        parameters: Sequence[Tensor], x: Tensor, y: Tensor, clip: Tensor, counted: Tensor
    ) -> list[Tensor]:
        gradients = stacked(list(parameters), x, y)
        squares = [g.flatten(2).square().sum(-1) for g in gradients]
        weight = counted * _clip_factors(torch.stack(squares).sum(0).sqrt(), clip)
        return [torch.einsum("sb,sb...->s...", weight, g) for g in gradients]

    return clipped


def _clip_factors(norms: Tensor, clip: Tensor) -> Tensor:
    """Factors in [0, 1] that scale gradients with norms [S, B] down to `clip` [S]."""
    return (clip[:, None] / norms.clamp_min(1e-12)).clamp(max=1)
