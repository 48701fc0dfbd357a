"""Adam over a stack, each model with its own learning rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


class StackedAdam:
    """Kingma and Ba's Adam; every parameter has the models along its first dimension.

    Unlike `torch.optim.Adam` the learning rate may differ from model to model.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        learning_rate: Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        """Prepare the moments.

        Args:
            parameters: Each of shape [S, ...]; changed in place by `step`.
            learning_rate: Shape [S].
            betas: Decay of the two moments.
            epsilon: Added to the root of the second moment.
        """
        self._parameters = list(parameters)
        self._rates = [learning_rate.view(-1, *[1] * (p.ndim - 1)) for p in self._parameters]
        self._betas = betas
        self._epsilon = epsilon
        self._first = [torch.zeros_like(p) for p in self._parameters]
        self._second = [torch.zeros_like(p) for p in self._parameters]
        self._steps = 0

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], scale: float = 1.0) -> None:
        """Move every parameter once.

        Args:
            gradients: One per parameter, of its shape.
            scale: Of all learning rates, at this step.
        """
        self._steps += 1
        slow, fast = self._betas
        pulled = list(gradients)
        torch._foreach_lerp_(self._first, pulled, 1 - slow)
        torch._foreach_mul_(self._second, fast)
        torch._foreach_addcmul_(self._second, pulled, pulled, 1 - fast)
        # What corrects the second moment's start is a number, and goes where it costs no pass.
        root = math.sqrt(1 - fast**self._steps)
        below = torch._foreach_sqrt(self._second)
        torch._foreach_add_(below, self._epsilon * root)
        change = torch._foreach_mul(self._first, self._rates)
        torch._foreach_addcdiv_(
            self._parameters, change, below, -scale * root / (1 - slow**self._steps)
        )

    def state(self) -> dict[str, Tensor]:
        """All that `restore` needs, copied: moments [S, ...] by `first.i`, `second.i`, and `steps`.

        Learning rates and decays are settings, not state, and are left out.
        """
        moments = {f"first.{i}": m.clone() for i, m in enumerate(self._first)}
        moments |= {f"second.{i}": m.clone() for i, m in enumerate(self._second)}
        return {**moments, "steps": torch.tensor(self._steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a `state` of an optimiser of the same parameters.

        Raises:
            KeyError: If a moment is missing.
            ValueError: If a moment's shape is another.
        """
        for name, moments in (("first", self._first), ("second", self._second)):
            for i, moment in enumerate(moments):
                saved = state[f"{name}.{i}"]
                if saved.shape != moment.shape:
                    raise ValueError(
                        f"{name}.{i} must have shape {tuple(moment.shape)}; "
                        f"got {tuple(saved.shape)}."
                    )
                moment.copy_(saved)
        self._steps = int(state["steps"])

    def keep(self, index: Tensor, parameters: Sequence[Tensor]) -> None:
        """Go on with some of the models.

        Args:
            index: Which, int64, shape [kept].
            parameters: Theirs, each of shape [kept, ...]; changed in place by `step` from now on.
        """
        self._parameters = list(parameters)
        self._rates = [rate[index] for rate in self._rates]
        self._first = [moment[index] for moment in self._first]
        self._second = [moment[index] for moment in self._second]
