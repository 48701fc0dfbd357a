"""A week of power before and after, with what was secret: whether somebody was at home."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from privnets.points import TradeoffPoint
from sweeps.report.chosen import Chosen
from sweeps.report.figures.plots import DOMINATED, FRONT, THEME
from sweeps.report.stored import UnusableError, read_tensors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILE = "week.safetensors"

_MOST_DAYS, _MOST_STEPS = 7, 1440
_DAYS = (np.datetime64("1990-01-01").astype(int), np.datetime64("2100-01-01").astype(int))
_ORIGINAL, _HOME = "#9aa3ab", "#4dabf7"
_KINDS = {1: "at home", -1: "occupancy not recorded"}
_SHADES: Mapping[int, Mapping[str, Any]] = {
    1: {"color": "rgba(77,171,247,.3)", "line": {"width": 0}},
    -1: {
        "color": "rgba(0,0,0,0)",
        "line": {"width": 0},
        "pattern": {"shape": "/", "size": 7, "solidity": 0.12, "fgcolor": DOMINATED},
    },
}
_PRINTED: Mapping[int, Mapping[str, Any]] = {
    1: {"color": _HOME, "alpha": 0.25, "linewidth": 0},
    -1: {"facecolor": "none", "edgecolor": "#ced4da", "hatch": "////", "linewidth": 0},
}
_POWER = "power, W"


@dataclass(frozen=True, slots=True, eq=False)
class Week:
    """A few days of one replicate's test records, in order of time.

    Attributes:
        time: When each step begins, shape [n].
        step: How long it takes.
        original: Watts, shape [n]; NaN where nothing was measured.
        released: Watts, shape [n]; likewise.
        secret: 1 at home, 0 away, -1 not recorded, shape [n].
    """

    time: NDArray[np.datetime64]
    step: np.timedelta64
    original: NDArray[np.float64]
    released: NDArray[np.float64]
    secret: NDArray[np.int64]

    def stretches(self, kind: int) -> Iterator[tuple[np.datetime64, np.datetime64]]:
        """From when to when the secret is of a kind without a break."""
        inside = np.flatnonzero(self.secret == kind)
        gaps = np.diff(self.time[inside]) != self.step
        for part in np.split(inside, np.flatnonzero(gaps) + 1):
            if len(part):
                yield self.time[part[0]], self.time[part[-1]] + self.step


def read_week(point: TradeoffPoint) -> Week:
    """A point's days.

    Raises:
        UnusableError: If it has none that can be shown.
    """
    table = ("d", "T")
    shapes = {**dict.fromkeys(("original", "released", "secret", "present"), table), "day": ("d",)}
    found = read_tensors(point, FILE, shapes)
    days, steps = found["original"].shape
    if days > _MOST_DAYS or steps > _MOST_STEPS:
        raise UnusableError(f"a week has at most {_MOST_DAYS} days of {_MOST_STEPS} steps")
    day = found["day"].astype(np.int64)
    if day.min() < _DAYS[0] or day.max() > _DAYS[1] or len(set(day.tolist())) < days:
        raise UnusableError("day must be different days since 1970-01-01, between 1990 and 2100")
    order = np.argsort(day)
    # A step may be a broken number of seconds; a whole week is none of milliseconds.
    step = np.timedelta64(86_400_000_000 // steps, "us")
    time: NDArray[np.datetime64] = day[order].astype("datetime64[D]").astype("datetime64[us]")
    absent = found["present"][order] == 0
    secret = found["secret"][order].astype(np.int64)
    return Week(
        time=np.add.outer(time, step * np.arange(steps)).ravel(),
        step=step,
        original=np.where(absent, np.nan, found["original"][order]).ravel(),
        released=np.where(absent, np.nan, found["released"][order]).ravel(),
        secret=np.where(np.isin(secret, (0, 1)), secret, -1).ravel(),
    )


def week_figure(points: Sequence[Chosen[Week]]) -> go.Figure:
    """A panel per point: power before and after, at home shaded, not recorded hatched."""
    rows = len(points)
    figure = make_subplots(
        rows=rows,
        cols=1,
        vertical_spacing=0.4 / max(rows, 2),
        subplot_titles=[html.escape(_title(chosen)).replace("\n", "<br>") for chosen in points],
        specs=[[{"secondary_y": True}]] * rows,
    )
    named: set[str] = set()
    for row, chosen in enumerate(points, start=1):
        for trace, on_top in _traces(chosen.content):
            trace.showlegend = trace.name not in named
            named.add(trace.name)
            figure.add_trace(trace, row=row, col=1, secondary_y=on_top)
        # What lies on the second axis is drawn above what lies on the first.
        shade = {"range": [0, 1], "visible": False, "fixedrange": True}
        figure.update_yaxes(**shade, row=row, secondary_y=False)
        power = {"title_text": _POWER, "side": "left", "rangemode": "tozero", "tickmode": "auto"}
        figure.update_yaxes(**power, row=row, secondary_y=True)
    figure.update_annotations(font={"size": 12}, x=0, xanchor="left", align="left")
    figure.update_xaxes(tickformat="%a<br>%d %b<br>%Y", dtick=86_400_000, tickangle=0)
    return figure.update_layout(
        template=THEME, height=90 + 260 * rows, barmode="overlay", margin={"t": 90, "b": 60}
    )


def draw_week(points: Sequence[Chosen[Week]]) -> Figure:
    """The same to print."""
    from matplotlib.figure import Figure

    rows = len(points)
    figure = Figure(figsize=(10, 0.5 + 2.2 * rows), layout="constrained")
    panels = figure.subplots(rows, 1, squeeze=False)[:, 0]
    for axes, chosen in zip(panels, points, strict=True):
        _draw(axes, chosen.content)
        axes.set_title(_title(chosen), loc="left", fontsize="small", parse_math=False)
        axes.set_ylabel(_POWER)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        days = np.unique(chosen.content.time.astype("datetime64[D]"))
        axes.set_xticks(_numbers(days), [f"{day:%a %d %b %Y}" for day in days.tolist()], ha="left")
        axes.grid(alpha=0.2)
    handles: dict[str, Any] = {}
    for axes in panels:
        handles.update(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        list(handles.values()), list(handles), loc="outside upper center", ncols=4, frameon=False
    )
    return figure


def _title(chosen: Chosen[Week]) -> str:
    words = chosen.sample.words.replace("\n", " ")
    return f"{chosen.name}\n{words}" if chosen.name else words


def _traces(week: Week) -> Iterator[tuple[go.Bar | go.Scatter, bool]]:
    """Shades and power, and whether it is power."""
    for kind, look in _SHADES.items():
        spans = list(week.stretches(kind))
        if spans:
            yield _shade(spans, kind, look), False
    for name, values, color, width in _powers(week):
        times, heights = _broken(week, values)
        yield (
            go.Scatter(
                x=np.datetime_as_string(times, unit="s"),
                y=heights,
                name=name,
                mode="lines",
                line={"shape": "hv", "color": color, "width": width},
                hovertemplate=f"{name}: %{{y:.0f}} W<br>%{{x}}<extra></extra>",
            ),
            True,
        )


def _shade(
    spans: Sequence[tuple[np.datetime64, np.datetime64]], kind: int, look: Mapping[str, Any]
) -> go.Bar:
    middles = [np.datetime_as_string(left + (right - left) // 2, unit="s") for left, right in spans]
    return go.Bar(
        x=middles,
        y=[1] * len(spans),
        width=[int((right - left) / np.timedelta64(1, "ms")) for left, right in spans],
        name=_KINDS[kind],
        marker=dict(look),
        hoverinfo="skip",
    )


def _powers(week: Week) -> Iterator[tuple[str, NDArray[np.float64], str, float]]:
    # The wider line shows beneath the other where both are alike.
    yield "original", week.original, _ORIGINAL, 3.0
    yield "released", week.released, FRONT, 1.3


def _broken(
    week: Week, values: NDArray[np.float64]
) -> tuple[NDArray[np.datetime64], NDArray[np.float64]]:
    """Steps, each held to its end, with a gap where days or values are missing."""
    apart = np.append(np.diff(week.time) != week.step, True)
    absent = np.append(np.isnan(values[1:]), True)
    ends = np.flatnonzero(~np.isnan(values) & (apart | absent)) + 1
    closes = week.time[ends - 1] + week.step
    times = np.insert(week.time, np.repeat(ends, 2), np.repeat(closes, 2))
    held = np.column_stack([values[ends - 1], np.full(len(ends), np.nan)]).ravel()
    return times, np.insert(values, np.repeat(ends, 2), held)


def _draw(axes: Axes, week: Week) -> None:
    for kind, look in _PRINTED.items():
        for index, span in enumerate(week.stretches(kind)):
            left, right = _numbers(np.array(span))
            axes.axvspan(left, right, label="_" if index else _KINDS[kind], **look)
    for name, values, color, width in _powers(week):
        times, heights = _broken(week, values)
        days, style = _numbers(times), "steps-post"
        axes.plot(days, heights, color=color, linewidth=width, label=name, drawstyle=style)
    axes.set_xlim(*_numbers(np.array([week.time[0], week.time[-1] + week.step])))


def _numbers(times: NDArray[np.datetime64]) -> list[float]:
    """Times as days, which is how matplotlib places them."""
    elapsed = times.astype("datetime64[us]").astype(np.int64)
    return [float(one) / 86_400_000_000 for one in elapsed]
