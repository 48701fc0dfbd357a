"""The pictures that a sweep's columns and stored files allow, to show in a page and to keep."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import plotly.graph_objects as go

from sweeps.report.chosen import Choice, Chosen, choose
from sweeps.report.figures import releases, scatter, week
from sweeps.report.figures.curves import CurveSet, curve_set
from sweeps.report.figures.panels import tradeoff_panels
from sweeps.report.figures.plane import planes
from sweeps.report.figures.plane_figure import draw_plane, plane_figure
from sweeps.report.figures.tradeoff import tradeoff_figure
from sweeps.report.figures.tradeoff_print import draw_tradeoff
from sweeps.report.sources import ReportSource

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
_DOTS = 150
_CHOSEN = (
    "Of a curve the middle is shown, half-way between raw data and the floor (or between the "
    "curve's ends, where these are not known), and the first point of full privacy: the smallest "
    "weight at which the strongest attacker's 95% interval reaches down to the floor, and not also "
    "a quarter of the way up to raw data, which would be too wide to say anything. Where no "
    "interval does, the most private point is shown and said to be that. Records are of the test "
    "split of the first replicate."
)


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture of a sweep.

    Attributes:
        name: Of its section, and of its file without the suffix.
        heading: Its section's.
        label: What it shows, for those who cannot see it.
        captions: What to know to read it, a paragraph each.
        missing: What could not be shown and why.
        explore: Makes the figure to explore; None where only `draw` shows it.
        draw: To print; None where nothing could be shown.
    """

    name: str
    heading: str
    label: str
    captions: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    explore: Callable[[], go.Figure] | None = None
    draw: Callable[[], Figure] | None = None

    @property
    def figure(self) -> go.Figure | None:
        """The figure to explore, made anew; None where there is none."""
        return None if self.explore is None else self.explore()

    @cached_property
    def png(self) -> bytes | None:
        """The print at 150 dots per inch; None where there is none."""
        if self.draw is None:
            return None
        sheet = io.BytesIO()
        self.draw().savefig(sheet, format="png", dpi=_DOTS)
        return sheet.getvalue()


def pictures(data: ReportSource) -> list[Picture]:
    """Every picture that the sweep allows, in the order of a report."""
    curves = curve_set(data)
    return [*_tradeoff(data, curves), *_releases(data, curves), *_week(data, curves),
            *_plane(data, curves), *_scatter(data, curves)]  # fmt: skip


def _tradeoff(data: ReportSource, curves: CurveSet) -> Iterator[Picture]:
    panels = tradeoff_panels(curves, data.objectives)
    if not panels:
        return
    joined = curves.joined and curves.along is not None
    order = f"Lines join points in order of {curves.along}. " if joined else ""
    total = len(data.points)
    left_out = total - len(panels[0].points)
    gaps = (
        f"{left_out} of {total} points did not finish or lack one of the two and are not shown.",
    )
    yield Picture(
        name="tradeoff",
        heading="Trade-off curves",
        label="The strongest attacker against utility, with 95% intervals, floor and raw data",
        captions=(
            "Means over replicates with 95% intervals, those much wider than the points lie apart "
            f"cut at the edge. {order}The floor is what an attacker "
            "reaches who never sees the release (from the prior, the utility label or side "
            "information alone): a point whose interval reaches it cannot be told from full "
            "privacy, and one curve is below another only where their intervals say so.",
        ),
        missing=gaps if left_out else (),
        explore=lambda: tradeoff_figure(curves, panels, data.objectives),
        draw=lambda: draw_tradeoff(curves, panels, data.objectives),
    )


def _releases(data: ReportSource, curves: CurveSet) -> Iterator[Picture]:
    choice = choose(data, curves, releases.FILE, releases.read_images, most=4)
    yield from _stored(
        choice, "releases", "Images before and after", "Original and released images",
        "Above each column: the utility label and the secret.", None, releases.draw_releases,
    )  # fmt: skip


def _week(data: ReportSource, curves: CurveSet) -> Iterator[Picture]:
    choice = choose(data, curves, week.FILE, week.read_week, most=3)
    yield from _stored(
        choice, "week", "A week of power before and after",
        "Power before and after its release, with occupancy",
        "Lines have gaps where nothing was measured; hatched is where nobody wrote down whether "
        "somebody was at home, which is not the same as nobody being there.",
        week.week_figure, week.draw_week,
    )  # fmt: skip


def _scatter(data: ReportSource, curves: CurveSet) -> Iterator[Picture]:
    choice = choose(data, curves, scatter.FILE, scatter.read_cloud, most=4)
    yield from _stored(
        choice, "scatter", "Releases in the plane", "Released records by their two bits",
        "U is to be kept and S to be hidden: where both markers of a colour lie alike, the "
        "release does not tell S.", None, scatter.draw_scatter,
    )  # fmt: skip


def _stored(
    choice: Choice[T] | None,
    name: str,
    heading: str,
    label: str,
    caption: str,
    figure: Callable[[Sequence[Chosen[T]]], go.Figure] | None,
    draw: Callable[[Sequence[Chosen[T]]], Figure],
) -> Iterator[Picture]:
    if choice is None:
        return
    points = choice.points
    yield Picture(
        name=name,
        heading=heading,
        label=label,
        captions=(caption, _CHOSEN) if points else (),
        missing=choice.missing,
        explore=(lambda: figure(points)) if figure and points else None,
        draw=(lambda: draw(points)) if points else None,
    )


def _plane(data: ReportSource, curves: CurveSet) -> Iterator[Picture]:
    found = planes(data, curves)
    if not found:
        return
    yield Picture(
        name="information-plane",
        heading="Information plane",
        label="Leakage against censored information: training, estimates, bound and optimum",
        captions=(
            "How much a release tells of the secret against how much it withholds of what is "
            "useful; no release comes below the solid line. A filled dot is the learned filter's "
            "exact information, the ring around it (with its 95% interval) what the attackers and "
            "utility networks estimate from data. A cross is the release of least loss at that "
            "weight, and on a short thick arc the loss is that of the best linear filter: a dot on "
            "its arc is optimal. "
            "Estimates from attackers who are not strong enough fall short of the exact leakage.",
        ),
        explore=lambda: plane_figure(found, curves.along),
        draw=lambda: draw_plane(found, curves.along),
    )
