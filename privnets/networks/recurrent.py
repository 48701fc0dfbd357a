"""Stacked LSTM networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from privnets.networks.devices import cast_inputs, fastest_forms
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
    if fastest_forms(x).loops_lstms and not is_cast:
        return network_by_network(parameters, x, bidirectional)
    return step_by_step(parameters, x, bidirectional)


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
    projected = torch.baddbmm(bias[:, None], x.flatten(1, 2), input_weight.mT)
    gates = projected.view(networks, n, steps, -1).movedim(2, 0).contiguous()
    states: Tensor = _Steps.apply(*cast_inputs([gates, hidden_weight]))  # type: ignore[no-untyped-call]
    return states.movedim(0, 2)


class _Steps(torch.autograd.Function):
    """States [T, S, n, h] of a layer, from projected inputs [T, S, n, 4 h] and weights [S, 4 h, h].

    A time step is a product and a cell, forwards and backwards. The gradient of the weights is one
    product over all steps.
    """

    @staticmethod
    def forward(ctx: Any, projected: Tensor, weight: Tensor) -> Tensor:
        hidden = projected.new_zeros(*projected.shape[1:3], weight.shape[-1])
        states, cells, gates = [hidden], [hidden.flatten(0, 1)], []
        for inputs in projected:
            recurrent = torch.bmm(states[-1], weight.mT).flatten(0, 1)
            state, cell, gate = _cell(inputs.flatten(0, 1), recurrent, cells[-1])
            states.append(state.view_as(hidden))
            cells.append(cell)
            gates.append(gate)
        stacked = torch.stack(states)
        ctx.save_for_backward(weight, stacked, *cells, *gates)
        return stacked[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        weight, states, *saved = ctx.saved_tensors
        steps, networks, n, hidden = gradient.shape
        cells, gates = saved[: steps + 1], saved[steps + 1 :]
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        of_cell = torch.zeros_like(cells[0])
        of_gates: list[Tensor] = []
        for step in reversed(range(steps)):
            own = gradient[step]
            if of_gates:
                own.baddbmm_(of_gates[-1].view(networks, n, -1), weight)
            around = cells[step], cells[step + 1], gates[step]
            of_gate, of_cell = _cell_gradients(own.flatten(0, 1), of_cell, *around)
            of_gates.append(of_gate)
        of_projected = torch.stack(of_gates[::-1]).view(steps, networks, n, 4 * hidden)
        if not ctx.needs_input_grad[1]:
            return of_projected, None
        gradients = of_projected.transpose(0, 1).flatten(1, 2)
        before = states[:-1].transpose(0, 1).flatten(1, 2)
        return of_projected, torch.bmm(gradients.mT, before)


# PyTorch has one kernel for a cell on CUDA, and one for its gradients.


def _cell(inputs: Tensor, recurrent: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Next hidden state and cell [N, h], and gates [N, 4 h] for the gradients."""
    if inputs.is_cuda:
        state, new, gates = torch.ops.aten._thnn_fused_lstm_cell(inputs, recurrent, cell)
        return state, new, gates
    in_gate, forget, candidate, out_gate = (inputs + recurrent).chunk(4, -1)
    gates = torch.cat(
        [in_gate.sigmoid(), forget.sigmoid(), candidate.tanh(), out_gate.sigmoid()], 1
    )
    in_gate, forget, candidate, out_gate = gates.chunk(4, -1)
    new = forget * cell + in_gate * candidate
    return out_gate * new.tanh(), new, gates


def _cell_gradients(
    of_state: Tensor, of_new: Tensor, cell: Tensor, new: Tensor, gates: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the gates before their activation [N, 4 h], and of the cell before [N, h]."""
    if cell.is_cuda:
        fused = torch.ops.aten._thnn_fused_lstm_cell_backward_impl
        of_gates, of_cell, _ = fused(of_state, of_new, cell, new, gates, False)
        return of_gates, of_cell
    in_gate, forget, candidate, out_gate = gates.chunk(4, -1)
    bounded = new.tanh()
    of_new = of_new + of_state * out_gate * (1 - bounded.square())
    slopes = [
        of_new * candidate * in_gate * (1 - in_gate),
        of_new * cell * forget * (1 - forget),
        of_new * in_gate * (1 - candidate.square()),
        of_state * bounded * out_gate * (1 - out_gate),
    ]
    return torch.cat(slopes, 1), of_new * forget


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
