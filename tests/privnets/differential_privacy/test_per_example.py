"""Ghost clipping against gradients of single examples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from privnets.differential_privacy.per_example import Materialised, Products, Rows, clipping
from privnets.differential_privacy.tape import tape_gradients
from privnets.networks.convolution import convolve

_MODELS, _BATCH = 3, 7


def _cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return -outputs.log_softmax(-1).gather(-1, y[..., None])[..., 0]


def _perceptron(tape, parameters, x):
    hidden = tape.dense(x, parameters[0], parameters[1]).tanh()
    return tape.dense(hidden, parameters[2])


def _plain_perceptron(parameters, x):
    return (x @ parameters[0] + parameters[1]).tanh() @ parameters[2]


def _convolutional(tape, parameters, x):
    maps = tape.convolve(x, parameters[0], parameters[1], 2).relu()
    maps = tape.convolve(maps, parameters[2], parameters[3], 1).tanh()
    return tape.dense(maps.flatten(2), parameters[4], parameters[5])


def _plain_convolutional(parameters, x):
    maps = convolve(x, parameters[0], parameters[1], 2).relu()
    maps = convolve(maps, parameters[2], parameters[3], 1).tanh()
    return maps.flatten(2) @ parameters[4] + parameters[5]


def _networks(name: str):
    torch.manual_seed(0)
    if name == "perceptron":
        shapes = [(5, 4), (1, 4), (4, 3)]
        x, forwards = torch.randn(_MODELS, _BATCH, 5), (_perceptron, _plain_perceptron)
    else:
        # Positions: 16 then 16, so the two layers take the two ways to a norm.
        shapes = [(2, 1, 3, 3), (2,), (40, 2, 3, 3), (40,), (640, 3), (1, 3)]
        x, forwards = torch.randn(_MODELS, _BATCH, 1, 8, 8), (_convolutional, _plain_convolutional)
    parameters = [torch.randn(_MODELS, *shape).double() / 2 for shape in shapes]
    return parameters, x.double(), torch.randint(0, 3, (_MODELS, _BATCH)), forwards


@pytest.mark.parametrize("name", ["perceptron", "convolutional"])
@pytest.mark.parametrize("clip", [0.3, 1e6])
def test_ghost_clipping_equals_clipped_gradients_of_single_examples(name, clip):
    parameters, x, y, (forward, plain) = _networks(name)
    bounds = clip * torch.tensor([1.0, 2.0, 0.5]).double()
    counted = torch.ones(_MODELS, _BATCH).double()
    counted[1, 4:] = 0
    found = clipping(tape_gradients(forward, _cross_entropy))(parameters, x, y, bounds, counted)
    expected = [torch.zeros_like(parameter) for parameter in parameters]
    for model in range(_MODELS):
        for example in range(_BATCH):
            one = [p[model : model + 1].clone().requires_grad_() for p in parameters]
            outputs = plain(one, x[model, example][None, None])
            loss = _cross_entropy(outputs, y[model, example][None, None])
            gradients = torch.autograd.grad(loss.sum(), one)
            norm = torch.cat([g.flatten() for g in gradients]).norm()
            scale = min(1.0, float(bounds[model] / norm)) * counted[model, example]
            for total, gradient in zip(expected, gradients, strict=True):
                total[model] += scale * gradient[0]
    for sums, total in zip(found, expected, strict=True):
        torch.testing.assert_close(sums, total, rtol=1e-9, atol=1e-9)


def _contributions(each: Products | Rows) -> Tensor:
    """Norms of the sums of single examples, clipped to 1."""
    norms = []
    for i in range(_BATCH):
        own = replace(each, **{n: t[:, i : i + 1] for n, t in vars(each).items() if n != "size"})
        one = torch.ones(1, 1)
        gradients = clipping(lambda *_, own=own: [own])
        (total,) = gradients([own.values()[:, 0]], one, one, one[0], one)
        norms.append(total.double().norm())
    return torch.stack(norms)


@pytest.mark.parametrize(
    ("positions", "rows", "columns"),
    [
        *[(2, 16, 16), (2, 99, 99), (4, 1024, 64), (16, 64, 64), (16, 512, 512)],  # ghost norms
        *[(64, 9, 8), (784, 9, 8), (784, 72, 16)],  # gradients as they are
    ],
)
@pytest.mark.parametrize("spread", [0, 1e-4, 1e-2])
def test_gradients_that_cancel_over_positions_are_clipped(positions, rows, columns, spread):
    """Inputs are nearly equal, and output gradients sum to zero, or to rounding errors."""
    torch.manual_seed(0)
    level = 1e4 * torch.rand(1, _BATCH, 1, 1, 1)
    left = level * (1 + spread * torch.randn(1, _BATCH, 1, positions, rows))
    right = torch.randn(1, _BATCH, 1, positions, columns)
    signs = 1.0 - 2.0 * (torch.arange(positions) % 2)[:, None]
    equal = torch.rand(1, _BATCH, 1, 1, 1) * signs.expand_as(right)
    for slopes in (right - right.mean(3, keepdim=True), equal, right):
        assert _contributions(Products(left, slopes)).max() <= 1 + 1e-5


def test_rows_that_cancel_over_positions_are_clipped():
    torch.manual_seed(0)
    index = torch.randint(3, (1, _BATCH, 16))
    gradients = 1e4 * torch.rand(1, _BATCH, 1, 1) + torch.randn(1, _BATCH, 16, 64)
    gradients *= 1.0 - 2.0 * (torch.arange(16) % 2)[:, None]
    for table in (index, index // 3):
        assert _contributions(Rows(table, gradients, 3)).max() <= 1 + 1e-5


@pytest.mark.parametrize("positions", [1, 16, 196])
def test_bounds_on_rounding_hardly_change_norms(positions):
    torch.manual_seed(0)
    left, right = (torch.randn(1, _BATCH, 1, positions, n) for n in (25, 16))
    assert (1 - _contributions(Products(10 * left, right))).max() < 1e-4


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_a_record_whose_norm_is_not_finite_does_not_vanish_from_the_sum(value):
    """The square of 1e30 is infinite in float32."""
    gradients, one = torch.ones(1, 4, 3), torch.ones(1, 4)
    gradients[0, 1, 2] = value
    own = [torch.zeros(1, 3)], one, one, one[0, :1], one
    (total,) = clipping(lambda *_: [Materialised(gradients)])(*own)
    assert total.isnan().all()
