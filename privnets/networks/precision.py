"""Number formats in which products of matrices and convolutions are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor
from torch.amp import is_autocast_available
from torch.backends import cuda, cudnn

Precision = Literal["float32", "tf32", "bf16"]


@contextmanager
def computed_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Context in which a device computes products and convolutions in a number format.

    `tf32` has an effect on CUDA devices alone. With `bf16` networks may return bfloat16.
    """
    # PyTorch's own default is TF32 in convolutions. Newer settings would make these two unreadable.
    settings: Sequence[Any] = (cuda.matmul, cudnn) if device.type == "cuda" else ()
    before = [each.allow_tf32 for each in settings]
    try:
        for each in settings:
            each.allow_tf32 = precision == "tf32"
        with _autocast(device) if precision == "bf16" else nullcontext():
            yield
    finally:
        for each, value in zip(settings, before, strict=True):
            each.allow_tf32 = value


def _autocast(device: torch.device) -> torch.autocast:
    # A cached copy of a weight would be outdated after the next update of the weight.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def cast_inputs(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns tensors in the type of the surrounding `torch.autocast`, if there is one.

    PyTorch casts neither what a `torch.autograd.Function` saves, nor convolutions in
    `torch.func.vmap`.
    """
    device = tensors[0].device.type
    if not (is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return tensors
    return [tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors]
