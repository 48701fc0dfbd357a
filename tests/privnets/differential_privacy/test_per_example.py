"""Clipped gradients of dense networks against gradients of single examples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from privnets.differential_privacy.per_example import Materialised, clipped_sums, dense_gradients

_MODELS, _BATCH = 3, 7


def _cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return -outputs.log_softmax(-1).gather(-1, y[..., None])[..., 0]


def _perceptron(tape, parameters, x):
    hidden = tape.dense(x, parameters[0], parameters[1]).tanh()
    return tape.dense(hidden, parameters[2])


@pytest.mark.parametrize("clip", [0.3, 1e6])
def test_clipped_sums_equal_clipped_gradients_of_single_examples(clip):
    torch.manual_seed(0)
    x, y = torch.randn(_MODELS, _BATCH, 5).double(), torch.randint(0, 3, (_MODELS, _BATCH))
    parameters = [torch.randn(_MODELS, *s).double() / 2 for s in ((5, 4), (1, 4), (4, 3))]
    bounds = clip * torch.tensor([1.0, 2.0, 0.5]).double()
    counted = torch.ones(_MODELS, _BATCH).double()
    counted[1, 4:] = 0
    found = dense_gradients(_perceptron, _cross_entropy)(parameters, x, y, bounds, counted)
    expected = [torch.zeros_like(parameter) for parameter in parameters]
    for model in range(_MODELS):
        for example in range(_BATCH):
            one = [p[model : model + 1].clone().requires_grad_() for p in parameters]
            hidden = (x[model, example][None, None] @ one[0] + one[1]).tanh()
            loss = _cross_entropy(hidden @ one[2], y[model, example][None, None])
            gradients = torch.autograd.grad(loss.sum(), one)
            norm = torch.cat([g.flatten() for g in gradients]).norm()
            scale = min(1.0, float(bounds[model] / norm)) * counted[model, example]
            for total, gradient in zip(expected, gradients, strict=True):
                total[model] += scale * gradient[0]
    for sums, total in zip(found, expected, strict=True):
        torch.testing.assert_close(sums, total, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_a_record_whose_norm_is_not_finite_does_not_vanish_from_the_sum(value):
    """The square of 1e30 is infinite in float32."""
    gradients, one = torch.ones(1, 4, 3), torch.ones(1, 4)
    gradients[0, 1, 2] = value
    (total,) = clipped_sums([Materialised(gradients)], [torch.zeros(1, 3)], one[0, :1], one)
    assert total.isnan().all()
