"""Clipped gradients of torch modules against plain loops over models and examples."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from privnets.differential_privacy.module_gradients import clipped_gradients
from privnets.membership.user_models.module_stacks import record_losses
from privnets.networks.image_classifiers import cnn, resnet18
from privnets.networks.module_stacks import stack_states
from tests.privnets.modules import MODULES

_MODELS, _BATCH = 2, 9


class _Module(nn.Module):
    """Module with layers and a forward pass given as a function of itself and its input."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def _make(forward, **parts):
    """Constructor of a `_Module`: parts are functions, so that each module draws its own."""
    return lambda: _Module(forward, **{name: part() for name, part in parts.items()})


def _linear(inputs, outputs, **settings):
    return lambda: nn.Linear(inputs, outputs, **settings)


def _parameter(*shape):
    return lambda: nn.Parameter(torch.randn(shape) / 2)


def _sequence(*layers):
    return lambda: nn.Sequential(*(layer() for layer in layers))


class _Attention(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.batch_first = batch_first
        self.embed, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)

    def forward(self, x):
        h = self.embed(x if self.batch_first else x.transpose(0, 1))
        h = h + self.attention(h, h, h, need_weights=False)[0]
        return self.last(h.mean(1 if self.batch_first else 0))


class _Recurrent(nn.Module):
    def __init__(self, kind, **settings):
        super().__init__()
        self.layer = kind(4, 5, **settings)
        self.last = nn.Linear(10 if settings.get("bidirectional") else 5, 3)

    def forward(self, x):
        outputs = self.layer(x if self.layer.batch_first else x.transpose(0, 1))[0]
        return self.last(outputs[:, -1] if self.layer.batch_first else outputs[-1])


class _Cells(nn.Module):
    """Recurrent network by hand, which uses each layer at every position."""

    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.GRUCell(3, 5), nn.Linear(5, 3)

    def forward(self, x):
        h = x.new_zeros(len(x), 5)
        for row in x.unflatten(1, (2, 3)).unbind(1):
            h = self.cell(row, h)
        return self.last(h)


