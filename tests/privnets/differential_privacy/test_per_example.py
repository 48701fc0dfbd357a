"""Ghost clipping against gradients of single examples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from privnets.differential_privacy.per_example import Materialised, Products, clipping
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


def test_gradients_that_cancel_leave_clipped_sums_finite():
    """Rounding makes some of their squared norms negative."""
    torch.manual_seed(0)
    left, right = (torch.randn(1, 64, 1, 3, 20) for _ in range(2))
    each = Products(torch.cat([left, left], 3), torch.cat([right, -right], 3))
    assert (each.squares() < 0).any()
    one = torch.ones(1, 64)
    (total,) = clipping(lambda *_: [each])([one[:, :1].expand(1, 400)], one, one, one[0, :1], one)
    assert total.norm() < 1e-3


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_a_record_whose_norm_is_not_finite_does_not_vanish_from_the_sum(value):
    """The square of 1e30 is infinite in float32."""
    gradients, one = torch.ones(1, 4, 3), torch.ones(1, 4)
    gradients[0, 1, 2] = value
    own = [torch.zeros(1, 3)], one, one, one[0, :1], one
    (total,) = clipping(lambda *_: [Materialised(gradients)])(*own)
    assert total.isnan().all()
