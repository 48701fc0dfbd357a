"""Small modules of the kinds that users write, each a function of 6 inputs and 3 outputs.

Each maps records [n, 6], numbers in [0, 4), to logits [n, 3].
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

Make = Callable[[int, int], nn.Module]
MODULES: dict[str, Make] = {}
"""Modules that train, by name."""
REFUSED: dict[str, tuple[Make, str]] = {}
"""Modules that do not, with words of the refusal."""


def _trains(make: Make) -> Make:
    MODULES[make.__name__] = make
    return make


def _refused(words: str) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        REFUSED[make.__name__] = (make, words)
        return make

    return add


class Of(nn.Module):
    """Layers in attributes, and a function of the module and records as `forward`."""

    def __init__(self, forward: Callable[[nn.Module, Tensor], Tensor], **parts: object) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self._forward = forward

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def _hidden(m: nn.Module, x: Tensor) -> Tensor:
    return m.head(torch.tanh(m.body(x)))


def _two(i: int, o: int, **parts: object) -> Of:
    return Of(_hidden, body=nn.Linear(i, 8), head=nn.Linear(8, o), **parts)


@_trains
def dense(i, o):
    return nn.Sequential(nn.Linear(i, 8), nn.ReLU(), nn.Linear(8, o))


@_trains
def frozen_layer(i, o):
    module = _two(i, o)
    module.body.requires_grad_(False)
    return module


@_trains
def frozen_weight(i, o):
    module = _two(i, o)
    module.head.weight.requires_grad_(False)
    return module


@_trains
def frozen_in_buffers(i, o):
    return Of(
        lambda m, x: m.head(torch.tanh(x @ m.body)), body=torch.randn(i, 8), head=nn.Linear(8, o)
    )


@_trains
def adapter(i, o):
    parts = {"down": nn.Linear(i, 2, bias=False), "up": nn.Linear(2, 8, bias=False)}
    module = _two(i, o, **parts)
    nn.init.zeros_(module.up.weight)
    module.body.requires_grad_(False)
    module._forward = lambda m, x: m.head(torch.tanh(m.body(x) + m.up(m.down(x))))
    return module


class _FixedStatistics(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(i, 8), nn.BatchNorm1d(8)), nn.Linear(8, o)
        self.body.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


@_trains
def frozen_statistics(i, o):
    return _FixedStatistics(i, o)


@_trains
def frozen_half(i, o):
    module = _two(i, o)
    module.body.half().requires_grad_(False)
    module._forward = lambda m, x: m.head(torch.tanh(m.body(x.half())).float())
    return module


@_trains
def dropout(i, o):
    return nn.Sequential(nn.Linear(i, 8), nn.Dropout(0.3), nn.Linear(8, o))


@_trains
def stochastic_depth(i, o):
    def forward(m, x):
        skipped = m.training and random.random() < 0.5
        return m.head(x if skipped else x + torch.tanh(m.body(x)))

    return Of(forward, body=nn.Linear(i, i), head=nn.Linear(i, o))


@_trains
def noise_of_numpy(i, o):
    def forward(m, x):
        noise = torch.from_numpy(np.random.standard_normal(x.shape)).float()
        return _hidden(m, x + 0.1 * noise if m.training else x)

    module = _two(i, o)
    module._forward = forward
    return module


@_trains
def recomputed(i, o):
    module = _two(i, o)
    module._forward = lambda m, x: checkpoint(lambda x: _hidden(m, x), x, use_reentrant=False)
    return module


@_trains
def tied_weights(i, o):
    module = Of(
        lambda m, x: m.head(m.decoder(torch.tanh(m.encoder(x)))),
        encoder=nn.Linear(i, i),
        decoder=nn.Linear(i, i),
        head=nn.Linear(i, o),
    )
    module.decoder.weight = module.encoder.weight
    return module


@_trains
def shared_layer(i, o):
    layer = nn.Linear(i, i)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(i, o))


def _recurrent(kind: type[nn.RNNBase]) -> Make:
    def make(i, o):
        def forward(m, x):
            states, _ = m.body(x[..., None])
            return m.head(states[:, -1])

        return Of(forward, body=kind(1, 5, batch_first=True), head=nn.Linear(5, o))

    return make


gru, lstm, rnn = (_recurrent(kind) for kind in (nn.GRU, nn.LSTM, nn.RNN))
MODULES |= {"gru": gru, "lstm": lstm, "rnn": rnn}


@_trains
def layer_norm(i, o):
    return nn.Sequential(nn.Linear(i, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, o))


@_trains
def group_norm(i, o):
    return nn.Sequential(nn.Linear(i, 8), nn.GroupNorm(2, 8), nn.Linear(8, o))


@_trains
def batch_norm(i, o):
    # A bias before it has no gradient but rounding errors, which Adam would scale up.
    body = nn.Linear(i, 8, bias=False)
    return nn.Sequential(body, nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, o))


@_trains
def moving_centre(i, o):
    def forward(m, x):
        if m.training:
            with torch.no_grad():
                m.centre.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return _hidden(m, x - m.centre)

    module = _two(i, o, centre=torch.zeros(i))
    module._forward = forward
    return module


@_trains
def counter(i, o):
    def forward(m, x):
        if m.training:
            m.steps = m.steps + 1
        return _hidden(m, x / (1 + m.steps))

    module = _two(i, o, steps=torch.zeros(()))
    module._forward = forward
    return module


@_trains
def views(i, o):
    def forward(m, x):
        body, head = m.weights[: 8 * i].view(8, i), m.weights[8 * i :].view(o, 8)
        return F.linear(torch.tanh(F.linear(x, body)), head)

    return Of(forward, weights=nn.Parameter(0.3 * torch.randn(8 * i + 8 * o)))


@_trains
def buffer_shares_memory(i, o):
    module = _two(i, o)
    module.register_buffer("seen", module.head.bias.detach())
    module._forward = lambda m, x: _hidden(m, x) + m.seen
    return module


@_trains
def in_place(i, o):
    def forward(m, x):
        x.sub_(2).mul_(0.5)
        return m.head(m.body(x).add_(1).relu_())

    return Of(forward, body=nn.Linear(i, 8), head=nn.Linear(8, o))


@_trains
def weight_norm(i, o):
    return nn.Sequential(parametrizations.weight_norm(nn.Linear(i, 8)), nn.Tanh(), nn.Linear(8, o))


@_trains
def spectral_norm(i, o):
    body = parametrizations.spectral_norm(nn.Linear(i, 8))
    return nn.Sequential(body, nn.Tanh(), nn.Linear(8, o))


@_trains
def module_list(i, o):
    def forward(m, x):
        return m.head(sum(torch.tanh(layer(x)) for layer in m.layers))

    return Of(
        forward, layers=nn.ModuleList(nn.Linear(i, 8) for _ in range(2)), head=nn.Linear(8, o)
    )


@_trains
def parameter_list(i, o):
    def forward(m, x):
        return torch.tanh(x @ m.weights[0]) @ m.weights[1] * m.scale

    shapes = (i, 8), (8, o)
    weights = nn.ParameterList(nn.Parameter(0.3 * torch.randn(shape)) for shape in shapes)
    return Of(forward, weights=weights, scale=nn.Parameter(torch.tensor(2.0)))


@_trains
def embedding(i, o):
    forward = lambda m, x: m.head(m.table(x.long()).flatten(1))  # noqa: E731
    return Of(forward, table=nn.Embedding(4, 3), head=nn.Linear(3 * i, o))


@_trains
def convolution(i, o):
    parts = nn.Unflatten(1, (1, i)), nn.Conv1d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*parts, nn.Linear(4 * i, o))


@_trains
def attention(i, o):
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, bias=False)
    forward = lambda m, x: m.head(m.body(m.read(x[..., None])).mean(1))  # noqa: E731
    return Of(forward, read=nn.Linear(1, 4), body=layer, head=nn.Linear(4, o))


@_trains
def residual(i, o):
    forward = lambda m, x: m.head(x + torch.tanh(m.body(x)))  # noqa: E731
    return Of(forward, body=nn.Linear(i, i), head=nn.Linear(i, o))


@_trains
def local_class(i, o):
    class Local(nn.Linear):
        def forward(self, x):
            return super().forward(torch.tanh(x))

    return Local(i, o)


@_trains
def lazy(i, o):
    return nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(o))


@_trains
def branches(i, o):
    return Of(
        lambda m, x: _hidden(m, x if x.sum() > 0 else -x), **dict(_two(i, o).named_children())
    )


@_trains
def soft_in_training(i, o):
    module = _two(i, o)
    module._forward = lambda m, x: _hidden(m, x if m.training else x.round())
    return module


@_trains
def plain_tensor(i, o):
    module = Of(lambda m, x: m.head(torch.tanh(x @ m.features[0])), head=nn.Linear(8, o))
    module.features = [torch.randn(i, 8)]
    return module


@_refused("must return .records, 3.; got a tuple")
def a_tuple(i, o):
    return Of(lambda m, x: (m.head(x), x), head=nn.Linear(i, o))


@_refused("must return .records, 3.; got a dict")
def a_dict(i, o):
    return Of(lambda m, x: {"logits": m.head(x)}, head=nn.Linear(i, o))


@_refused("must return .records, 3.; got .4, 4.")
def other_classes(i, o):
    return nn.Linear(i, o + 1)


@_refused("no parameter that requires a gradient")
def all_frozen(i, o):
    return nn.Linear(i, o).requires_grad_(False)


@_refused("trains parameter weight in float16")
def half(i, o):
    return nn.Linear(i, o).half()


@_refused("do not depend on parameters that train")
def detached(i, o):
    return Of(lambda m, x: m.head(x).detach(), head=nn.Linear(i, o))


@_refused("mixes the records of a batch in evaluation mode")
def batch_statistics(i, o):
    parts = nn.Linear(i, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, o)
    return nn.Sequential(*parts)


_MADE: dict[str, nn.Module] = {}


@_refused("share body.weight, which training changes; .* must return a new module each time")
def one_module(i, o):
    return _MADE.setdefault("module", _two(i, o))


@_refused("share body.weight, which training changes; .* must return a new module each time")
def shared_backbone(i, o):
    return nn.Sequential(
        OrderedDict(body=_MADE.setdefault("body", nn.Linear(i, 8)), head=nn.Linear(8, o))
    )


@_trains
def shared_frozen_backbone(i, o):
    body = _MADE.setdefault("frozen", nn.Linear(i, 8).requires_grad_(False))
    return nn.Sequential(body, nn.Tanh(), nn.Linear(8, o))


@_refused("share body.1.running_mean, which training changes")
def shared_frozen_statistics(i, o):
    body = nn.Sequential(nn.Linear(i, 8), nn.BatchNorm1d(8)).requires_grad_(False)
    return nn.Sequential(OrderedDict(body=_MADE.setdefault("norm", body), head=nn.Linear(8, o)))


@_refused("which returns the class Linear")
def a_class(i, o):
    return nn.Linear


@_refused("changes head.bias in evaluation mode")
def changes_its_bias(i, o):
    def forward(m, x):
        with torch.no_grad():
            m.head.bias.add_(0.1)
        return _hidden(m, x)

    module = _two(i, o)
    module._forward = forward
    return module


@_refused("changes calls in evaluation mode")
def counts_calls(i, o):
    def forward(m, x):
        m.calls += 1
        return _hidden(m, x) * m.calls

    module = _two(i, o)
    module._forward, module.calls = forward, 0
    return module


@_refused("returns probabilities; return logits")
def softmax(i, o):
    return nn.Sequential(nn.Linear(i, o), nn.Softmax(1))


@_refused("returns probabilities; return logits")
def softmax_in_evaluation(i, o):
    module = _two(i, o)
    module._forward = lambda m, x: _hidden(m, x) if m.training else _hidden(m, x).softmax(1)
    return module


@_refused("mixes the records of a batch in evaluation mode")
def mixes_larger_batches(i, o):
    module = _two(i, o)
    module._forward = lambda m, x: _hidden(m, x - x.mean(0) if len(x) > 8 else x)
    return module


def mixes_larger_training_batches(i, o):
    module = _two(i, o)
    module._forward = lambda m, x: _hidden(m, x - x.mean(0) if m.training and len(x) > 8 else x)
    return module
