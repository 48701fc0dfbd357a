"""Access to charts for tests."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.report.figures.charts import Chart, ChartSeries


def all_series(chart: Chart) -> Iterator[ChartSeries]:
    """The series of every panel."""
    for panel in chart.panels:
        yield from panel.series


def find_series(chart: Chart, start: str) -> list[ChartSeries]:
    """The series whose legend entry starts with a text."""
    return [series for series in all_series(chart) if series.name.startswith(start)]
