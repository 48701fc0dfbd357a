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
_CELL, _LETTER, _GAP = 0.48, 0.053, 0.12
_HEAD = 0.45
_FINE, _FRAME = 84, "#adb5bd"


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
    longest = max(len(line) for strip in strips for line in strip.words.splitlines())
    margin = 0.3 + _LETTER * longest
    figure = Figure(figsize=(margin + _CELL * columns + 0.1, height))
    width, top = figure.get_figwidth(), height
    for strip, gap in zip(strips, gaps, strict=True):
        top -= gap + _CELL
        extent = (_CELL * len(strip.images) / width, 0.96 * _CELL / height)
        _show(figure.add_axes((margin / width, top / height, *extent)), strip)
        where = ((margin - 0.1) / width, (top + _CELL / 2) / height)
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


def _show(axes: Axes, strip: _Strip) -> None:
    from matplotlib import colormaps

    shades = colormaps["gray_r"].with_extremes(bad=_FRAME)
    image = axes.imshow(tiled(strip.images), cmap=shades, vmin=0, vmax=1, aspect="auto")
    image.set(extent=(0, len(strip.images), 0, 1), interpolation="nearest")
    axes.set_axis_off()
    for column, label in enumerate(strip.labels):
        axes.text(column + 0.5, 1.06, label, fontsize=7, ha="center", va="bottom")


def tiled(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Images side by side, in pixels fine enough for a thin frame, which is NaN.

    Args:
        images: Shape [m, h, w].

    Returns:
        Shape [h * k, m * w * k] for some whole k.
    """
    fine = max(1, -(-_FINE // max(images.shape[1:])))
    large = images.repeat(fine, axis=1).repeat(fine, axis=2)
    large[:, [0, -1], :] = np.nan
    large[:, :, [0, -1]] = np.nan
    return np.concatenate(list(large), axis=1)


def _ink(images: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(images[:_MOST_IMAGES, 0], dtype=np.float64).clip(0, 1)


def _named(value: Any, names: Sequence[str]) -> str:
    known = float(value).is_integer() and 0 <= value < len(names)
    return names[int(value)] if known else f"secret {value:.0f}"
