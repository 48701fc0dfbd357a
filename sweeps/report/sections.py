"""Figure sections of a report, also kept as PNG files: those that a sweep's data allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from matplotlib.figure import Figure

from sweeps.analysis.results import Result
from sweeps.report.figures import releases
from sweeps.report.figures.charts import Chart
from sweeps.report.figures.curves import CurveSet, group_curves
from sweeps.report.figures.plane import information_plane
from sweeps.report.figures.png_charts import chart_png, figure_png
from sweeps.report.figures.tradeoff import tradeoff_chart, tradeoff_pairs
from sweeps.report.sources import ChosenPoint, PointChoice, choose_points

T = TypeVar("T")

_TRADEOFF_CAPTION = (
    "Means over replicates with 95% intervals; intervals much wider than the range of the points "
    "are cut at the edge. {order}The floor is the balanced accuracy of an attacker without the "
    "release (from the prior, the utility label or side information alone). A point whose interval "
    "reaches the floor cannot be distinguished from full privacy. One curve is below another only "
    "where their intervals say so."
)
_PLANE_CAPTION = (
    "Information of a release about the secret against useful information that it withholds; no "
    "release is below the solid line. A filled dot is the exact information of the learned filter, "
    "the ring around it (with its 95% interval) the estimate of attackers and utility networks "
    "from data. A cross is the release of least loss at that weight. On a short thick arc the loss "
    "is that of the best linear filter: a dot on its arc is optimal. Estimates of weak attackers "
    "are below the exact leakage."
)
_CHOICE_CAPTION = (
    "Shown of each curve: the middle, half-way between raw data and the floor (or between the "
    "curve's ends, where these are unknown), and the first point of full privacy. That is the "
    "smallest weight at which the strongest attacker's 95% interval reaches the floor, but not a "
    "quarter of the way up to raw data, which would be too wide. Without such a point the most "
    "private one is shown. Records are from the test split of the first replicate."
)


@dataclass(frozen=True, eq=False)
class FigureSection:
    """Figure of a report with its texts.

    Attributes:
        name: Name of the section, and of the PNG file without the suffix.
        heading: Heading of the section.
        label: Description for readers who cannot see the figure.
        captions: Paragraphs below the figure.
        missing: Sentences about data that could not be shown.
        chart: Chart to draw, if any.
        images: Draws images in place of a chart.
    """

    name: str
    heading: str
    label: str
    captions: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    chart: Chart | None = None
    images: Callable[[], Figure] | None = None

    @cached_property
    def png(self) -> bytes | None:
        """Content of the PNG file; None if nothing could be shown."""
        if self.images is not None:
            return figure_png(self.images())
        return None if self.chart is None else chart_png(self.chart)


def figure_sections(result: Result) -> list[FigureSection]:
    """Every figure section that the sweep's data allow, in the order of a report."""
    curves = group_curves(result)
    return [
        *_tradeoff(result, curves),
        *_images(result, curves),
        *_week(result, curves),
        *_plane(result, curves),
        *_records(result, curves),
    ]


def _tradeoff(result: Result, curves: CurveSet) -> Iterator[FigureSection]:
    pairs = tradeoff_pairs(curves, result.objectives)
    if not pairs:
        return
    joined = curves.joined and curves.along is not None
    order = f"Lines join points in order of {curves.along}. " if joined else ""
    total = len(result.points)
    left_out = total - len(pairs[0][2])
    sentence = f"{left_out} of {total} points are not shown: unfinished, or a metric is undefined."
    yield FigureSection(
        "tradeoff",
        "Trade-off curves",
        "The strongest attacker against utility, with 95% intervals, floor and raw data",
        (_TRADEOFF_CAPTION.format(order=order),),
        (sentence,) if left_out else (),
        tradeoff_chart(curves, pairs, result.objectives),
    )


def _images(result: Result, curves: CurveSet) -> Iterator[FigureSection]:
    choice = choose_points(result, curves, releases.IMAGES_FILE, releases.read_images, 4)
    texts = ("releases", "Images before and after", "Original and released images")
    caption = "Above each column: the utility label and the secret."
    yield from _section_of_choice(choice, texts, caption, images=releases.draw_images)


def _week(result: Result, curves: CurveSet) -> Iterator[FigureSection]:
    choice = choose_points(result, curves, releases.WEEK_FILE, releases.read_week, 3)
    label = "Power before and after its release, with occupancy"
    caption = (
        "Lines have gaps where nothing was measured. Hatched: occupancy was not recorded, which "
        "does not mean that the home was empty."
    )
    texts = ("week", "A week of power before and after", label)
    yield from _section_of_choice(choice, texts, caption, chart=releases.week_chart)


def _records(result: Result, curves: CurveSet) -> Iterator[FigureSection]:
    choice = choose_points(result, curves, releases.RECORDS_FILE, releases.read_records, 4)
    texts = ("scatter", "Releases in the plane", "Released records by their two bits")
    caption = (
        "U is the useful bit, S the secret one. Where both markers of a color lie alike, the "
        "release does not reveal S."
    )
    yield from _section_of_choice(choice, texts, caption, chart=releases.records_chart)


def _section_of_choice(
    choice: PointChoice[T] | None,
    texts: tuple[str, str, str],
    caption: str,
    chart: Callable[[Sequence[ChosenPoint[T]]], Chart] | None = None,
    images: Callable[[Sequence[ChosenPoint[T]]], Figure] | None = None,
) -> Iterator[FigureSection]:
    if choice is None:
        return
    points = choice.points
    yield FigureSection(
        *texts,
        captions=(caption, _CHOICE_CAPTION) if points else (),
        missing=choice.missing,
        chart=chart(points) if chart and points else None,
        images=(lambda: images(points)) if images and points else None,
    )


def _plane(result: Result, curves: CurveSet) -> Iterator[FigureSection]:
    chart = information_plane(result, curves)
    if chart is not None:
        label = "Leakage against censored information: training, estimates, bound and optimum"
        yield FigureSection(
            "information-plane", "Information plane", label, (_PLANE_CAPTION,), chart=chart
        )
