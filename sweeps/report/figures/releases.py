"""Stored releases of chosen points: images, and weeks of power.

The files are read from a storage that is not trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from privnets.points import TradeoffPoint
from sweeps.analysis.results import Result
from sweeps.analysis.tables import evenly_spaced
from sweeps.report.figures.axes import view_limits
from sweeps.report.figures.curves import CurveSample, CurveSet, curve_samples, label_point
from sweeps.report.figures.png import ImageRow, draw_image_rows
from sweeps.report.figures.traces import (
    GREY,
    ORANGE,
    Description,
    Plot,
    axis,
    panel_figure,
    trace,
)

T = TypeVar("T")
TensorShape = tuple[str | int, ...]
Tensors = Mapping[str, NDArray[Any]]

IMAGES_FILE, WEEK_FILE = "release.safetensors", "week.safetensors"
SECRET_NAMES: Mapping[str, tuple[str, ...]] = dict.fromkeys(("amnist", "digits"), ("thin", "thick"))
"""Problem to the names of its secret's classes."""

_MAX_BYTES = 32 * 2**20
_MAX_IMAGES, _MAX_PIXELS = 20, 256
_LABEL_SPACE, _CURVE_SPACE = 0.45, 0.12
_MAX_DAYS, _MAX_STEPS = 7, 1440
_FIRST_DAY, _LAST_DAY = (np.datetime64(f"{year}-01-01").astype(int) for year in (1990, 2100))
_ORIGINAL, _HOME = "#9aa3ab", "#4dabf7"


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
    for key, shape in shapes.items():
        if (tensor := tensors.get(key)) is None:
            raise UnusableError(f"it lacks the tensor {key}")
        names = zip(shape, tensor.shape, strict=False)
        expected = [sizes.setdefault(n, size) if isinstance(n, str) else n for n, size in names]
        if tensor.ndim != len(shape) or expected != list(tensor.shape):
            named = ", ".join(map(str, shape))
            raise UnusableError(f"{key} must be of shape [{named}]; got {list(tensor.shape)}")
        if not tensor.size:
            raise UnusableError(f"{key} is empty")
        if tensor.dtype.kind not in "biuf" or not np.isfinite(tensor).all():
            raise UnusableError(f"{key} must hold finite numbers")
    return {key: tensors[key] for key in shapes}


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedImages:
    """Test images of one replicate: ink in [0, 1], shape [m, h, w], with utility and secret."""

    original: NDArray[np.float64]
    released: NDArray[np.float64]
    labels: tuple[str, ...]


def read_images(point: TradeoffPoint) -> ReleasedImages:
    """Reads a point's images, at most 20; raises `UnusableError` if none can be shown."""
    image = ("m", 1, "h", "w")
    shapes = {"original": image, "released": image, "secret": ("m",), "utility": ("m",)}
    tensors = read_tensors(point, IMAGES_FILE, shapes)
    if max(tensors["original"].shape[2:]) > _MAX_PIXELS:
        raise UnusableError(f"images must be at most {_MAX_PIXELS} pixels wide and high")
    problem = str(point.config.get("problem"))
    names: dict[float, str] = dict(enumerate(SECRET_NAMES.get(problem, ())))
    original, released = (
        np.asarray(tensors[key][:_MAX_IMAGES, 0], dtype=np.float64).clip(0, 1)
        for key in ("original", "released")
    )
    labels = [
        f"{utility:.0f}\n{names.get(float(secret), f'secret {secret:.0f}')}"
        for utility, secret in zip(tensors["utility"], tensors["secret"], strict=True)
    ]
    return ReleasedImages(original, released, tuple(labels[:_MAX_IMAGES]))


def draw_images(points: Sequence[ChosenPoint[ReleasedImages]]) -> Figure:
    """Original images, once for all releases that share them, above the released ones."""
    rows: list[ImageRow] = []
    original, space = np.empty(0), 0.0
    for chosen in points:
        images = chosen.content
        if not np.array_equal(original, images.original):
            original = images.original
            rows.append(("original", original, images.labels, _LABEL_SPACE))
        rows.append((chosen.caption, images.released, (), space))
        space = _CURVE_SPACE if chosen.sample.role != "middle" else 0.0
    return draw_image_rows(rows)


