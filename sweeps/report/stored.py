"""Tensors that points come with, read from a storage that is not trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privnets.points import TradeoffPoint

Shape = tuple[str | int, ...]
Tensors = Mapping[str, NDArray[Any]]
_MOST_BYTES = 32 * 2**20


class UnusableError(Exception):
    """A file that is absent or not what it should be; the message says how."""


def read_tensors(point: TradeoffPoint, name: str, shapes: Mapping[str, Shape]) -> Tensors:
    """The tensors of a safetensors file of a point's first replicate.

    Args:
        point: The point.
        name: The file.
        shapes: Tensor to its shape. A number must be met; a name stands for any size from 1 that
            is the same wherever the name comes again.

    Returns:
        The tensors asked for, all numbers finite.

    Raises:
        UnusableError: If the file is absent, damaged, larger than 32 MiB, or holds anything else.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        content = point.artifacts[name]
    except KeyError:
        raise UnusableError(f"there is no {name}") from None
    except OSError as error:
        raise UnusableError(f"{name} cannot be read: {error}") from error
    if len(content) > _MOST_BYTES:
        raise UnusableError(f"{name} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        found = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableError(f"{name} is no safetensors file: {error}") from error
    sizes: dict[str, int] = {}
    return {key: _checked(found, key, shape, sizes) for key, shape in shapes.items()}


def _checked(found: Tensors, key: str, shape: Shape, sizes: dict[str, int]) -> NDArray[Any]:
    tensor = found.get(key)
    if tensor is None:
        raise UnusableError(f"it lacks the tensor {key}")
    if tensor.ndim != len(shape) or not all(
        sizes.setdefault(want, size) == size if isinstance(want, str) else want == size
        for want, size in zip(shape, tensor.shape, strict=False)
    ):
        wanted = ", ".join(map(str, shape))
        raise UnusableError(f"{key} must be of shape [{wanted}]; got {list(tensor.shape)}")
    if not math.prod(tensor.shape):
        raise UnusableError(f"{key} is empty")
    if tensor.dtype.kind not in "biuf" or not np.isfinite(tensor).all():
        raise UnusableError(f"{key} must hold finite numbers")
    return tensor