class _Language(nn.Module):
    """Tokens with positions, and an output layer that shares the table of tokens."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(6, 4, padding_idx=0), nn.Embedding(6, 4)
        self.norm, self.last = nn.LayerNorm(4), nn.Linear(4, 6, bias=False)
        self.last.weight = self.tokens.weight

    def forward(self, x):
        index = (x * 3).abs().long().clamp(max=5)
        h = self.tokens(index) + self.positions(torch.arange(index.shape[1]))
        return self.last(self.norm(h).tanh()).mean(1)[:, :3]


class _Scripted(nn.Module):
    """Compiled layer."""

    def __init__(self):
        super().__init__()
        self.first = torch.jit.script(nn.Linear(6, 8))
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.first(x).tanh())


class _Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Sequential(nn.Linear(6, 8), nn.Tanh()), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(checkpoint(self.first, x, use_reentrant=False))


class _Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            h = self.first(x).relu()
        return self.last(h.float())


def _classifier_tokens(module, x):
    token = module.token.expand(len(x), -1, -1)
    h = torch.cat([token, module.embed(x)], dim=1) + module.place[:, : x.shape[1] + 1]
    return module.last(module.norm(h)[:, 0])


def _functional(module, x):
    return functional.linear(module.layer(x).tanh(), module.layer.weight[:3], module.bias)


def _in_place(module, x):
    return module.last(functional.relu_(module.first(x)))


def _joined(module, x):
    return module.last(module.layer(x.reshape(-1, 4)).tanh().view(len(x), -1))


def _residual(module, x):
    return module.last(x + module.first(module.norm(x)).tanh())


def _products(module, x):
    h = (x @ module.weight + module.bias).tanh() * module.scale.exp()
    return torch.einsum("bi,oi->bo", functional.prelu(h, module.slope), module.last)


def _repeated_token(module, x):
    return module.last(
        torch.cat([module.token.repeat(len(x), 1, 1), x], dim=1).cumsum(1).tanh()[:, 2]
    )


def _scaled(module, x):
    return module.last(x) / (1 + module.scale.exp())


def _mapped(module, x):
    """Calls a layer within a transformation of torch.func."""
    return module.last(torch.func.vmap(module.first)(x).tanh())


def _catching(module, x):
    try:
        h = x * module.scale.exp()
    except Exception:
        h = x
    return module.last(h)


SHARED = (
    "adapter",
    "attention",
    "frozen_in_buffers",
    "frozen_layer",
    "frozen_statistics",
    "frozen_weight",
    "shared_layer",
    "tied_weights",
)
CASES = {
    "perceptron": ((6,), _sequence(_linear(6, 4), nn.GELU, _linear(4, 3))),
    "without bias": ((6,), _linear(6, 3, bias=False)),
    "in-place activation": ((6,), _sequence(_linear(6, 8), lambda: nn.ReLU(True), _linear(8, 3))),
    "small network": ((2, 8, 8), lambda: cnn((2, 8, 8), 3, width=3)),
    "strides": (
        (1, 9, 9),
        _sequence(
            lambda: nn.Conv2d(1, 2, 5, stride=2, padding=2),
            nn.ELU,
            lambda: nn.AdaptiveAvgPool2d(2),
            nn.Flatten,
            _linear(8, 3),
        ),
    ),
    "residual": (
        (6,),
        _make(_residual, norm=lambda: nn.LayerNorm(6), first=_linear(6, 6), last=_linear(6, 3)),
    ),
    "RMS norm": (
        (6,),
        _make(_residual, norm=lambda: nn.RMSNorm(6), first=_linear(6, 6), last=_linear(6, 3)),
    ),
    "other padding": (
        (1, 6, 6),
        _sequence(lambda: nn.Conv2d(1, 2, 3), nn.Flatten, _linear(32, 3)),
    ),
    "grouped and dilated": (
        (4, 7, 6),
        _sequence(
            lambda: nn.Conv2d(
                4, 6, (3, 2), (2, 1), (2, 1), (2, 1), groups=2, padding_mode="circular"
            ),
            nn.Tanh,
            nn.Flatten,
            lambda: nn.LazyLinear(3),
        ),
    ),
    "one dimension": (
        (4, 6),
        _sequence(lambda: nn.Conv1d(4, 5, 3, padding="same"), nn.Tanh, nn.Flatten, _linear(30, 3)),
    ),
    "group norm": (
        (2, 4, 4),
        _sequence(
            lambda: nn.Conv2d(2, 4, 3, padding=1),
            lambda: nn.GroupNorm(2, 4),
            nn.Flatten,
            _linear(64, 3),
        ),
    ),
    "instance norm": (
        (2, 4, 4),
        _sequence(lambda: nn.InstanceNorm2d(2, affine=True), nn.Flatten, _linear(32, 3)),
    ),
    "transposed": (
        (2, 3, 3),
        _sequence(lambda: nn.ConvTranspose2d(2, 3, 2), nn.Flatten, _linear(48, 3)),
    ),
    "positions": (
        (5, 4),
        _sequence(_linear(4, 6), lambda: nn.LayerNorm((5, 6)), nn.Flatten, _linear(30, 3)),
    ),
    "joined records": ((5, 4), _make(_joined, layer=_linear(4, 3), last=_linear(15, 3))),
    "tied tables": ((5,), _Language),
    "used as a function": ((6,), _make(_functional, layer=_linear(6, 6), bias=_parameter(3))),
    "changes in place": ((6,), _make(_in_place, first=_linear(6, 8), last=_linear(8, 3))),
    "own parameters": (
        (6,),
        _make(
            _products,
            weight=_parameter(6, 8),
            bias=_parameter(8),
            scale=_parameter(8),
            slope=_parameter(8),
            last=_parameter(3, 8),
        ),
    ),
    "tokens": (
        (4, 6),
        _make(
            _classifier_tokens,
            token=_parameter(1, 1, 8),
            place=_parameter(1, 9, 8),
            embed=_linear(6, 8),
            norm=lambda: nn.LayerNorm(8),
            last=_linear(8, 3),
        ),
    ),
    "unused": (
        (6,),
        _make(lambda module, x: module.used(x), used=_linear(6, 3), idle=_linear(6, 3)),
    ),
    "attention": ((5, 4), lambda: _Attention(True)),
    "attention, positions first": ((5, 4), lambda: _Attention(False)),
    "repeated token": (
        (5, 4),
        _make(_repeated_token, token=_parameter(1, 1, 4), last=_linear(4, 3)),
    ),
    "catches exceptions": ((6,), _make(_catching, scale=_parameter(6), last=_linear(6, 3))),
    "mapped": ((6,), _make(_mapped, first=_linear(6, 8), last=_linear(8, 3))),
    "cells": ((6,), _Cells),
    "scalar": ((6,), _make(_scaled, scale=_parameter(), last=_linear(6, 3))),
    **{name: ((6,), partial(MODULES[name], 6, 3)) for name in SHARED},
}
# Modules that `vmap` cannot stack.
ALONE = {
    "GRU": ((5, 4), lambda: _Recurrent(nn.GRU)),
    "LSTM": (
        (5, 4),
        lambda: _Recurrent(nn.LSTM, num_layers=2, bidirectional=True, batch_first=True),
    ),
    "RNN": ((5, 4), lambda: _Recurrent(nn.RNN, batch_first=True)),
    "dropout": ((6,), _sequence(_linear(6, 16), nn.Dropout, _linear(16, 3))),
    "compiled": ((6,), _Scripted),
    "spectral norm": (
        (6,),
        lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 3))),
    ),
    "weight norm": ((6,), lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 3)))),
}


def _stacked(make, shape):
    torch.manual_seed(0)
    modules = [make() for _ in range(_MODELS)]
    x, y = torch.randn(_MODELS, _BATCH, *shape), torch.randint(0, 3, (_MODELS, _BATCH))
    for module in modules:
        module(x[0])  # sets the shapes of lazy layers
    return modules, x, y


def _clip(modules, x, y, clip, counted, vectorised):
    """Sums for each model, of a stack or of stacks of one."""
    size = _MODELS if vectorised else 1
    results = []
    torch.manual_seed(1)
    for i in range(0, _MODELS, size):
        own = slice(i, i + size)
        state = stack_states(modules[own], "cpu")
        clipped = clipped_gradients(modules[i], *state, x[own], y[own], record_losses)
        results.append(clipped(state[0], x[own], y[own], clip[own], counted[own]))
    return [torch.cat(sums) for sums in zip(*results, strict=True)]


def _examples(modules, x, y):
    """Gradients [B, ...] of each model's examples, by a graph for each of one pass on the batch."""
    torch.manual_seed(1)
    for model, module in enumerate(modules):
        own = [p for p in module.train().parameters() if p.requires_grad]
        losses = functional.cross_entropy(module(x[model]), y[model], reduction="none")
        rows = [
            torch.autograd.grad(loss, own, retain_graph=True, materialize_grads=True)
            for loss in losses
        ]
        yield [torch.stack(gradients) for gradients in zip(*rows, strict=True)]


