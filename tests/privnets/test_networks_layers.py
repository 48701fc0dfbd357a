"""Networks against torch.nn's modules with the same numbers in them, and how they start."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from privnets.networks.convolution import (
    ConvolutionalClassifier,
    convolve,
    encode_grouped,
    encode_innermost,
    initial_encoder,
)
from privnets.networks.layers import stack_parameters
from privnets.networks.mlp import Perceptron, forward
from privnets.networks.recurrent import Recurrent, network_by_network, step_by_step

_ACTIVATIONS = {"relu": nn.ReLU(), "leaky": nn.LeakyReLU(0.1), "tanh": nn.Tanh()}


def _parameters(network) -> list[Tensor]:
    """Parameters of a stack of two, with non-zero biases."""
    random = np.random.default_rng(0)
    parameters = stack_parameters([network.initial(random) for _ in range(2)])
    return [p + 0.1 * torch.from_numpy(random.standard_normal(p.shape)).float() for p in parameters]


def _x(*shape: int) -> Tensor:
    return torch.rand(2, 5, *shape, generator=torch.Generator().manual_seed(0))


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(*weight.shape)
    layer.load_state_dict({"weight": weight.T, "bias": bias[0]})
    return layer


def _convolution(weight: Tensor, bias: Tensor, stride: int) -> nn.Conv2d:
    outputs, inputs, kernel, _ = weight.shape
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


def _lstm(body: Sequence[Tensor], layers: int, bidirectional: bool) -> nn.LSTM:
    gates, inputs = body[0].shape
    module = nn.LSTM(inputs, gates // 4, layers, batch_first=True, bidirectional=bidirectional)
    given = iter(body)
    for name, parameter in module.named_parameters():
        parameter.data.copy_(torch.zeros(gates) if name.startswith("bias_hh") else next(given))
    return module


class _Steps(nn.Module):
    """A linear head on the states of an LSTM."""

    def __init__(self, lstm: nn.LSTM, head: nn.Linear) -> None:
        super().__init__()
        self.lstm, self.head = lstm, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])


def _assert_same(network, modules: Sequence[nn.Module], parameters: list[Tensor], x: Tensor):
    """A stack gives the modules' outputs, and pulls at its input as they do."""
    x.requires_grad_()
    found = network.forward(parameters, x)
    expected = torch.stack([module(own) for module, own in zip(modules, x, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    pulls = [torch.autograd.grad(outputs.square().sum(), x)[0] for outputs in (found, expected)]
    torch.testing.assert_close(*pulls, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", list(_ACTIVATIONS))
def test_a_perceptron_is_linear_layers_with_activations_between(activation):
    network, between = Perceptron((6, 5, 4, 3), activation), _ACTIVATIONS[activation]
    parameters = _parameters(network)
    modules = []
    for s in range(2):
        first, second, last = (_linear(*(p[s] for p in parameters[i : i + 2])) for i in (0, 2, 4))
        modules.append(nn.Sequential(first, between, second, between, last))
    _assert_same(network, modules, parameters, _x(6))


@pytest.mark.parametrize("activation", list(_ACTIVATIONS))
@pytest.mark.parametrize("shared", [False, True])
def test_closed_gradients_of_a_perceptron_are_the_slopes_of_its_outputs(activation, shared):
    random = torch.Generator().manual_seed(0)
    shapes = [(3, 4, 5), (3, 1, 5), (3, 5, 4), (3, 1, 4), (3, 4, 2), (3, 1, 2)]
    x = torch.randn(*([] if shared else [3]), 6, 4, generator=random, dtype=torch.float64)
    parameters = [torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]
    leaves = [tensor.requires_grad_() for tensor in (x, *parameters)]
    assert torch.autograd.gradcheck(lambda x, *p: forward(p, x, activation), leaves)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (4,), (1, 2), (0, 4)])
def test_a_perceptron_computes_only_requested_gradients(wanted):
    random = torch.Generator().manual_seed(0)
    shapes = [(2, 6, 3), (2, 3, 4), (2, 1, 4), (2, 4, 2), (2, 1, 2)]
    tensors = [torch.randn(shape, generator=random) for shape in shapes]
    gradients = []
    for chosen in (wanted, range(5)):
        leaves = [t.clone().requires_grad_(i in chosen) for i, t in enumerate(tensors)]
        outputs = forward(leaves[1:], leaves[0], "leaky").square().sum()
        found = torch.autograd.grad(outputs, [leaves[i] for i in chosen])
        gradients.append(dict(zip(chosen, found, strict=True)))
    for i in wanted:
        assert torch.equal(gradients[0][i], gradients[1][i])


@pytest.mark.parametrize("larger", [False, True])
@pytest.mark.parametrize("side", [8, 13, 28])
def test_a_classifier_is_convolutions_and_linear_layers(side, larger):
    network = ConvolutionalClassifier(side, 4, 3, larger)
    parameters = _parameters(network)
    modules = []
    for s in range(2):
        *body, weight, bias, last_weight, last_bias = (p[s] for p in parameters)
        layers: list[nn.Module] = []
        for i, stride in enumerate((2, 2, 1)[: len(body) // 2]):
            layers += [_convolution(*body[2 * i : 2 * i + 2], stride), nn.LeakyReLU(0.1)]
        dense = [_linear(weight, bias), nn.LeakyReLU(0.1), _linear(last_weight, last_bias)]
        modules.append(nn.Sequential(*layers, nn.Flatten(), *dense))
    _assert_same(network, modules, parameters, _x(1, side, side))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_gradients_of_a_stacked_convolution_are_those_of_convolutions(kernel, stride):
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 4, 3, kernel, kernel, generator=random).requires_grad_()
    bias, x = torch.randn(2, 4, generator=random).requires_grad_(), _x(3, 9, 9)
    ours = torch.autograd.grad(convolve(x, weight, bias, stride).square().sum(), [weight, bias])
    for s in range(2):
        layer = _convolution(weight[s].detach(), bias[s].detach(), stride)
        theirs = torch.autograd.grad(layer(x[s]).square().sum(), list(layer.parameters()))
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one[s], other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("trained", [slice(None), slice(-1, None)])  # all, or the images alone
@pytest.mark.parametrize(("networks", "dtype"), [(2, torch.float64), (5, torch.float32)])
def test_forms_of_an_encoder_have_equal_outputs_and_gradients(channels, trained, networks, dtype):
    """Also for more networks than are convolved together."""
    random = np.random.default_rng(0)
    stack = stack_parameters([initial_encoder(random, 4, channels) for _ in range(networks)])
    images = torch.from_numpy(random.standard_normal((networks, 5, channels, 13, 13)))
    tensors = [t.to(dtype) for t in (*stack, images)]
    leaves = [t.requires_grad_() for t in tensors[trained]]
    found = []
    forms = [partial(encode_innermost, together=size) for size in (1, 2, 8)]
    for form in (encode_grouped, *forms):
        features = form(tensors[:-1], tensors[-1], (2, 1))
        found.append([features, *torch.autograd.grad(features.square().sum(), leaves)])
    first, *others = found
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_recurrent_network_is_an_lstm_with_a_linear_head(bidirectional):
    network = Recurrent(3, 4, 3, 2, bidirectional)
    parameters = _parameters(network)
    modules = []
    for s in range(2):
        *body, weight, bias = (p[s] for p in parameters)
        modules.append(_Steps(_lstm(body, 3, bidirectional), _linear(weight, bias)))
    _assert_same(network, modules, parameters, _x(7, 3))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_both_forms_of_the_lstm_have_the_same_states_and_gradients(bidirectional):
    body = [p.requires_grad_() for p in _parameters(Recurrent(3, 4, 3, 2, bidirectional))[:-2]]
    x = _x(7, 3).requires_grad_()
    results = []
    for form in (network_by_network, step_by_step):
        states = form(body, x, bidirectional)
        results.append([states, *torch.autograd.grad(states.square().sum(), [x, *body])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", [network_by_network, step_by_step])
def test_an_lstm_is_causal_unless_bidirectional(form):
    for bidirectional in (False, True):
        body = _parameters(Recurrent(3, 4, 2, 1, bidirectional))[:-2]
        x = _x(7, 3)
        before = form(body, x, bidirectional)
        x[:, :, 4:] += 1
        after = form(body, x, bidirectional)
        assert torch.equal(before[:, :, :4], after[:, :, :4]) is not bidirectional
        assert (before[:, :, 4:] != after[:, :, 4:]).any()


@pytest.mark.parametrize("activation", ["relu", "leaky"])
def test_rectified_networks_start_with_the_mean_square_of_their_input(activation):
    network = Perceptron((256, *[256] * 8, 256), activation)
    parameters = stack_parameters([network.initial(np.random.default_rng(0))])
    x = torch.randn(1, 500, 256, generator=torch.Generator().manual_seed(0))
    outputs = network.forward(parameters, x).square().mean()
    # The first layer makes up for a rectifier that is not before it, the last does not for the one
    # that is. Over nine layers of 256 units the logarithm wanders by about sqrt(9 * 5 / 256).
    assert abs(float(outputs.log())) < 3 * np.sqrt(9 * 5 / 256)


def test_initial_lstm_weights_are_bounded_and_remember():
    weights, _, bias, *_ = Recurrent(3, 64, 2, 2).initial(np.random.default_rng(0))
    assert 0.9 / 8 < weights.abs().max() < 1 / 8
    assert torch.equal(bias.view(4, 64)[:, 0], torch.tensor([0.0, 1.0, 0.0, 0.0]))
