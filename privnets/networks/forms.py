"""Choice among several forms of a stacked layer by their measured time.

Forms compute the same values, up to rounding, by other operations. Which is the fastest depends on
the device and on shapes. It is measured when a layer is first used with such shapes, and kept in
the cache directory, so that later processes of a machine choose the same form.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.amp import is_autocast_available
from torch.backends import cuda, cudnn

from privnets import cache
from privnets.runtime import measure_seconds

Form: TypeAlias = Callable[..., Tensor]
"""Computes outputs [S, n, ...] from a sequence of parameters [S, ...] and inputs [S, n, ...]."""

MAX_NETWORKS: Final = 8
"""Number of networks that are measured; more change little about which form is the fastest."""

_MAX_RECORDS: Final = 256
_ROUNDS: Final = 3
# Forms that take this long together are measured once.
_LONG_SECONDS: Final = 2.0
# Smaller gains are within the noise of a measurement.
_MIN_GAIN: Final = 1.1
# A form that takes more than this many times as long as another at first is not measured again.
_MAX_FIRST_RATIO: Final = 2.0

_chosen: dict[str, str] = {}


def compute_fastest(
    layer: str, forms: Mapping[str, Form], parameters: Sequence[Tensor], *inputs: Tensor
) -> Tensor:
    """Computes a layer by the form whose outputs and gradients are fastest on its device.

    The first form is taken unless another is faster by a tenth, and where nothing can be measured,
    as for tensors without values.

    Args:
        layer: Name of the layer, with its settings other than shapes.
        forms: Forms by name.
        parameters: Shape [S, ...] each.
        inputs: Shape [S, n, ...] each.
    """
    return forms[_choose(layer, forms, parameters, inputs)](parameters, *inputs)


def _choose(
    layer: str, forms: Mapping[str, Form], parameters: Sequence[Tensor], inputs: Sequence[Tensor]
) -> str:
    """Returns the name of a form."""
    x = inputs[0]
    if len(forms) == 1 or 0 in x.shape[:2] or x.device.type not in ("cpu", "cuda"):
        return next(iter(forms))
    networks = _power_of_two(min(len(x), MAX_NETWORKS))
    records = _power_of_two(min(x.shape[1], _MAX_RECORDS))
    work = [
        [[*p.shape[1:], str(p.dtype)] for p in parameters],
        [[*i.shape[2:], str(i.dtype), i.requires_grad] for i in inputs],
    ]
    parts = [layer, [*forms], networks, records, work, _conditions(x.device)]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    if key in _chosen:  # also in a captured step, which repeats the steps before its capture
        return _chosen[key]
    if (name := _kept_form(cache.read(_path(key)), forms)) is None:
        if not _can_measure(x):
            return next(iter(forms))
        samples = [p[:networks] for p in parameters], [i[:networks, :records] for i in inputs]
        name, is_whole = _measure(forms, *samples)
        if is_whole:  # another process may have measured at the same time
            kept = cache.write_once(_path(key), {"form": np.array(name)})
            name = _kept_form(kept, forms) or name
    _chosen[key] = name
    return name


def _kept_form(kept: Mapping[str, NDArray[Any]] | None, forms: Mapping[str, Form]) -> str | None:
    """Returns the form that a file of the cache names; None without one, or if it is unknown."""
    name = str((kept or {}).get("form"))
    return name if name in forms else None


def _can_measure(x: Tensor) -> bool:
    """Whether operations on a tensor take their usual time and may be differentiated."""
    if type(x) not in (Tensor, torch.nn.Parameter) or torch.is_inference_mode_enabled():
        return False
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())


def _power_of_two(size: int) -> int:
    """Largest power of 2 up to a size of at least 1."""
    return 1 << (size.bit_length() - 1)


def _conditions(device: torch.device) -> list[object]:
    """Hardware, versions and settings under which a measurement holds."""
    hardware: list[object] = [cache.processor(), torch.get_num_threads()]
    if device.type == "cuda":
        allowed = cuda.matmul.allow_tf32, cudnn.allow_tf32
        hardware = [torch.cuda.get_device_name(device), *allowed, cudnn.benchmark]
    is_cast = is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)
    cast = str(torch.get_autocast_dtype(device.type)) if is_cast else ""
    return [*hardware, cast, *_versions()]


@lru_cache
def _versions() -> tuple[str, ...]:
    return torch.__version__, version("privnets-sweeps")


def _measure(
    forms: Mapping[str, Form], parameters: Sequence[Tensor], inputs: Sequence[Tensor]
) -> tuple[str, bool]:
    """Returns the name of the fastest form, and whether all could be measured.

    Rounds alternate between the forms. An operation may be missing for a processor, as the LSTM in
    bfloat16 is for some, and memory for one form.
    """
    leaves = [tensor.detach().clone().requires_grad_() for tensor in parameters]
    records = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in inputs]
    learned = [*leaves, *(tensor for tensor in records if tensor.requires_grad)]

    def train(form: Form, repeats: int) -> None:
        for _ in range(repeats):
            with torch.enable_grad():
                loss = form(leaves, *records).float().square().mean()
            torch.autograd.grad(loss, learned, allow_unused=True)

    device = inputs[0].device
    seconds: dict[str, float] = {}
    errors: list[RuntimeError] = []
    for name, form in forms.items():
        try:
            seconds[name] = measure_seconds(partial(train, form), 1, device)
        except RuntimeError as error:
            errors.append(error)
    if not seconds:
        raise errors[0]
    fast = [n for n, taken in seconds.items() if taken < _MAX_FIRST_RATIO * min(seconds.values())]
    # The first use of a shape also prepares libraries, which matters to fast forms alone.
    rounds = _ROUNDS if sum(seconds.values()) < _LONG_SECONDS else 0
    for _ in range(rounds):
        for name in fast:
            again = measure_seconds(partial(train, forms[name]), 1, device)
            seconds[name] = min(seconds[name], again)
    first, best = next(iter(seconds)), min(seconds, key=seconds.__getitem__)
    return (best if _MIN_GAIN * seconds[best] < seconds[first] else first), not errors


def _path(key: str) -> Path:
    return cache.directory() / f"form-{key}"