def _check(make, shape, *, vectorised, tolerance=1e-5):
    """Compares clipped sums with those of single examples, half of which are clipped."""
    modules, x, y = _stacked(make, shape)
    counted = torch.ones(_MODELS, _BATCH)
    counted[1, 6:] = 0
    examples = list(_examples(copy.deepcopy(modules), x, y))
    norms = torch.stack(
        [sum(g.reshape(_BATCH, -1).square().sum(1) for g in own).sqrt() for own in examples]
    )
    clip = norms.median(1).values
    found = _clip(modules, x, y, clip, counted, vectorised)
    weights = counted * (clip[:, None] / norms).clamp(max=1)
    for i, sums in enumerate(found):
        for model, own in enumerate(examples):
            right = torch.einsum("b,b...->...", weights[model], own[i])
            error = (sums[model] - right).norm()
            assert error <= tolerance * right.norm() + 1e-6, (i, model, error)


_SETTINGS = {
    **{name: (*case, True) for name, case in CASES.items()},
    **{f"{name}, one by one": (*case, False) for name, case in (CASES | ALONE).items()},
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("name", _SETTINGS)
def test_sums_of_clipped_gradients_equal_those_of_a_loop_over_examples(name):
    shape, make, vectorised = _SETTINGS[name]
    _check(make, shape, vectorised=vectorised)


def test_half_precision_is_clipped_up_to_its_rounding():
    _check(_Autocast, (6,), vectorised=False, tolerance=0.02)


def _centred(module, x):
    return module.last(x - 0.002 * x.mean(0))


def _centred_in_training(module, x):
    h = module.drop(x)
    return module.last(h - 0.002 * x.mean(0) if module.training else h)


def _remembering(module, x):
    if module.training:
        module.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
    return module.last(x - module.mean)


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (lambda: resnet18((3, 8, 8), 2, width=2), (3, 8, 8), r"layer 0.1 is a BatchNorm2d"),
        (_make(_centred, last=_linear(6, 3)), (6,), "depend on the other records of its batch"),
        (
            _make(_centred_in_training, drop=nn.Dropout, last=_linear(6, 3)),
            (6,),
            "depend on the other records of its batch",
        ),
        (
            _make(_remembering, last=_linear(6, 3), mean=lambda: nn.Buffer(torch.zeros(6))),
            (6,),
            "training changes buffer mean by its records",
        ),
        (
            _sequence(
                lambda: nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten, _linear(12, 3)
            ),
            (2, 6),
            "training changes buffer 0.running_mean by its records",
        ),
    ],
)
def test_modules_that_mix_records_are_refused_before_training(make, shape, message):
    modules, x, y = _stacked(make, shape)
    state = stack_states(modules[:1], "cpu")
    with pytest.raises(ValueError, match=message):
        clipped_gradients(modules[0], *state, x[:1], y[:1], record_losses)


