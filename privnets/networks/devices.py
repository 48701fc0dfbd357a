"""What networks do by kind of device: forms of layers, number formats, and kept memory.

Forms of a layer compute the same values, up to rounding, by other operations. The choice depends on
shapes and on the kind of device alone, so that metrics do not depend on a machine's past. On CPUs
it is that of measured training steps (`benchmarks/network_forms.py`). On GPUs none was timed: the
choice has the fewest kernels in a captured step, as counted at up to 180 networks.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.amp import is_autocast_available
from torch.backends import cuda, cudnn

Precision = Literal["float32", "tf32", "bf16"]
_T = TypeVar("_T")

# Constants of glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
# Largest threshold that glibc accepts; it maps larger blocks separately in any case.
_MAX_THRESHOLD: Final = 32 * 2**20
_KEPT_BYTES: Final = 2**30
_USER_SETTINGS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


class LayerForms(NamedTuple):
    """Forms of the layers on one kind of device.

    Attributes:
        groups_convolutions: Whether convolutions of all networks are one grouped convolution, else
            some networks at a time, with channels innermost in memory.
        loops_lstms: Whether PyTorch's LSTM runs one network after another, else each time step is
            a batched product for all.
        vectorises_modules: Whether a stack of convolutional modules runs as one, else one by one.
    """

    groups_convolutions: bool
    loops_lstms: bool
    vectorises_modules: bool


_CPU: Final = LayerForms(False, True, False)
_CUDA: Final = LayerForms(True, False, True)


def fastest_forms(x: Tensor) -> LayerForms:
    """Returns the forms for the device of a tensor."""
    return _CUDA if x.device.type == "cuda" else _CPU


@contextmanager
def computed_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Context in which a device computes products and convolutions in a number format.

    `tf32` has an effect on CUDA devices alone. With `bf16` networks may return bfloat16. A device
    with a number is also the one that kernels run on.
    """
    # PyTorch's own default is TF32 in convolutions. Newer settings would make these two unreadable.
    settings: Sequence[Any] = (cuda.matmul, cudnn) if device.type == "cuda" else ()
    before = [each.allow_tf32 for each in settings]
    try:
        for each in settings:
            each.allow_tf32 = precision == "tf32"
        # A cached copy of a weight would be outdated after the next update of the weight.
        cast = partial(torch.autocast, device.type, torch.bfloat16, cache_enabled=False)
        is_named = device.type == "cuda" and device.index is not None
        with (
            torch.cuda.device(device) if is_named else nullcontext(),
            cast() if precision == "bf16" else nullcontext(),
        ):
            yield
    finally:
        for each, value in zip(settings, before, strict=True):
            each.allow_tf32 = value


def each_computed_in(
    precision: Precision, device: torch.device, items: Iterator[_T]
) -> Iterator[_T]:
    """Items of an iterator, each of which is computed as in `computed_in`."""
    while True:
        with computed_in(precision, device):
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def cast_inputs(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns tensors in the type of the surrounding `torch.autocast`, if there is one.

    PyTorch casts neither what a `torch.autograd.Function` saves, nor convolutions in
    `torch.func.vmap`.
    """
    device = tensors[0].device.type
    if not (is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return tensors
    return [tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors]


@cache
def keep_freed_memory() -> bool:
    """Lets this process keep up to a gigabyte of freed memory for later allocations.

    By default, glibc returns freed blocks of a few hundred kilobytes, the size of stacked layers,
    to the kernel, and every page of the next block faults. No result changes. Does nothing with
    another allocator, or if the environment configures glibc.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in _USER_SETTINGS):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    has_mapped = mallopt(_M_MMAP_THRESHOLD, _MAX_THRESHOLD)
    return bool(has_mapped and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
