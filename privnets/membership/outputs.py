"""What a stack of trained models answers, a bounded part of it at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from privnets.membership import logistic
from privnets.membership.config import MembershipConfig
from privnets.membership.metrics import classifies
from privnets.membership.universe import Universe
from privnets.networks.mlp import Shape, forward

# Numbers that one part's inputs and activations may hold.
_AT_ONCE = 2**24


@dataclass(frozen=True)
class Answers:
    """Of J models at n records each.

    Attributes:
        loss: Cross-entropy or squared error, shape [J, n].
        merit: Whether the class is right (0 or 1), or squared error, shape [J, n].
        output: Log-probability of the true class, or the predicted value, shape [J, n].
    """

    loss: Tensor
    merit: Tensor
    output: Tensor


class TrainedModels:
    """A stack of trained models of one configuration."""

    def __init__(
        self, config: MembershipConfig, flat: Tensor, universe: Universe, classes: int
    ) -> None:
        """Take the models.

        Args:
            config: Their configuration.
            flat: Their parameters, shape [J, d].
            universe: Data, on the device of the parameters.
            classes: Of the target.
        """
        self.classifies = classifies(config)
        self._config, self._flat, self._universe, self._classes = config, flat, universe, classes

    def at(self, index: Tensor) -> Answers:
        """Answers at records: each model's own, shape [J, n], or the same for all, shape [n]."""
        records = index.shape[-1]
        width = max(self._config.hidden_units, self._universe.x.shape[1], self._classes)
        step = max(1, _AT_ONCE // (records * width))
        parts = []
        for start in range(0, len(self._flat), step):
            part = slice(start, start + step)
            parts.append(self._part(self._flat[part], index if index.ndim == 1 else index[part]))
        return Answers(*(torch.cat(columns) for columns in zip(*parts, strict=True)))

    def _part(self, flat: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y = self._universe.x[index], self._universe.y[index]
        raw = self._raw(flat, x)
        if not self.classifies:
            output = raw[..., 0]
            square = (y - output).square()
            return square, square, output
        log_p = logistic.log_softmax(raw)
        true = y.long().expand(log_p.shape[:-1])[..., None]
        chosen = log_p.gather(-1, true)[..., 0]
        return -chosen, (log_p.argmax(-1) == true[..., 0]).double(), chosen

    def _raw(self, flat: Tensor, x: Tensor) -> Tensor:
        if self._config.model == "mlp":
            return forward(shape(self._config, x.shape[-1], self._classes).unpack(flat), x)
        return x @ flat.view(len(flat), x.shape[-1], -1)


def shape(config: MembershipConfig, features: int, classes: int) -> Shape:
    """Layers of an mlp: one output for a value, one per class otherwise."""
    outputs = classes if classifies(config) else 1
    return Shape((features, *(config.hidden_units,) * config.hidden_layers, outputs))