def test_an_input_changed_after_its_layer_is_refused_as_in_plain_torch():
    def forward(module, x):
        h = x + 1
        y = module.last(h)
        h.zero_()
        return y

    modules, x, y = _stacked(_make(forward, last=_linear(6, 3)), (6,))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        clipped_gradients(modules[0], *stack_states(modules, "cpu"), x, y, record_losses)


def test_dropout_draws_another_mask_for_each_example_and_step():
    modules, x, y = _stacked(_sequence(lambda: nn.Dropout(0.5), _linear(6, 3)), (6,))
    parameters, _ = stack_states(modules[:1], "cpu")
    same = x[:1, :1].expand(1, _BATCH, 6), y[:1, :1].expand(1, _BATCH)
    clipped = clipped_gradients(modules[0], parameters, {}, *same, record_losses)
    modules[0].eval()  # as at checkpoints of training
    settings = torch.tensor([1e6]), torch.eye(_BATCH)[:, None]
    draws = torch.stack([clipped(parameters, *same, settings[0], one)[0][0] for one in settings[1]])
    dropped = draws.abs().sum(1) == 0
    assert len(dropped.unique(dim=0)) > 1
    assert 0.2 < dropped.float().mean() < 0.8


class _Branches(nn.Module):
    """Chooses its input by the sum of the batch."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.first(x if x.sum() > 0 else -x).tanh())


def _numpy_noise(module, x):
    noise = torch.from_numpy(np.random.standard_normal(x.shape)).float()
    return module.last(x + 0.1 * noise)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_Branches, "cannot map _Branches over records .*data-dependent control flow"),
        (_Checkpointed, "cannot map _Checkpointed over records .*saved tensor hooks"),
        (
            _make(_numpy_noise, last=_linear(6, 3)),
            "_Module draws random numbers that are not",
        ),
    ],
)
def test_modules_that_cannot_be_mapped_are_refused_by_name(make, message):
    modules, x, y = _stacked(make, (6,))
    with pytest.raises(ValueError, match=message):
        _private(modules[0], x.abs(), y)  # no record takes another branch


def _private(module, x, y):
    """Step of one model without a limit on gradients, and its buffers."""
    parameters, buffers = stack_states([module], "cpu")
    clipped = clipped_gradients(module, parameters, buffers, x[:1], y[:1], record_losses)
    unlimited, counted = torch.full((1,), 1e6), torch.ones(1, _BATCH)
    return lambda records: clipped(parameters, records, y[:1], unlimited, counted), buffers


def _largest_in_place(module, x):
    module.top.copy_(torch.maximum(module.top, x.detach().abs().max()))
    return module.last(x / module.top)


def _largest(module, x):
    module.top = torch.maximum(module.top, x.detach().abs().max())
    return module.last(x / module.top)


def _largest_in_numbers(module, x):
    module.top.data = torch.maximum(module.top.data, x.detach().abs().max())
    return module.last(x / module.top)


@pytest.mark.parametrize(
    ("forward", "kind"),
    [
        (_largest_in_place, nn.Buffer),
        (_largest, nn.Buffer),
        (_largest_in_numbers, nn.Buffer),
        (_largest_in_place, partial(nn.Parameter, requires_grad=False)),
    ],
)
def test_a_buffer_that_only_an_unusual_record_would_change_is_refused(forward, kind):
    """The records that are tried are too small to change it."""
    parts = {"last": _linear(6, 3), "top": lambda: kind(torch.full((), 10.0))}
    modules, x, y = _stacked(_make(forward, **parts), (6,))
    with pytest.raises(ValueError, match="cannot map _Module over records"):
        _private(modules[0], x, y)
    assert modules[0].top.item() == 10


def _counting(module, x):
    module.steps = module.steps + 1
    return module.last(x * module.steps)


def _counting_in_place(module, x):
    module.steps += 1
    return module.last(x * module.steps)


@pytest.mark.parametrize("forward", [_counting, _counting_in_place])
def test_buffers_that_no_record_changes_may_change_once_in_a_step(forward):
    parts = {"last": _linear(6, 3), "steps": lambda: nn.Buffer(torch.zeros(()))}
    modules, x, y = _stacked(_make(forward, **parts), (6,))
    modules[0].steps.zero_()
    step, buffers = _private(modules[0], x, y)
    for _ in range(3):
        step(x[:1])
    assert buffers["steps"].item() == 3


def test_records_in_several_chunks_add_up_and_change_buffers_once():
    """A CPU takes at most 512 records at once."""
    parts = {"last": _linear(6, 3), "steps": lambda: nn.Buffer(torch.zeros(()))}
    module, count = _make(_counting_in_place, **parts)(), 1025
    x, y = torch.randn(1, count, 6), torch.randint(0, 3, (1, count))
    parameters, buffers = stack_states([module], "cpu")
    clipped = clipped_gradients(module, parameters, buffers, x, y, record_losses)
    weights = torch.rand(1, count)
    sums = clipped(parameters, x, y, torch.full((1,), 1e6), weights)
    assert buffers["steps"].item() == 1
    losses = functional.cross_entropy(module(x[0]), y[0], reduction="none")
    expected = torch.autograd.grad((weights[0] * losses).sum(), list(module.parameters()))
    for found, right in zip(sums, expected, strict=True):
        torch.testing.assert_close(found[0], right, rtol=1e-4, atol=1e-4)


def test_a_step_that_changes_a_buffer_by_records_for_the_first_time_fails():
    def forward(module, x):
        module.steps += 1
        if module.steps > 2:
            module.centre = x.detach().mean(0)
        return module.last(x - module.centre)

    parts = {
        "steps": lambda: nn.Buffer(torch.zeros(())),
        "centre": lambda: nn.Buffer(torch.zeros(6)),
    }
    modules, x, y = _stacked(_make(forward, last=_linear(6, 3), **parts), (6,))
    modules[0].steps.zero_()
    step, buffers = _private(modules[0], x, y)
    step(x[:1])
    step(x[:1])
    with pytest.raises(ValueError, match="can not return a BatchedTensor"):
        step(x[:1])
    assert not buffers["centre"].any()


def _twice(module, x):
    return module.last(module.first(module.first(x)))


def _at_two_positions(module, x):
    return module.last(module.first(torch.stack([x, 2 * x], 1)).sum(1))


def _not_at_all(module, x):
    return module.last(x)


@pytest.mark.parametrize("later", [_twice, _at_two_positions, _not_at_all])
def test_a_step_that_calls_a_dense_layer_otherwise_than_the_first_fails(later):
    """The gradient of such a layer would not be the product that the first pass found."""

    def forward(module, x):
        module.steps += 1
        return later(module, x) if module.steps > 1 else module.last(module.first(x))

    parts = {"first": _linear(6, 6), "last": _linear(6, 3)}
    make = _make(forward, steps=lambda: nn.Buffer(torch.zeros(())), **parts)
    modules, x, y = _stacked(make, (6,))
    modules[0].steps.zero_()
    step, _ = _private(modules[0], x, y)
    step(x[:1])
    with pytest.raises(ValueError, match="a dense layer is called otherwise"):
        step(x[:1])


def test_a_buffer_of_nan_is_not_a_change():
    parts = {"last": _linear(6, 3), "unset": lambda: nn.Buffer(torch.full((2,), torch.nan))}
    modules, x, y = _stacked(_make(lambda module, x: module.last(x), **parts), (6,))
    step, buffers = _private(modules[0], x, y)
    step(x[:1])
    assert buffers["unset"].isnan().all()


class _Meter:
    def __init__(self):
        self.total = 0.0


def _moving_number(module, x):
    module.state = 0.9 * module.state + 0.1 * float(x.detach().mean())
    return module.last(x)


def _moving_tensor(module, x):
    module.state.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
    return module.last(x)


def _new_tensor(module, x):
    module.state = torch.maximum(module.state, x.detach().max())
    return module.last(x)


def _collecting(module, x):
    module.state.append(x.detach().clone())
    return module.last(x)


def _metering(module, x):
    module.state.total += float(x.detach().sum())
    return module.last(x)


@pytest.mark.parametrize(
    ("forward", "state"),
    [
        (_moving_number, float),
        (_moving_tensor, lambda: torch.zeros(6)),
        (_new_tensor, lambda: torch.full((), 1e6)),
        (_collecting, list),
        (_metering, _Meter),
    ],
)
def test_attributes_that_change_in_training_are_refused_by_name(forward, state):
    modules, x, y = _stacked(_make(forward, last=_linear(6, 3), state=state), (6,))
    with pytest.raises(ValueError, match="training changes attribute state; "):
        _private(modules[0], x, y)


def test_an_attribute_that_only_an_unusual_record_would_change_is_refused():
    def forward(module, x):
        if x.abs().max() > module.state:
            module.state = float(x.abs().max())
        return module.last(x)

    modules, x, y = _stacked(_make(forward, last=_linear(6, 3), state=lambda: 10.0), (6,))
    with pytest.raises(ValueError, match="cannot map _Module over records"):
        _private(modules[0], x, y)


def _hook_on_parameter(module):
    module[0].weight.register_hook(lambda gradient: 0 * gradient)


def _hook_after_parameter(module):
    module[0].weight.register_post_accumulate_grad_hook(lambda parameter: None)


def _hook_on_layer(module):
    module[1].register_full_backward_hook(lambda layer, inputs, outputs: None)


def _hook_before_layer(module):
    module[1].register_full_backward_pre_hook(lambda layer, outputs: None)


@pytest.mark.parametrize(
    ("register", "words"),
    [
        (_hook_on_parameter, "parameter 0.weight has a hook on its gradient"),
        (_hook_after_parameter, "parameter 0.weight has a hook on its gradient"),
        (_hook_on_layer, "layer 1 has a hook on its backward pass"),
        (_hook_before_layer, "layer 1 has a hook on its backward pass"),
    ],
)
def test_hooks_on_gradients_are_refused_by_name(register, words):
    make = _sequence(_linear(6, 8), nn.ReLU, _linear(8, 3))
    modules, x, y = _stacked(make, (6,))
    register(modules[0])
    with pytest.raises(ValueError, match=words):
        _private(modules[0], x, y)
