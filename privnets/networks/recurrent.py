"""Stacked LSTM networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privnets.networks.devices import fastest_forms
from privnets.networks.layers import dense, initial_dense, uniform_weights


def lstm(x: Tensor, parameters: Sequence[Tensor], bidirectional: bool = False) -> Tensor:
    """Computes the hidden states of every network's last LSTM layer, from zero states.

    PyTorch's own LSTM runs for one network after another, or each time step for all networks
    together.

    Args:
        x: Shape [S, n, T, in].
        parameters: For each layer, and each direction within it: the weights of the input
            [S, 4 h, in] and of the hidden state [S, 4 h, h], and the bias [S, 4 h]. Gates are in
            the order of `torch.nn.LSTM`: input, forget, cell, output.
        bidirectional: Whether each layer also runs backwards; otherwise outputs are causal.

    Returns:
        Shape [S, n, T, h], or [S, n, T, 2 h] when bidirectional.
    """
    # Some processors lack PyTorch's LSTM in bfloat16.
    is_cast = x.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    if is_cast or len(x) > fastest_forms(x).looped_lstms:
        return step_by_step(parameters, x, bidirectional)
    return network_by_network(parameters, x, bidirectional)


def network_by_network(parameters: Sequence[Tensor], x: Tensor, bidirectional: bool) -> Tensor:
    """Computes `lstm` by PyTorch's own, one network after another."""
    runs, n, hidden = len(parameters) // 3, x.shape[1], parameters[1].shape[-1]
    layers = runs // 2 if bidirectional else runs
    state, no_bias = x.new_zeros(runs, n, hidden), x.new_zeros(4 * hidden)
    outputs = []
    for inputs, *own in zip(x, *(p.unbind() for p in parameters), strict=True):
        # PyTorch adds two biases; the second is 0.
        weights = [w for run in range(runs) for w in (*own[3 * run : 3 * run + 3], no_bias)]
        start = (state, state)
        states, _, _ = torch.lstm(
            inputs, start, weights, True, layers, 0.0, True, bidirectional, True
        )
        outputs.append(states)
    return torch.stack(outputs)


def step_by_step(parameters: Sequence[Tensor], x: Tensor, bidirectional: bool) -> Tensor:
    """Computes `lstm` by a loop over time; each step is a batched product for all networks."""
    runs = [parameters[i : i + 3] for i in range(0, len(parameters), 3)]
    directions = 2 if bidirectional else 1
    for layer in range(0, len(runs), directions):
        states = [_run(x, *runs[layer])]
        if bidirectional:
            states.append(_run(x.flip(2), *runs[layer + 1]).flip(2))
        x = torch.cat(states, -1)
    return x


def _run(x: Tensor, input_weight: Tensor, hidden_weight: Tensor, bias: Tensor) -> Tensor:
    """Runs one layer in one direction, from [S, n, T, in] to [S, n, T, h]."""
    networks, n, steps, _ = x.shape
    projected = torch.baddbmm(bias[:, None], x.flatten(1, 2), input_weight.mT).view(
        networks, n, steps, -1
    )
    hidden = cell = x.new_zeros(networks, n, hidden_weight.shape[-1])
    states = []
    for inputs in projected.unbind(2):
        gates = torch.baddbmm(inputs, hidden, hidden_weight.mT)
        in_gate, forget, new, out_gate = gates.chunk(4, -1)
        cell = forget.sigmoid() * cell + in_gate.sigmoid() * new.tanh()
        hidden = out_gate.sigmoid() * cell.tanh()
        states.append(hidden)
    return torch.stack(states, 2)


def initial_lstm(
    random: np.random.Generator, inputs: int, hidden: int, layers: int, bidirectional: bool = False
) -> list[Tensor]:
    """Draws one network's parameters for `lstm`.

    Weights are uniform within 1 / sqrt(hidden), as in `torch.nn.LSTM`. The single bias is 0, and 1
    for the forget gate, so that memory persists initially (Jozefowicz et al., ICML 2015).
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
    """LSTM layers with a linear output at each time step; causal unless bidirectional."""

    inputs: int
    hidden: int
    layers: int
    outputs: int
    bidirectional: bool = False

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Draws the parameters of the layers (see `initial_lstm`) and of the output."""
        body = initial_lstm(random, self.inputs, self.hidden, self.layers, self.bidirectional)
        width = self.hidden * (2 if self.bidirectional else 1)
        return body + initial_dense(random, width, self.outputs, 1.0)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Returns outputs [S, n, T, outputs] of every network on x [S, n, T, inputs]."""
        *body, weight, bias = parameters
        states = lstm(x, body, self.bidirectional)
        return dense(states.flatten(1, 2), weight, bias).view(*x.shape[:3], self.outputs)
