"""States as tensors by name: those of the parts of a whole, told apart by prefixes."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def prefixed(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A part's state as the whole holds it."""
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


def under(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The state of the part with that prefix, as the part itself names it."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
