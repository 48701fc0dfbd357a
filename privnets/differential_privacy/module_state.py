"""State that a module may keep of its records: in buffers, or in attributes of its layers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Set
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

Entry: TypeAlias = tuple[object, Tensor | None]
"""Object, and its numbers if they are not parameters or buffers."""

_VALUES = (bool, int, float, complex, str, bytes)


def check_buffers(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raises ValueError if buffers after a pass are not those expected of any record."""
    for name, tensor in expected.items():
        if not equal(found[name], tensor):
            raise ValueError(
                f"training changes buffer {name} by its records or random numbers, which DP-SGD "
                "does not protect; use a module whose buffers do not depend on records."
            )


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether tensors are equal, as are two NaN."""
    same_form = one.shape == other.shape and one.dtype == other.dtype
    return same_form and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def attributes(module: nn.Module) -> dict[str, list[Entry]]:
    """Contents of the attributes of all layers, except for the numbers of parameters and buffers.

    Objects of the standard library count as unchanged, which spares loggers and locks.
    """
    layers = list(module.named_modules(remove_duplicate=False))
    known = {id(layer) for _, layer in layers}
    known |= {id(t) for t in (*module.parameters(), *module.buffers())}
    return {
        f"{prefix}.{name}".lstrip("."): list(_entries(value, known, set()))
        for prefix, layer in layers
        for name, value in vars(layer).items()
        # Recurrent layers keep lists of their parameters, which a call fills again.
        if not (isinstance(layer, nn.RNNBase) and name.startswith("_flat_weight"))
    }


def check_attributes(before: Mapping[str, list[Entry]], module: nn.Module) -> None:
    """Raises ValueError if attributes are not as they were."""
    if name := changed_attribute(before, module):
        raise ValueError(
            f"training changes attribute {name}; a private module may keep no state of its "
            "records. A counter may be a buffer, and a cache may be filled at construction."
        )


def changed_attribute(before: Mapping[str, list[Entry]], module: nn.Module) -> str:
    """Name of an attribute that is not as it was; empty if all are."""
    after = attributes(module)
    for name in sorted(after.keys() | before.keys()):
        old, new = before.get(name, []), after.get(name, [])
        if len(old) != len(new) or not all(map(_is_same, old, new)):
            return name
    return ""


def _entries(value: object, known: Set[int], seen: set[int]) -> Iterator[Entry]:
    """Value and all that it holds, each once."""
    if isinstance(value, (Tensor, np.ndarray)):
        numbers = None if id(value) in known else torch.as_tensor(value).detach().clone()
        yield value, numbers
        return
    yield value, None
    if id(value) in known or id(value) in seen or isinstance(value, _VALUES):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        parts = [part for pair in value.items() for part in pair]
    elif isinstance(value, (list, tuple, Set)):
        parts = list(value)
    elif type(value).__module__.partition(".")[0] in sys.stdlib_module_names:
        return
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    for part in parts:
        yield from _entries(part, known, seen)


def _is_same(old: Entry, new: Entry) -> bool:
    one, other = old[0], new[0]
    if isinstance(one, _VALUES):  # by their text, as NaN equals NaN
        return type(one) is type(other) and repr(one) == repr(other)
    if old[1] is None or new[1] is None:
        return one is other
    return one is other and equal(old[1], new[1])
