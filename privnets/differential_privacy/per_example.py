"""Norms and sums of per-example gradients, without the gradients themselves (ghost clipping).

An operation with inputs a and output gradients g has the weight gradient sum_t a_t g_t' for an
example with positions t. Its squared norm is the sum over t, u of (a_t'a_u) (g_t'g_u); for one
position that is |a|^2 |g|^2 (Goodfellow, arXiv 1510.01799; Li et al., arXiv 2110.05679). A clipped
sum of gradients is then one product, as in ordinary training, with g scaled for each example.

Positions may cancel: rounding errors are relative to sum_t |a_t| |g_t|, not to the norm. A bound on
them is added to each norm, so that no rounded contribution exceeds the clip.

Tensors have leading dimensions S (models of a stack) and B (examples).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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
        """Squared norm of each example's gradient and a bound on its rounding error, [S, B]."""

    @abstractmethod
    def sums(self, weight: Tensor) -> Tensor:
        """Sum over examples with weights [S, B], as [S, numbers of the parameter, in any shape]."""

    @abstractmethod
    def values(self) -> Tensor:
        """Gradients themselves, [S, B, numbers of the parameter]."""


@dataclass(frozen=True, eq=False)
class Materialised(ExampleGradients):
    """Gradients as they are.

    Attributes:
        gradients: Shape [S, B, ...].
    """

    gradients: Tensor

    def squares(self) -> Tensor:
        """Sums the squares of numbers."""
        flat = self.values()
        squares: Tensor = torch.linalg.vecdot(flat, flat)
        return squares

    def sums(self, weight: Tensor) -> Tensor:
        """Takes a product with the weights."""
        total: Tensor = weight[:, None] @ self.values()
        return total

    def values(self) -> Tensor:
        """Returns the gradients."""
        return self.gradients.reshape(*self.gradients.shape[:2], -1)


@dataclass(frozen=True, eq=False)
class Products(ExampleGradients):
    """Gradients sum_t left_t right_t' over positions t, for each of G groups of units.

    Attributes:
        left: Shape [S, B, G, positions, rows].
        right: Shape [S, B, G, positions, columns].
    """

    left: Tensor
    right: Tensor

    def squares(self) -> Tensor:
        """Uses the products of positions, or each example's gradient if that is smaller."""
        positions = self.left.shape[3]
        left, right = (torch.linalg.vector_norm(t, dim=-1) for t in (self.left, self.right))
        largest: Tensor = (left * right).sum(3).square_().sum(2)
        if positions == 1:
            return largest
        if positions**2 > self.left.shape[4] * self.right.shape[4]:
            squares = Materialised(self.values()).squares()
            return (squares.sqrt() + _rounding(largest, positions) * largest.sqrt()).square()
        products = (self.left @ self.left.mT) * (self.right @ self.right.mT)
        units = self.left.shape[4] + self.right.shape[4]
        return products.sum((2, 3, 4)) + _rounding(largest, units) * largest

    def sums(self, weight: Tensor) -> Tensor:
        """Takes one product over examples and positions."""
        scaled = self.left * weight[..., None, None, None]
        return _join_examples(scaled) @ _join_examples(self.right).mT

    def values(self) -> Tensor:
        """Takes a product for each example."""
        return (self.left.mT @ self.right).flatten(2)


@dataclass(frozen=True, eq=False)
class Rows(ExampleGradients):
    """Gradients of a table: at each position a number of a row and its gradient.

    Attributes:
        index: Shape [S, B, positions].
        gradients: Shape [S, B, positions, columns].
        size: Number of rows.
    """

    index: Tensor
    gradients: Tensor
    size: int

    def squares(self) -> Tensor:
        """Sums the products of positions with equal rows."""
        is_equal = self.index[..., None] == self.index[..., None, :]
        norms = torch.linalg.vector_norm(self.gradients, dim=-1, keepdim=True)
        largest = norms @ norms.mT
        bound = _rounding(largest, sum(self.gradients.shape[2:])) * largest
        products: Tensor = self.gradients @ self.gradients.mT + bound
        return (products * is_equal).sum((2, 3))

    def sums(self, weight: Tensor) -> Tensor:
        """Adds scaled gradients to their rows."""
        scaled = (self.gradients * weight[..., None, None]).flatten(1, 2)
        total = scaled.new_zeros(len(scaled), self.size, scaled.shape[-1])
        return total.scatter_add_(1, self.index.flatten(1)[..., None].expand_as(scaled), scaled)

    def values(self) -> Tensor:
        """Adds gradients to the rows of each example."""
        total = self.gradients.new_zeros(*self.index.shape[:2], self.size, self.gradients.shape[-1])
        index = self.index[..., None].expand_as(self.gradients)
        return total.scatter_add_(2, index, self.gradients).flatten(2)


def _rounding(values: Tensor, terms: int) -> float:
    """Bound on rounding errors of a product that sums a number of terms, relative to its factors.

    Units of 1/4 machine epsilon a term: adding equal numbers one by one errs by up to 1/8, in the
    norm and again in the clipped sum.
    """
    return (4 + terms / 4) * torch.finfo(values.dtype).eps


def combine(uses: Sequence[ExampleGradients]) -> ExampleGradients:
    """Gradients of a parameter that several operations use: the sum over its uses."""
    if len(uses) == 1:
        return uses[0]
    products = [use for use in uses if isinstance(use, Products)]
    if len(products) == len(uses):  # further positions of one product
        left, right = ([getattr(use, side) for use in products] for side in ("left", "right"))
        return Products(torch.cat(left, dim=3), torch.cat(right, dim=3))
    return Materialised(sum((use.values() for use in uses[1:]), uses[0].values()))


def _join_examples(values: Tensor) -> Tensor:
    """Values [S, B, G, positions, units] as [S, G, units, B * positions], in their memory order."""
    if values.stride(-1) == 1:
        return values.transpose(1, 2).flatten(2, 3).mT
    return values.permute(0, 2, 4, 1, 3).flatten(3)


GradientsOf = Callable[[Sequence[Tensor], Tensor, Tensor], list[ExampleGradients]]
"""Gradients from parameters [S, ...], records [S, B, ...] and targets [S, B]."""


def clipping(gradients: GradientsOf) -> ClippedGradients:
    """Sums gradients, each scaled down to at most a norm over all parameters.

    The sum is NaN if the norm of a gradient is not finite.
    """

    @torch.no_grad()
    def clipped_gradients(
        parameters: Sequence[Tensor], x: Tensor, y: Tensor, clip: Tensor, counted: Tensor
    ) -> list[Tensor]:
        each = gradients(parameters, x, y)
        squares = [own.squares() for own in each]
        norms = sum(squares[1:], squares[0]).sqrt()
        largest = clip[:, None]
        # A gradient of infinite norm must not vanish: like a NaN, it makes the sum NaN.
        weight = counted * (largest / torch.maximum(norms, largest)) + 0 * norms
        return [
            own.sums(weight).reshape(parameter.shape)
            for own, parameter in zip(each, parameters, strict=True)
        ]

    return clipped_gradients
