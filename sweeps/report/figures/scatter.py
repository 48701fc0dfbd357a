"""Releases in the plane, coloured by what is useful and what is secret."""

from __future__ import annotations

from collections.abc import Sequence
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

FILE = "scatter.safetensors"

_MOST = 1000
_COLUMNS = 4
# Colour tells the useful bit, marker and lightness the secret (Okabe and Ito's colours).
_LOOKS = {
    (0, 0): ("#0072b2", "o"),
    (0, 1): ("#56b4e9", "^"),
    (1, 0): ("#d55e00", "o"),
    (1, 1): ("#e69f00", "^"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """Released test records of one replicate.

    Attributes:
        released: Shape [m, 2].
        utility: 0 or 1, shape [m].
        secret: 0 or 1, shape [m].
        filter: Of the linear releaser, shape [2, 2].
    """

    released: NDArray[Any]
    utility: NDArray[Any]
    secret: NDArray[Any]
    filter: NDArray[Any]


def read_cloud(point: TradeoffPoint) -> Cloud:
    """A point's releases, at most 1000.

    Raises:
        UnusableError: If it has none that can be shown.
    """
    shapes = {"released": ("m", 2), "utility": ("m",), "secret": ("m",), "filter": (2, 2)}
    found = read_tensors(point, FILE, shapes)
    for bit in ("utility", "secret"):
        if not np.isin(found[bit], (0, 1)).all():
            raise UnusableError(f"{bit} must hold 0 and 1 alone")
    released, utility, secret = (found[k][:_MOST] for k in ("released", "utility", "secret"))
    return Cloud(released, utility, secret, found["filter"])


def draw_scatter(points: Sequence[Chosen[Cloud]]) -> Figure:
    """A panel per point, both coordinates on one scale, with the centre of each class."""
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(points))
    rows = -(-len(points) // columns)
    figure = Figure(figsize=(0.4 + 2.9 * columns, 0.6 + 3.1 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat[len(points) :]:
        axes.set_visible(False)
    for axes, chosen in zip(panels.flat, points, strict=False):
        _draw(axes, chosen.content)
        axes.set_title(_title(chosen), fontsize=8, parse_math=False)
        axes.set_aspect("equal", adjustable="datalim")
        axes.grid(alpha=0.2)
    for axes in panels[:, 0]:
        axes.set_ylabel("released, second coordinate", fontsize="small")
    for column in range(columns):
        panels[(len(points) - 1 - column) // columns, column].set_xlabel(
            "released, first coordinate", fontsize="small"
        )
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=5, frameon=False, markerscale=2
    )
    return figure


def _draw(axes: Axes, cloud: Cloud) -> None:
    for (utility, secret), (color, marker) in _LOOKS.items():
        inside = (cloud.utility == utility) & (cloud.secret == secret)
        x, y = cloud.released[inside].T
        name = f"U = {utility}, S = {secret}"
        axes.plot(x, y, marker, color=color, ms=3, alpha=0.55, mew=0, label=name)
    cells = np.unique(np.column_stack([cloud.utility, cloud.secret]), axis=0)
    corners = cells @ cloud.filter.T
    axes.plot(*corners.T, "P", color="black", mec="white", ms=7, label="centre of a class")


def _title(chosen: Chosen[Cloud]) -> str:
    name = chosen.name.replace(", ", "\n") or "the release"
    return f"{name}\n({chosen.sample.role})"
