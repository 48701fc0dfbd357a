"""Stacked LSTM networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privnets.networks.layers import dense, initial_dense, uniform_weights


def lstm(x: Tensor, parameters: Sequence[Tensor], bidirectional: bool = False) -> Tensor:
    """Hidden states of every network's last LSTM layer, from a state of zeros.

    On a CPU it is PyTorch's own for one network after another, the quicker form by measurement
    (`tests/benchmarks/network_forms.py`). On a GPU all networks take each time step together, as
    its small kernels should cost the same for many networks as for one; that is not measured yet.

    Args:
        x: Shape [S, n, T, in].
        parameters: For each layer, and then each direction, the weights of the input [S, 4 h, in]
            and of the hidden state [S, 4 h, h], and the bias [S, 4 h]; the gates are input, forget,
            cell and output, as in `torch.nn.LSTM`.
        bidirectional: Whether each layer also runs backwards; else no output sees a later input.

    Returns:
        Shape [S, n, T, h], or [S, n, T, 2 h] when bidirectional.
    """
    form = step_by_step if x.is_cuda else network_by_network
    return form(x, parameters, bidirectional)


def network_by_network(x: Tensor, parameters: Sequence[Tensor], bidirectional: bool) -> Tensor:
    """`lstm` as PyTorch's own, one network after another."""
    runs, n, hidden = len(parameters) // 3, x.shape[1], parameters[1].shape[-1]
    layers = runs // 2 if bidirectional else runs
    state, unused = x.new_zeros(runs, n, hidden), x.new_zeros(4 * hidden)
    outputs = []
    for seen, *own in zip(x, *(p.unbind() for p in parameters), strict=True):
        # It wants two biases, which it adds.
        weights = [w for run in range(runs) for w in (*own[3 * run : 3 * run + 3], unused)]
        start = (state, state)
        states, _, _ = torch.lstm(
            seen, start, weights, True, layers, 0.0, True, bidirectional, True
        )
        outputs.append(states)
    return torch.stack(outputs)


def step_by_step(x: Tensor, parameters: Sequence[Tensor], bidirectional: bool) -> Tensor:
    """`lstm` as a loop over time, each step a batched product for all networks."""
    runs = [parameters[i : i + 3] for i in range(0, len(parameters), 3)]
    directions = 2 if bidirectional else 1
    for layer in range(0, len(runs), directions):
        states = [_run(x, *runs[layer])]
        if bidirectional:
            states.append(_run(x.flip(2), *runs[layer + 1]).flip(2))
        x = torch.cat(states, -1)
    return x


def _run(x: Tensor, input_weight: Tensor, hidden_weight: Tensor, bias: Tensor) -> Tensor:
    """One layer in one direction, [S, n, T, in] to [S, n, T, h]."""
    networks, n, steps, _ = x.shape
    seen = torch.baddbmm(bias[:, None], x.flatten(1, 2), input_weight.mT).view(
        networks, n, steps, -1
    )
    hidden = cell = x.new_zeros(networks, n, hidden_weight.shape[-1])
    states = []
    for inputs in seen.unbind(2):
        gates = torch.baddbmm(inputs, hidden, hidden_weight.mT)
        enter, forget, new, leave = gates.chunk(4, -1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        states.append(hidden)
    return torch.stack(states, 2)


def initial_lstm(
    random: np.random.Generator, inputs: int, hidden: int, layers: int, bidirectional: bool = False
) -> list[Tensor]:
    """One network's parameters for `lstm`.

    Weights are uniform within 1 / sqrt(hidden), as `torch.nn.LSTM` has them. There is one bias
    where that has two that are added; it is 0, and 1 for the forget gate, so that memory lasts
    from the start (Jozefowicz et al., ICML 2015).
    """
    limit, directions = 1 / math.sqrt(hidden), 2 if bidirectional else 1
    parts = []
    for layer in range(layers):
        width = inputs if layer == 0 else hidden * directions
        for _ in range(directions):
            bias = torch.zeros(4 * hidden)
            bias[hidden : 2 * hidden] = 1
            parts += [
                uniform_weights(random, (4 * hidden, width), limit),
                uniform_weights(random, (4 * hidden, hidden), limit),
                bias,
            ]
    return parts


@dataclass(frozen=True)
class Recurrent:
    """LSTM layers with a linear head at each time step; causal unless bidirectional.

    Attributes:
        inputs: Features of a step.
        hidden: Units of a layer and direction.
        layers: How many.
        outputs: Of a step.
        bidirectional: Whether each layer also runs backwards.
    """

    inputs: int
    hidden: int
    layers: int
    outputs: int
    bidirectional: bool = False

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Parameters of the layers (see `initial_lstm`), then the head's weight and bias."""
        body = initial_lstm(random, self.inputs, self.hidden, self.layers, self.bidirectional)
        width = self.hidden * (2 if self.bidirectional else 1)
        return body + initial_dense(random, width, self.outputs, 1.0)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Outputs [S, n, T, outputs] of every network on x [S, n, T, inputs]."""
        *body, weight, bias = parameters
        states = lstm(x, body, self.bidirectional)
        return dense(states.flatten(1, 2), weight, bias).view(*x.shape[:3], self.outputs)
