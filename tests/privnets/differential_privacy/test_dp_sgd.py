"""DP-SGD: sampling, noise, and independence of the stack."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from privnets.differential_privacy.dp_sgd import PrivateSchedule, poisson_batches, train_privately
from privnets.differential_privacy.per_example import dense_gradients
from privnets.networks.training import StackedAdam
from privnets.randomness import generator

_RECORDS = 40


def _linear(tape, parameters, x):
    return tape.dense(x, parameters[0], parameters[1])


def _squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs[..., 0] - y).square()


def _schedule(models: int, steps: int = 20, rate: float = 0.2, noise=1.0, **fields):
    settings = {"clip": 1.0, "noise_multiplier": noise, "weight_decay": 0.01} | fields
    tensors = {name: torch.tensor(value).expand(models) for name, value in settings.items()}
    return PrivateSchedule(steps, rate, **tensors)


def _train(seeds: list[int], schedule: PrivateSchedule) -> list[Tensor]:
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.standard_normal((3, _RECORDS, 4))).float()[seeds]
    y = x.sum(-1) + 1
    start = [torch.zeros(len(seeds), 4, 1), torch.zeros(len(seeds), 1, 1)]
    optimiser = StackedAdam(start, torch.full((len(seeds),), 0.05))
    randoms = [generator(seed, "test") for seed in seeds]
    gradients = dense_gradients(_linear, _squared_error)
    train_privately(optimiser, gradients, x, y, schedule, randoms)
    return optimiser.parameters


def test_a_model_does_not_depend_on_its_stack():
    stacked = _train([0, 1, 2], _schedule(3))
    for seed in range(3):
        for alone, together in zip(_train([seed], _schedule(1)), stacked, strict=True):
            torch.testing.assert_close(alone[0], together[seed], rtol=1e-4, atol=1e-5)


def test_without_noise_clipping_or_sampling_it_is_plain_descent():
    found = _train([1], _schedule(1, rate=1.0, noise=0.0, clip=1e6))
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.standard_normal((3, _RECORDS, 4))).float()[1]
    weight, bias = torch.zeros(4, 1, requires_grad=True), torch.zeros(1, 1, requires_grad=True)
    optimiser = torch.optim.Adam([weight, bias], 0.05)
    for _ in range(20):
        loss = (x @ weight + bias - (x.sum(-1) + 1)[:, None]).square().mean()
        (loss + 0.01 * (weight.square().sum() + bias.square().sum())).backward()
        optimiser.step()
        optimiser.zero_grad()
    torch.testing.assert_close(found[0][0], weight.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1][0], bias.detach(), rtol=1e-4, atol=1e-5)


def test_batches_are_independent_inclusions_of_each_record():
    draws, rate, size = 4000, 0.3, 5
    randoms = [generator(seed, "batches") for seed in range(draws)]
    index, counted = poisson_batches(randoms, size, rate)
    taken = np.zeros((draws, size))
    for row, batch, mask in zip(taken, index.numpy(), counted.numpy(), strict=True):
        np.add.at(row, batch[mask > 0], 1)
    assert taken.max() == 1
    # Standard errors of shares and of covariances between records are below 0.0075.
    np.testing.assert_allclose(taken.mean(0), rate, atol=0.03)
    np.testing.assert_allclose(np.cov(taken.T), rate * (1 - rate) * np.eye(size), atol=0.03)


def test_noise_has_the_scale_that_the_accountant_assumes():
    """Noise on the mean gradient: multiplier times clip over the expected size of a batch.

    It is independent between models and between steps.
    """

    class Recorder:
        parameters = (torch.zeros(2, 5000),)
        steps = ()

        def step(self, gradients, scale):
            self.steps = (*self.steps, gradients[0])

    recorder = Recorder()
    schedule = _schedule(2, steps=2, noise=[3.0, 1.0], clip=[2.0, 0.5], rate=0.5)
    x, y = torch.zeros(2, _RECORDS, 1), torch.zeros(2, _RECORDS)
    randoms = [generator(seed, "noise") for seed in range(2)]
    train_privately(
        recorder, lambda parameters, *_: [torch.zeros(2, 5000)], x, y, schedule, randoms
    )
    noise = torch.stack(recorder.steps)
    # Over 5,000 numbers a deviation has a relative standard error of 1%, a correlation of 0.014.
    expected = np.array([3.0 * 2.0, 1.0 * 0.5]) / (0.5 * _RECORDS)
    np.testing.assert_allclose(noise.std(2), [expected] * 2, rtol=0.05)
    np.testing.assert_allclose(torch.corrcoef(noise.flatten(0, 1)), np.eye(4), atol=0.06)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip": 0.0}, "clip must be above 0; got"),
        ({"clip": -1.0}, "clip must be above 0; got"),
        ({"rate": 1.2}, "sample_rate must be above 0 and at most 1; got 1.2"),
        ({"noise": -1.0}, "noise_multiplier must be at least 0; got"),
        ({"steps": 0}, "steps must be at least 1; got 0"),
    ],
)
def test_schedule_refuses_settings_out_of_range(change, message):
    with pytest.raises(ValueError, match=message):
        _schedule(1, **change)
