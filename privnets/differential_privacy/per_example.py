"""Clipped sums of per-example gradients, and those of stacked networks of dense layers.

A dense layer with input a and output gradient g has the weight gradient a g' for an example, of
norm |a| |g| (Goodfellow, arXiv 1510.01799). A clipped sum of gradients is then one product, as in
ordinary training, with g scaled for each example.

Tensors have leading dimensions S (models of a stack) and B (examples).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privnets.networks.layers import dense

Loss = Callable[[Tensor, Tensor], Tensor]
"""Loss of each record: from outputs [S, B, q] and targets [S, B] to shape [S, B]."""

ClippedGradients = Callable[[Sequence[Tensor], Tensor, Tensor, Tensor, Tensor], list[Tensor]]
"""Sums of per-example gradients, each scaled down to at most a norm; one for each parameter.

From parameters [S, ...], records [S, B, ...], targets [S, B], the largest norm of each model [S],
and a factor on each record's clipped gradient, 0 for padding, [S, B].
"""


class ExampleGradients(ABC):
    """Gradient of one parameter for each example."""

    @abstractmethod
    def squares(self) -> Tensor:
        """Squared norm of each example's gradient, [S, B]."""

    @abstractmethod
    def sums(self, weight: Tensor) -> Tensor:
        """Sum over examples with weights [S, B], as [S, numbers of the parameter, in any shape]."""


@dataclass(frozen=True, eq=False)
class Materialised(ExampleGradients):
    """Gradients as they are.

    Attributes:
        gradients: Shape [S, B, ...].
    """

    gradients: Tensor

    def squares(self) -> Tensor:
        """Sums the squares of numbers."""
        flat = self._flat
        squares: Tensor = torch.linalg.vecdot(flat, flat)
        return squares

    def sums(self, weight: Tensor) -> Tensor:
        """Takes a product with the weights."""
        total: Tensor = weight[:, None] @ self._flat
        return total

    @property
    def _flat(self) -> Tensor:
        return self.gradients.reshape(*self.gradients.shape[:2], -1)


@dataclass(frozen=True, eq=False)
class Products(ExampleGradients):
    """Gradients left right'.

    Attributes:
        left: Shape [S, B, rows].
        right: Shape [S, B, columns].
    """

    left: Tensor
    right: Tensor

    def squares(self) -> Tensor:
        """Takes the product of both norms."""
        left, right = (torch.linalg.vector_norm(t, dim=-1) for t in (self.left, self.right))
        squares: Tensor = (left * right).square_()
        return squares

    def sums(self, weight: Tensor) -> Tensor:
        """Takes one product over examples."""
        return (self.left * weight[..., None]).mT @ self.right


def clipped_sums(
    gradients: Sequence[ExampleGradients],
    parameters: Sequence[Tensor],
    clip: Tensor,
    counted: Tensor,
) -> list[Tensor]:
    """Sums gradients, each scaled down to at most a norm over all parameters.

    The sum is NaN if the norm of a gradient is not finite. See `ClippedGradients`.
    """
    squares = [own.squares() for own in gradients]
    norms = sum(squares[1:], squares[0]).sqrt()
    largest = clip[:, None]
    # A gradient of infinite norm must not vanish: like a NaN, it makes the sum NaN.
    weight = counted * (largest / torch.maximum(norms, largest)) + 0 * norms
    return [
        own.sums(weight).reshape(parameter.shape)
        for own, parameter in zip(gradients, parameters, strict=True)
    ]


class Tape:
    """Dense layers of a forward pass, in the order of their parameters."""

    def __init__(self) -> None:
        """Creates an empty tape."""
        self._layers: list[tuple[Tensor, Tensor, bool]] = []

    def dense(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Computes x w + b, shape [S, B, out].

        Args:
            x: Inputs, shape [S, B, in].
            weight: Shape [S, in, out].
            bias: Shape [S, 1, out].
        """
        y = x @ weight if bias is None else dense(x, weight, bias)
        self._layers.append((x.detach(), y, bias is not None))
        return y

    def gradients(self, losses: Tensor) -> list[ExampleGradients]:
        """Gradients of losses [S, B] by parameter.

        The backward pass ends at the outputs of layers, so that no parameter gets a gradient.
        """
        slopes = torch.autograd.grad(
            losses, [y for _, y, _ in self._layers], torch.ones_like(losses)
        )
        found: list[ExampleGradients] = []
        for (x, _, has_bias), slope in zip(self._layers, slopes, strict=True):
            found += [Products(x, slope), Materialised(slope)][: 1 + has_bias]
        return found


def dense_gradients(
    forward: Callable[[Tape, Sequence[Tensor], Tensor], Tensor], loss: Loss
) -> ClippedGradients:
    """Takes clipped gradients of networks whose layers are all dense.

    Args:
        forward: From a tape, parameters [S, ...] and records [S, B, ...] to outputs [S, B, q].
        loss: Loss of each record.
    """

    def clipped(
        parameters: Sequence[Tensor], x: Tensor, y: Tensor, clip: Tensor, counted: Tensor
    ) -> list[Tensor]:
        tape = Tape()
        leaves = [parameter.detach().requires_grad_() for parameter in parameters]
        with torch.enable_grad():
            losses = loss(forward(tape, leaves, x), y)
        with torch.no_grad():
            return clipped_sums(tape.gradients(losses), parameters, clip, counted)

    return clipped
