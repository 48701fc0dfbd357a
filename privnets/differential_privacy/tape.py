"""Layers of a forward pass, with what their per-example gradients need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from privnets.differential_privacy.operations import (
    Rule,
    convolution_rule,
    shift_rule,
    weight_rule,
)
from privnets.differential_privacy.per_example import ExampleGradients, GradientsOf, Loss, combine
from privnets.networks.convolution import convolve
from privnets.networks.layers import dense


@dataclass(frozen=True, eq=False)
class _Use:
    """Operation that parameters take part in.

    Attributes:
        rules: Rules of its parameters, by their numbers.
        inputs: Its input.
        edge: Place of its output in the graph of gradients.
        arrange: Brings input and gradient to shape [S, B, ...]; has the place of the tensor.
    """

    rules: Mapping[int, Rule]
    inputs: Tensor
    edge: GradientEdge
    arrange: Callable[[Tensor, int], Tensor]


class Tape:
    """Operations of a forward pass that parameters take part in.

    A network of stacked tensors computes its layers by `dense` and `convolve`, in the order of its
    parameters. One backward pass goes up to the outputs of layers, so that no parameter gets a
    gradient of its own.
    """

    def __init__(self) -> None:
        """Creates an empty tape."""
        self._uses: list[_Use] = []
        self._count = 0

    def dense(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, is_transposed: bool = False
    ) -> Tensor:
        """Computes x w + b, shape [S, B, out], for x [S, B, in].

        Args:
            x: Inputs.
            weight: Shape [S, in, out], or [S, out, in] if transposed.
            bias: Shape [S, 1, out] or [S, out].
            is_transposed: Order of the weight's dimensions.
        """
        kernel, rules = weight.mT if is_transposed else weight, [weight_rule(is_transposed)]
        if bias is None:
            y = x @ kernel
        else:
            y = dense(x, kernel, bias.view(len(bias), 1, -1))
            rules.append(shift_rule(1))
        return self._append(rules, x, y)

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
        """Convolves images [S, B, in, h, w]; see `privnets.networks.convolution.convolve`."""
        sides = weight.shape[-2:]
        edges = [(side // 2, side // 2) for side in sides]
        rule = convolution_rule(sides, [stride] * 2, [1, 1], edges)
        return self._append([rule, shift_rule(1, 2)], x, convolve(x, weight, bias, stride))

    def note(
        self,
        rules: Mapping[int, Rule],
        inputs: Tensor,
        output: Tensor,
        arrange: Callable[[Tensor, int], Tensor] = lambda tensor, place: tensor,
    ) -> None:
        """Adds an operation, unless its output has no gradient."""
        if output.requires_grad:
            edge = get_gradient_edge(output)
            self._uses.append(_Use(rules, inputs.detach(), edge, arrange))

    def gradients(self, losses: Tensor) -> dict[int, list[ExampleGradients]]:
        """Gradients of losses [S, B], from each use of a parameter, by the parameter's number."""
        slopes = torch.autograd.grad(
            losses,
            [use.edge for use in self._uses],
            torch.ones_like(losses),
            allow_unused=True,
        )
        found: dict[int, list[ExampleGradients]] = defaultdict(list)
        for use, slope in zip(self._uses, slopes, strict=True):
            if slope is None:
                continue
            inputs, slope = use.arrange(use.inputs, 0), use.arrange(slope, 1)
            inputs = inputs.expand(*slope.shape[:2], *inputs.shape[2:])  # all may share an input
            sides = [
                side.to(losses.dtype) if side.is_floating_point() else side
                for side in (inputs, slope)
            ]
            for number, rule in use.rules.items():
                found[number].append(rule(*sides))
        return found

    def _append(self, rules: Sequence[Rule], x: Tensor, y: Tensor) -> Tensor:
        self.note(dict(enumerate(rules, self._count)), x, y)
        self._count += len(rules)
        return y


TapeForward = Callable[[Tape, Sequence[Tensor], Tensor], Tensor]
"""Network on a tape: from parameters [S, ...] and records [S, B, ...] to outputs [S, B, q]."""


def tape_gradients(forward: TapeForward, loss: Loss) -> GradientsOf:
    """Takes gradients of single records of a network whose layers are all on a tape."""

    def gradients(parameters: Sequence[Tensor], x: Tensor, y: Tensor) -> list[ExampleGradients]:
        tape = Tape()
        leaves = [parameter.detach().requires_grad_() for parameter in parameters]
        with torch.enable_grad():
            losses = loss(forward(tape, leaves, x), y)
        found = tape.gradients(losses)
        return [combine(found[i]) for i in range(len(parameters))]

    return gradients
