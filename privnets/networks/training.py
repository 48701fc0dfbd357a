"""Stacks of networks in training: parameters with their optimiser, and saved state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

_EPSILON = 1e-8
# Numbers in a vector register. A CPU computes the last numbers, which do not fill a register, by
# other instructions, which round differently. So results would depend on the place in the stack.
_VECTOR = 16


class StackedAdam:
    """Parameters of a stack of networks, trained by Adam with a learning rate for each network.

    Kingma and Ba, arXiv 1412.6980.

    Attributes:
        parameters: Each of shape [S, ...].
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        learning_rate: Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        trained: int | None = None,
    ) -> None:
        """Creates an optimiser with zero moments.

        Args:
            parameters: Each of shape [S, ...]; `step` changes the first `trained` in place.
            learning_rate: Shape [S].
            betas: Decay rates of the first and second moment, in [0, 1).
        """
        self.parameters, self._betas = list(parameters), betas
        self._count = len(self.parameters) if trained is None else trained
        self._rates = [learning_rate.view(-1, *[1] * (p.ndim - 1)) for p in self.trained]
        self._first, self._second, self._changes = (
            [_pad(torch.zeros_like(p)) for p in self.trained] for _ in range(3)
        )
        self._shaped_changes = self._shape(self._changes)
        self._steps = torch.zeros((), device=learning_rate.device)

    @property
    def trained(self) -> list[Tensor]:
        """Parameters that train."""
        return self.parameters[: self._count]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], scale: Tensor | float = 1.0) -> None:
        """Updates every trained parameter once, without reading any value from the device.

        `scale` is a factor on all learning rates; a tensor has no dimensions.
        """
        self._steps += 1
        # The kernel has one rate for all networks. With rate and weight decay 1 it replaces the
        # previous change by the next one.
        torch._fused_adamw_(
            self._changes,
            [_pad(gradient) for gradient in gradients],
            self._first,
            self._second,
            [],
            [self._steps] * self._count,
            lr=1.0,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=1.0,
            eps=_EPSILON,
            amsgrad=False,
            maximize=False,
        )
        rates = torch._foreach_mul(self._rates, scale)
        torch._foreach_addcmul_(self.trained, self._shaped_changes, rates)

    def is_finite(self) -> Tensor:
        """Whether all parameters of each network are finite, bool, shape [S]."""
        finite = [p.reshape(len(p), -1).isfinite().all(1) for p in self.parameters]
        return torch.stack(finite).all(0)

    @torch.no_grad()
    def state(self) -> dict[str, Tensor]:
        """Copies parameters and moments [S, ...], and the number of `steps`.

        Learning rates and decay rates are settings, not state.
        """
        tensors = {name: tensor.clone() for name, tensor in self._tensors().items()}
        return {**tensors, "steps": self._steps.clone()}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Sets parameters, moments and step count to a saved `state`."""
        for name, target in self._tensors().items():
            saved = state[name]
            if saved.shape != target.shape:
                raise ValueError(
                    f"saved tensor {name} must have shape {tuple(target.shape)}; "
                    f"got {tuple(saved.shape)}."
                )
            target.copy_(saved)
        self._steps.copy_(state["steps"])
        torch._foreach_zero_(self._changes)  # if one is not finite, the next would not be, either

    def forget_gradients(self) -> None:
        """Sets all moments and the step count to zero, as before the first step."""
        torch._foreach_zero_([*self._first, *self._second, *self._changes, self._steps])

    def keep(self, index: Tensor) -> None:
        """Drops all networks but those of `index`, int64, shape [kept]; copies their parameters."""
        for tensors in (self._first, self._second, self._changes):
            tensors[:] = [_pad(tensor[index]) for tensor in self._shape(tensors)]
        for tensors in (self.parameters, self._rates):
            tensors[:] = [tensor[index] for tensor in tensors]
        self._shaped_changes = self._shape(self._changes)

    def _tensors(self) -> dict[str, Tensor]:
        moments = {"first": self._shape(self._first), "second": self._shape(self._second)}
        kinds = {"parameter": self.parameters, **moments}
        return {f"{kind}.{i}": t for kind, tensors in kinds.items() for i, t in enumerate(tensors)}

    def _shape(self, padded: Sequence[Tensor]) -> list[Tensor]:
        """Views of results of `_pad`, each of the shape of its parameter."""
        pairs = zip(padded, self.trained, strict=True)
        return [tensor[: p.numel()].view(p.shape) for tensor, p in pairs]


def _pad(tensor: Tensor) -> Tensor:
    """A tensor in one dimension, with zeros up to a whole number of vectors."""
    # The kernel ignores strides.
    flat, missing = tensor.contiguous().view(-1), -tensor.numel() % _VECTOR
    return torch.nn.functional.pad(flat, (0, missing)) if missing else flat


class FusedAdam:
    """Adam with one learning rate for all networks of a stack; faster than `StackedAdam`."""

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float) -> None:
        """Creates an optimiser with zero moments.

        Parameters have the shape [S, ...] and are contiguous; `step` changes them in place.
        """
        self.parameters, self._rate = list(parameters), learning_rate
        self._first = [torch.zeros_like(p) for p in self.parameters]
        self._second = [torch.zeros_like(p) for p in self.parameters]
        self._steps = [torch.zeros((), device=p.device) for p in self.parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], scale: Tensor | float = 1.0) -> None:
        """Updates every parameter once; see `StackedAdam.step`."""
        torch._foreach_add_(self._steps, 1)
        torch._fused_adam_(
            self.parameters,
            [gradient.contiguous() for gradient in gradients],  # the kernel ignores strides
            self._first,
            self._second,
            [],
            self._steps,
            lr=self._rate * scale,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=_EPSILON,
            amsgrad=False,
            maximize=False,
        )


class StackedMomentum:
    """Parameters of a stack of networks, trained by gradient descent with heavy-ball momentum.

    Polyak 1964.
    """

    def __init__(
        self, parameters: Sequence[Tensor], learning_rate: Tensor, momentum: float
    ) -> None:
        """Creates an optimiser at rest.

        Parameters have the shape [S, ...], the learning rate [S]; `momentum` is the share of the
        previous change that remains, in [0, 1).
        """
        self.parameters, self._momentum = list(parameters), momentum
        self._rates = [learning_rate.view(-1, *[1] * (p.ndim - 1)) for p in self.parameters]
        self._velocity = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], scale: Tensor | float = 1.0) -> None:
        """Updates every parameter once; see `StackedAdam.step`."""
        torch._foreach_mul_(self._velocity, self._momentum)
        torch._foreach_add_(self._velocity, list(gradients))
        changes = torch._foreach_mul(self._velocity, -scale)
        torch._foreach_addcmul_(self.parameters, changes, self._rates)


def rate_scales(factors: Sequence[float], device: torch.device) -> Tensor:
    """Factors on learning rates [n], in the type that PyTorch's optimisers read on a device."""
    is_cpu = device.type == "cpu"
    return torch.tensor(factors, dtype=torch.float64 if is_cpu else torch.float32, device=device)


@contextmanager
def differentiable(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Context in which parameters require gradients."""
    before = [parameter.requires_grad for parameter in parameters]
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter, required in zip(parameters, before, strict=True):
            parameter.requires_grad_(required)


def add_prefix(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns a state whose names start with `prefix`."""
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


def select_prefix(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Returns the tensors whose names start with `prefix`, named without it."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
