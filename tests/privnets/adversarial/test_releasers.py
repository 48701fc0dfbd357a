"""Releases of each releaser as functions of the record, its noise and other inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from privnets.adversarial.records import MISSING, Minibatch
from privnets.adversarial.training.releasers import (
    EncoderDecoder,
    FaderReleaser,
    LinearFilter,
    PerceptronReleaser,
    RecurrentReleaser,
    UNetReleaser,
)
from privnets.networks.layers import stack_parameters
from privnets.networks.training import StackedAdam
from privnets.randomness import stream_key

_RELEASERS = {
    "linear": (LinearFilter(2), (2,)),
    "perceptron": (PerceptronReleaser((3,), 8), (3,)),
    "perceptron-pixels": (PerceptronReleaser((1, 8, 8), 8, pixels=True), (1, 8, 8)),
    "encoder-decoder": (EncoderDecoder(28, 8), (1, 28, 28)),
    "encoder-decoder-colour": (EncoderDecoder(8, 8, channels=3), (3, 8, 8)),
    "encoder-decoder-code": (EncoderDecoder(8, 8, pixel_noise=0), (1, 8, 8)),
    "unet": (UNetReleaser(16, 4, classes=2), (3, 16, 16)),
    "fader": (FaderReleaser(16, 4), (3, 16, 16)),
    "recurrent": (RecurrentReleaser(2, 2, 8, 2), (6, 1)),
}
_each = pytest.mark.parametrize(("releaser", "record"), _RELEASERS.values(), ids=list(_RELEASERS))


def _parameters(releaser, networks: int = 2) -> list[Tensor]:
    """A stack whose weights all differ from their initial values, so that each of them matters."""
    random = np.random.default_rng(0)
    parameters = stack_parameters([releaser.initial(random) for _ in range(networks)])
    return [p + 0.1 * torch.from_numpy(random.standard_normal(p.shape)).float() for p in parameters]


def _noise(releaser, record: tuple[int, ...], n: int, networks: int = 2, seed: int = 0) -> Tensor:
    keys = [stream_key(seed, f"network {i}") for i in range(networks)]
    return torch.cat([*releaser.record_noise(keys, torch.ones(networks), (n, *record))], 1)


def _batch(releaser, record: tuple[int, ...], n: int = 5) -> Minibatch:
    random = torch.Generator().manual_seed(0)
    steps = record[0]
    return Minibatch(
        x=torch.rand(2, n, *record, generator=random),
        noise=_noise(releaser, record, n),
        secret=torch.randint(2, (2, n, steps), generator=random),
        side=torch.rand(2, n, steps, 2, generator=random),
    )


@_each
def test_a_release_has_the_shape_of_the_record_and_depends_on_the_noise(releaser, record):
    parameters, given = _parameters(releaser), _batch(releaser, record)
    one = releaser.release(parameters, given)
    other = releaser.release(parameters, replace(given, noise=-given.noise))
    assert one.shape == given.x.shape
    assert ((one - other).abs().flatten(2).amax(-1) > 1e-4).all()
    assert torch.equal(one, releaser.release(parameters, given))


@_each
def test_noise_changes_its_own_record_only(releaser, record):
    parameters, given = _parameters(releaser), _batch(releaser, record)
    before = releaser.release(parameters, given)
    given.noise[:, 2] += 1
    moved = (releaser.release(parameters, given) - before).abs().flatten(2).amax(-1)
    assert (moved[:, 2] > 1e-4).all()
    assert (moved[:, [0, 1, 3, 4]] < 1e-5).all()


@_each
def test_noise_depends_on_key_and_place_and_has_the_moments_of_its_law(releaser, record):
    whole, other = (_noise(releaser, record, 3000, 1, seed) for seed in range(2))
    assert torch.equal(whole[:, :2000], _noise(releaser, record, 2000, 1))
    uniform = isinstance(releaser, RecurrentReleaser)
    mean, std = (0.5, 12**-0.5) if uniform else (0.0, 1.0)
    tolerance = 5 / whole.numel() ** 0.5
    for numbers in (whole, other):
        assert abs(float(numbers.mean()) - mean) < std * tolerance
        assert abs(float(numbers.std()) - std) < std * tolerance
        assert not uniform or 0 <= numbers.min() <= numbers.max() < 1
    assert abs(float(torch.corrcoef(torch.stack([whole, other]).flatten(1))[0, 1])) < tolerance


@pytest.mark.parametrize("name", ["perceptron-pixels", "encoder-decoder", "encoder-decoder-code"])
def test_released_pixels_are_in_0_to_1_for_any_noise(name):
    releaser, record = _RELEASERS[name]
    given = _batch(releaser, record)
    given.noise.mul_(100)
    released = releaser.release([50 * p for p in _parameters(releaser)], given)
    assert 0 <= released.min() <= released.max() <= 1


def test_a_linear_filter_gives_theta_x_plus_the_noise():
    releaser = LinearFilter(2)
    theta = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[0.0, 1.0], [-1.0, 0.0]]])
    x = torch.tensor([1.0, 10.0]).expand(2, 1, 2)
    noise = torch.tensor([[[0.5, 0.25]], [[0.0, 0.0]]])
    batch = Minibatch(x, torch.zeros(2, 1), noise=noise)
    released = releaser.release([theta], batch)
    assert released.tolist() == [[[21.5, 43.25]], [[10.0, -1.0]]]


def test_the_encoder_decoder_equals_its_layers_in_pytorch():
    releaser = EncoderDecoder(8, 8, pixel_noise=0.5)
    parameters, given = _parameters(releaser), _batch(releaser, (1, 8, 8))
    found = releaser.release(parameters, given)
    for s in range(2):
        w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = (p[s] for p in parameters)
        leaky = nn.LeakyReLU(0.1)
        maps = leaky(nn.functional.conv2d(given.x[s], w1, b1, stride=2, padding=2))
        maps = leaky(nn.functional.conv2d(maps, w2, b2, stride=2, padding=1))
        code = torch.tanh(maps.flatten(1) @ w3 + b3) + given.noise[s, :, :8]
        pixels = torch.sigmoid(leaky(code @ w4 + b4) @ w5 + b5)
        pixels = (pixels + 0.5 * given.noise[s, :, 8:]).clamp(0, 1)
        torch.testing.assert_close(found[s], pixels.view(-1, 1, 8, 8), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["perceptron", "encoder-decoder"])
def test_a_releaser_of_images_learns_to_copy(name):
    """Below a tenth of the error of the mean image, with weak noise."""
    record = (1, 8, 8)
    perceptron = PerceptronReleaser(record, 64, pixels=True)
    network = perceptron if name == "perceptron" else EncoderDecoder(8, 64)
    random = torch.Generator().manual_seed(0)
    # Images of four numbers each: bars of any brightness.
    bars = torch.rand(1, 64, 1, 1, 4, generator=random)
    x = bars.repeat_interleave(2, -1).expand(-1, -1, 1, 8, -1)
    parameters = stack_parameters([network.initial(np.random.default_rng(0))])
    parameters = [p.requires_grad_() for p in parameters]
    adam = StackedAdam(parameters, torch.tensor([3e-3]))
    for step in range(300):
        noise = 0.05 * _noise(network, record, 64, 1, seed=step)
        batch = Minibatch(x, torch.zeros(1, 64), noise=noise)
        released = network.release(parameters, batch)
        loss = (released - x).square().mean()
        adam.step(torch.autograd.grad(loss, parameters))
    assert loss < 0.1 * (x - x.mean(1)).square().mean()


def test_a_recurrent_releaser_starts_by_releasing_the_record_itself():
    releaser = RecurrentReleaser(2, 2)
    parameters = stack_parameters([releaser.initial(np.random.default_rng(s)) for s in range(2)])
    given = _batch(releaser, (24, 1))
    assert torch.equal(releaser.release(parameters, given), given.x)


def test_a_recurrent_releaser_can_learn_to_release_zeros():
    """Trained to release zeros, starting from the record itself."""
    releaser = RecurrentReleaser(2, 2, 16, 2)
    parameters = stack_parameters([releaser.initial(np.random.default_rng(0))])
    parameters = [p.requires_grad_() for p in parameters]
    pair = _batch(releaser, (8, 1), 64)
    given = Minibatch(pair.x[:1], pair.secret[:1], side=pair.side[:1], noise=pair.noise[:1])
    adam = StackedAdam(parameters, torch.tensor([1e-2]))
    for _ in range(150):
        released = releaser.release(parameters, given)
        adam.step(torch.autograd.grad(released.square().mean(), parameters))
    assert released.var() < 0.02 * given.x.var()


@pytest.mark.parametrize("what", ["x", "noise", "secret", "side"])
def test_a_recurrent_releaser_is_causal(what):
    releaser, record = _RELEASERS["recurrent"]
    parameters, given = _parameters(releaser), _batch(releaser, record)
    before = releaser.release(parameters, given)
    values = getattr(given, what)
    values[:, :, 3:] = 1 - values[:, :, 3:]
    after = releaser.release(parameters, given)
    assert torch.equal(before[:, :, :3], after[:, :, :3])
    assert (before[:, :, 3:] - after[:, :, 3:]).abs().max() > 1e-4


def test_a_missing_secret_enters_as_no_class():
    """It enters as zeros, so weights that only classes use do not change its release."""
    releaser, record = _RELEASERS["recurrent"]
    parameters, given = _parameters(releaser), _batch(releaser, record)
    altered = [p.clone() for p in parameters]
    altered[0][..., 1:3] += 1
    given.secret[:, 0] = MISSING
    before = releaser.release(parameters, given)
    after = releaser.release(altered, given)
    assert torch.equal(before[:, 0], after[:, 0])
    assert (before[:, 1:] - after[:, 1:]).abs().flatten(2).amax(-1).min() > 1e-4


def test_a_unet_learns_to_copy_images_and_to_keep_their_utility_label():
    """Images of one of two colours, which is the label."""
    releaser, random = UNetReleaser(16, 4, classes=2), torch.Generator().manual_seed(0)
    label = torch.randint(2, (1, 32), generator=random)
    x = 0.2 * torch.rand(1, 32, 3, 16, 16, generator=random) + 0.7 * label[..., None, None, None]
    noise = torch.randn(1, 32, *releaser.noise_shape((3, 16, 16)), generator=random)
    batch = Minibatch(x, label, utility=label, noise=noise)
    parameters = stack_parameters([releaser.initial(np.random.default_rng(0))])
    adam = StackedAdam([p.requires_grad_() for p in parameters], torch.tensor([1e-2]))
    losses = []
    for _ in range(40):
        loss = releaser.copying_loss(parameters, batch)
        losses.append(loss.item())
        adam.step(torch.autograd.grad(loss.sum(), parameters))
    assert losses[-1] < 0.25 < 0.8 < losses[0]
    release = releaser.release(parameters, batch)
    assert (release - x).square().mean().sqrt() < 0.2
    assert release.min() >= 0
    assert release.max() <= 1


def test_a_fader_network_copies_what_is_not_secret_and_releases_no_secret():
    """The secret is the red of an image; its green is free."""
    releaser, random = FaderReleaser(16, 4), torch.Generator().manual_seed(0)
    secret, green = torch.arange(32)[None] % 2, torch.rand(1, 32, generator=random)
    x = 0.1 * torch.rand(1, 32, 3, 16, 16, generator=random)
    x[:, :, 0] += 0.8 * secret[..., None, None]
    x[:, :, 1] += 0.8 * green[..., None, None]
    batch = Minibatch(x, secret, noise=torch.zeros(1, 32, *releaser.noise_shape((3, 16, 16))))
    parameters = stack_parameters([releaser.initial(np.random.default_rng(0))])
    adam = StackedAdam([p.requires_grad_() for p in parameters], torch.tensor([2e-3]), (0.5, 0.999))
    for _ in range(200):
        loss = releaser.copying_loss(parameters, batch).sum()
        adam.step(torch.autograd.grad(loss, parameters))
    released = releaser.release(parameters, batch)[0].detach().mean((-2, -1))
    red = released[:, 0]
    assert abs(red[::2].mean() - red[1::2].mean()) < 0.1
    assert torch.corrcoef(torch.stack([released[:, 1], green[0]]))[0, 1] > 0.8
