"""Images before and after: the middle of a trade-off curve and its private end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privnets.points import TradeoffPoint
from sweeps.report.chosen import Chosen
from sweeps.report.stored import UnusableError, read_tensors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILE = "release.safetensors"
SECRETS: Mapping[str, tuple[str, ...]] = {
    "amnist": ("thin", "thick"),
    "digits": ("thin", "thick"),
}
"""Problem to the names of its secret's classes."""

_MOST_IMAGES = 20
_LARGEST = 256
_CELL, _MARGIN, _GAP = 0.48, 2.7, 0.12
_HEAD = 0.45


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """Test images of one replicate.

    Attributes:
        original: Ink in [0, 1], shape [m, h, w].
        released: Shape [m, h, w].
        labels: What each shows.
    """

    original: NDArray[np.float64]
    released: NDArray[np.float64]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Strip:
    """A row of images, labelled or not, and whether it is the first of a curve."""

    words: str
    images: NDArray[np.float64]
    labels: tuple[str, ...] = ()
    first: bool = False


def read_images(point: TradeoffPoint) -> Images:
    """A point's images, at most 20.

    Raises:
        UnusableError: If it has none that can be shown.
    """
    image = ("m", 1, "h", "w")
    shapes = {"original": image, "released": image, "secret": ("m",), "utility": ("m",)}
    found = read_tensors(point, FILE, shapes)
    if max(found["original"].shape[2:]) > _LARGEST:
        raise UnusableError(f"images must be at most {_LARGEST} pixels wide and high")
    names = SECRETS.get(str(point.config.get("problem")), ())
    pairs = zip(found["utility"][:_MOST_IMAGES], found["secret"][:_MOST_IMAGES], strict=True)
    labels = tuple(f"{utility:.0f}\n{_named(secret, names)}" for utility, secret in pairs)
    original, released = (_ink(found[key]) for key in ("original", "released"))
    return Images(original, released, labels)


def draw_releases(points: Sequence[Chosen[Images]]) -> Figure:
    """Original images above what became of them, dark ink on white."""
    from matplotlib.figure import Figure

    strips = list(_strips(points))
    columns = max(len(strip.images) for strip in strips)
    gaps = [_HEAD if strip.labels else _GAP if strip.first else 0.0 for strip in strips]
    height = _CELL * len(strips) + sum(gaps) + _GAP
    figure = Figure(figsize=(_MARGIN + _CELL * columns + 0.1, height))
    width, top = figure.get_figwidth(), height
    for strip, gap in zip(strips, gaps, strict=True):
        top -= gap + _CELL
        for column, image in enumerate(strip.images):
            left = (_MARGIN + _CELL * column) / width
            place = (left, top / height, 0.94 * _CELL / width, 0.94 * _CELL / height)
            axes = figure.add_axes(place)
            _show(axes, image, strip.labels[column] if strip.labels else "")
        where = ((_MARGIN - 0.1) / width, (top + _CELL / 2) / height)
        figure.text(*where, strip.words, ha="right", va="center", fontsize=6.5, parse_math=False)
    return figure


def _strips(points: Sequence[Chosen[Images]]) -> list[_Strip]:
    """Originals once for as many releases as share them, then the releases."""
    found: list[_Strip] = []
    shown: Images | None = None
    ended = False
    for chosen in points:
        images = chosen.content
        if shown is None or not np.array_equal(shown.original, images.original):
            shown = images
            found.append(_Strip("original", images.original, images.labels))
        found.append(_Strip(chosen.words, images.released, first=ended))
        ended = chosen.sample.role != "middle"
    return found


def _show(axes: Axes, image: NDArray[np.float64], label: str) -> None:
    axes.imshow(image, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set(linewidth=0.4, color="#adb5bd")
    axes.set_title(label, fontsize=7, pad=3)


def _ink(images: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(images[:_MOST_IMAGES, 0], dtype=np.float64).clip(0, 1)


def _named(value: Any, names: Sequence[str]) -> str:
    known = float(value).is_integer() and 0 <= value < len(names)
    return names[int(value)] if known else f"secret {value:.0f}"