def read_week(point: TradeoffPoint) -> pd.DataFrame:
    """Reads a few days of power of one replicate's test records; a row per step, by time.

    Columns: `time` and `end` of the step; `original` and `released`, watts, NaN where nothing was
    measured; `secret`, 1 at home, 0 away, -1 not recorded.

    Raises `UnusableError` if none can be shown.
    """
    names, table = ("original", "released", "secret", "present"), ("d", "T")
    tensors = read_tensors(point, WEEK_FILE, {**dict.fromkeys(names, table), "day": ("d",)})
    days, steps = tensors["original"].shape
    if days > _MAX_DAYS or steps > _MAX_STEPS:
        raise UnusableError(f"a week has at most {_MAX_DAYS} days of {_MAX_STEPS} steps")
    day = tensors["day"].astype(np.int64)
    if day.min() < _FIRST_DAY or day.max() > _LAST_DAY or len(set(day.tolist())) < days:
        raise UnusableError("day must be different days since 1970-01-01, between 1990 and 2100")
    order = np.argsort(day)
    # Microseconds, because the number of seconds in a step may be fractional.
    step = np.timedelta64(86_400_000_000 // steps, "us")
    starts: NDArray[np.datetime64] = day[order].astype("datetime64[D]").astype("datetime64[us]")
    time = np.add.outer(starts, step * np.arange(steps)).ravel()
    week = pd.DataFrame({name: tensors[name][order].ravel() for name in names}, dtype=np.float64)
    powers = week[["original", "released"]].mask(week["present"] == 0)
    secret = week["secret"].where(week["secret"].isin((0, 1)), -1)
    return powers.assign(time=time, end=time + step, secret=secret)


def week_figure(points: Sequence[ChosenPoint[pd.DataFrame]]) -> Description | None:
    """Power before and after, one panel per point; blue at home, grey if not recorded."""
    panels = []
    for chosen in points:
        week = chosen.content
        powers = week[["original", "released"]].to_numpy().ravel()
        limits = view_limits(np.append(powers, [0.0, 1.0]), powers) or (0.0, 1.0)
        traces = []
        for kind, name, color in ((1, "at home", _HOME), (-1, "occupancy not recorded", GREY)):
            periods = list(secret_periods(week, kind))
            corners = [time for start, end in periods for time in (start, start, end, end, end)]
            levels = [limits[0], limits[1], limits[1], limits[0], np.nan] * len(periods)
            if periods:
                traces.append(trace(np.array(corners), levels, name, color, hover=[], shade=True))
        # Both ends of each step, with NaN between days that are not consecutive.
        times = week[["time", "end"]].to_numpy().ravel()
        breaks = 2 * np.flatnonzero(times[2::2] != times[1:-1:2]) + 2
        times = np.insert(times, breaks, times[breaks])
        # The wider line is visible beneath the other where both are equal.
        for name, color, width in (("original", _ORIGINAL, 3.0), ("released", ORANGE, 1.3)):
            heights = np.insert(week[name].to_numpy().repeat(2), breaks, np.nan)
            traces.append(trace(times, heights, name, color, line="solid", width=width))
        title = chosen.caption.replace(":\n", ": ")
        panels.append(Plot(axis("", date=True), axis("power, W", limits=limits), traces, title))
    return panel_figure(panels, columns=1, panel_height=200) if panels else None


def secret_periods(week: pd.DataFrame, kind: int) -> Iterator[tuple[np.datetime64, np.datetime64]]:
    """Start and end of each uninterrupted period with a value of the secret."""
    inside = week.loc[week["secret"] == kind]
    continued = inside["time"] == inside["end"].shift()
    for _, period in inside.groupby((~continued).cumsum()):
        yield period["time"].to_numpy()[0], period["end"].to_numpy()[-1]
