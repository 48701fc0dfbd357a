"""Arguments and results of measures: validated float64 tensors, converted back at the end."""

from __future__ import annotations

import math
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = TypeVar("Array", Tensor, NDArray[Any])
Number = TypeVar("Number", Tensor, NDArray[Any], float)
Given = TypeVar("Given")


def real(values: Tensor | NDArray[Any] | float, name: str) -> Tensor:
    """Converts values to a float64 tensor."""
    if isinstance(values, Tensor):
        tensor = values
    else:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{name} must hold real numbers; got {array.dtype}.")
        tensor = torch.from_numpy(array.astype(np.float64))
    if tensor.is_complex():
        raise ValueError(f"{name} must hold real numbers; got {tensor.dtype}.")
    tensor = tensor.to(torch.float64)
    if tensor.isnan().any():
        raise ValueError(f"{name} must hold numbers; got NaN.")
    return tensor


def in_range(
    values: Tensor | NDArray[Any] | float,
    name: str,
    low: float,
    high: float,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> Tensor:
    """Converts values, and checks that they lie in an interval; closed by default."""
    tensor = real(values, name)
    above = tensor > low if open_low else tensor >= low
    below = tensor < high if open_high else tensor <= high
    inside = above & below
    if not inside.all():
        interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
        raise ValueError(f"{name} must be in {interval}; got {float(tensor[~inside][0])!r}.")
    return tensor


def distribution(values: Tensor | NDArray[Any], name: str, axes: tuple[str, ...]) -> Tensor:
    """Converts probability tables over the last dimensions, and normalises them exactly.

    Args:
        values: Shape [..., *axes]. The sum over `axes` may differ from 1 by the square root of the
            dtype's precision.
    """
    table = real(values, name)
    if table.ndim < len(axes):
        wanted = ", ".join(("...", *axes))
        raise ValueError(f"{name} must have shape [{wanted}]; got {list(table.shape)}.")
    if not (table >= 0).all():
        raise ValueError(f"{name} must be non-negative; got {float(table.min())!r}.")
    dims = tuple(range(-len(axes), 0))
    total = table.sum(dims, keepdim=True)
    precision: float = np.finfo(np.float64).eps.item()
    if isinstance(values, Tensor) and values.is_floating_point():
        precision = torch.finfo(values.dtype).eps
    elif isinstance(values, np.ndarray) and values.dtype.kind == "f":
        precision = np.finfo(values.dtype).eps.item()
    wrong = ~((total - 1).abs() <= math.sqrt(precision))
    if wrong.any():
        raise ValueError(
            f"{name} must sum to 1 over [{', '.join(axes)}]; got {float(total[wrong][0])!r}."
        )
    return table / total


def order(alpha: float) -> float:
    """Checks the order of an entropy."""
    if not alpha >= 0:
        raise ValueError(f"alpha must be in [0, inf]; got {alpha}.")
    return float(alpha)


def batch_shape(**shapes: torch.Size) -> torch.Size:
    """Broadcasts the leading dimensions of arguments, given by name."""
    try:
        return torch.Size(np.broadcast_shapes(*shapes.values()))
    except ValueError as error:
        text = ", ".join(str(list(shape)) for shape in shapes.values())
        raise ValueError(
            f"the batch dimensions of {', '.join(shapes)} must broadcast; got {text}."
        ) from error


def as_given(result: Tensor, *given: Given | float) -> Given:
    """Converts a result to a tensor if any argument is one, a float if all are, else an array."""
    converted: Any = result
    if all(isinstance(value, int | float) for value in given):
        converted = result.item()
    elif not any(isinstance(value, Tensor) for value in given):
        converted = result.detach().numpy()[()]
    return cast(Given, converted)
