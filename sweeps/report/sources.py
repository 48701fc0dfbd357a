"""Files that points stored, read from a storage that is not trusted, and points to show."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from privnets.points import TradeoffPoint
from sweeps.analysis.results import Result
from sweeps.analysis.tables import evenly_spaced
from sweeps.report.figures.curves import CurveSample, CurveSet, curve_samples, label_point

T = TypeVar("T")
TensorShape = tuple[str | int, ...]
Tensors = Mapping[str, NDArray[Any]]
_MAX_BYTES = 32 * 2**20


class UnusableError(Exception):
    """Raised when a stored file is absent or invalid; the message gives the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class ChosenPoint(Generic[T]):
    """Point to show: its swept settings in words, and the content of its first file."""

    name: str
    sample: CurveSample
    content: T

    @property
    def caption(self) -> str:
        """The point and the reason of its choice, in two or three lines."""
        return f"{self.name}\n{self.sample.reason}" if self.name else self.sample.reason


def choose_points(
    result: Result,
    curves: CurveSet,
    file: str,
    read: Callable[[TradeoffPoint], T],
    max_curves: int,
) -> tuple[list[ChosenPoint[T]], list[str]]:
    """Chooses the middle and the private end of a few curves, and reads their files.

    Args:
        result: The sweep.
        curves: Its points by curve.
        file: Name of the file that points stored.
        read: Reads it; raises `UnusableError` if it is invalid.
        max_curves: Largest number of curves, evenly spaced.

    Returns:
        The points, curve by curve, and sentences about those whose file is unusable. Both are
        empty if no finished point stored the file, or no metric ranks privacy.
    """
    metric = next((m for m in result.objectives if m.startswith("privacy/")), None)
    if metric is None or file not in result.files:
        return [], []
    samples = [
        sample
        for index in evenly_spaced(len(curves.curves), max_curves)
        for sample in curve_samples(curves.curves[index], metric)
    ]
    stored = result.select_points([sample.point_id for sample in samples])
    points, missing = [], []
    for sample in samples:
        name = label_point(sample.row, curves.fields)
        try:
            if sample.point_id not in stored:
                raise UnusableError("the ledger no longer contains it")
            points.append(ChosenPoint(name, sample, read(stored[sample.point_id])))
        except UnusableError as error:
            missing.append(f"{name or 'the only point'} is not shown: {error}.")
    return points, missing


def read_tensors(point: TradeoffPoint, name: str, shapes: Mapping[str, TensorShape]) -> Tensors:
    """Reads tensors of finite numbers from a safetensors file of a point's first replicate.

    In a shape a number is an exact size. A name is any size from 1, equal wherever it is repeated.

    Raises:
        UnusableError: If the file is absent, damaged, larger than 32 MiB, or lacks such a tensor.
    """
    try:
        content = point.artifacts[name]
    except KeyError:
        raise UnusableError(f"{name} is missing") from None
    except OSError as error:
        raise UnusableError(f"{name} cannot be read: {error}") from error
    if len(content) > _MAX_BYTES:
        raise UnusableError(f"{name} is larger than {_MAX_BYTES >> 20} MiB")
    try:
        tensors = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableError(f"{name} is not a valid safetensors file: {error}") from error
    sizes: dict[str, int] = {}
    return {key: _check_tensor(tensors, key, shape, sizes) for key, shape in shapes.items()}


def _check_tensor(
    tensors: Tensors, key: str, shape: TensorShape, sizes: dict[str, int]
) -> NDArray[Any]:
    """The named tensor; enters sizes that have names into `sizes`."""
    tensor = tensors.get(key)
    if tensor is None:
        raise UnusableError(f"it lacks the tensor {key}")
    if tensor.ndim != len(shape) or not all(
        sizes.setdefault(expected, size) == size if isinstance(expected, str) else expected == size
        for expected, size in zip(shape, tensor.shape, strict=False)
    ):
        expected_shape = ", ".join(map(str, shape))
        raise UnusableError(f"{key} must be of shape [{expected_shape}]; got {list(tensor.shape)}")
    if not math.prod(tensor.shape):
        raise UnusableError(f"{key} is empty")
    if tensor.dtype.kind not in "biuf" or not np.isfinite(tensor).all():
        raise UnusableError(f"{key} must hold finite numbers")
    return tensor
