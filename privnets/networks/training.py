"""Networks in training: a stack's parameters and their optimiser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from privnets.networks.adam import StackedAdam
from privnets.networks.states import prefixed, under


class TrainingStack:
    """Parameters that Adam moves, side by side.

    Attributes:
        parameters: Each of shape [S, ...].
    """

    def __init__(
        self, parameters: Sequence[Tensor], rates: Tensor, betas: tuple[float, float]
    ) -> None:
        """Take parameters [S, ...], learning rates [S] and Adam's decays."""
        self.parameters = list(parameters)
        self._adam = StackedAdam(self.parameters, rates, betas)

    def step(self, gradients: Sequence[Tensor], scale: float) -> None:
        """Move every parameter against its gradient; `scale` is of all learning rates."""
        self._adam.step(gradients, scale)

    def finite(self) -> Tensor:
        """Whether all numbers of each network are, bool, shape [S]."""
        return torch.stack([p.flatten(1).isfinite().all(1) for p in self.parameters]).all(0)

    def keep(self, index: Tensor) -> None:
        """Go on with some of the networks; int64, shape [kept]."""
        self.parameters = [p[index] for p in self.parameters]
        self._adam.keep(index, self.parameters)

    def state(self) -> dict[str, Tensor]:
        """All that `restore` needs, copied."""
        own = {str(i): p.clone() for i, p in enumerate(self.parameters)}
        return own | prefixed("adam.", self._adam.state())

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a `state` of as many networks of the same shape.

        Raises:
            KeyError: If something is missing.
            ValueError: If a shape is another.
        """
        for i, parameter in enumerate(self.parameters):
            saved = state[str(i)]
            if saved.shape != parameter.shape:
                raise ValueError(
                    f"parameter {i} must have shape {tuple(parameter.shape)}; "
                    f"got {tuple(saved.shape)}."
                )
            parameter.copy_(saved)
        self._adam.restore(under(state, "adam."))


@contextmanager
def differentiable(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Within it, what is computed of the parameters can be differentiated by them."""
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(False)
