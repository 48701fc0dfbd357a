"""Figures of pages, which are described without Plotly's own objects."""

from __future__ import annotations

import json

import numpy as np
import pytest
from plotly.subplots import make_subplots

from sweeps.report.figures.charts import Chart, ChartAxis, ChartPanel, ChartSeries
from sweeps.report.figures.plotly_charts import describe_figure, figure_json, plotly_figure


def chart(panels: int, columns: int) -> Chart:
    """Panels with titles and a line each."""
    x, y = ChartAxis("time"), ChartAxis("loss")
    series = [ChartSeries(np.arange(3.0), np.ones(3), "a", line="solid")]
    return Chart([ChartPanel(x, y, series, f"no {i}") for i in range(panels)], columns=columns)


@pytest.mark.parametrize(("panels", "columns"), [(1, 2), (2, 2), (3, 2), (4, 2), (5, 3), (2, 1)])
def test_panels_lie_where_subplots_of_plotly_do(panels, columns):
    drawn = chart(panels, columns)
    rows, across = drawn.shape
    expected = make_subplots(
        rows=rows,
        cols=across,
        subplot_titles=[panel.title for panel in drawn.panels],
        horizontal_spacing=0.24 / max(across, 2),
        vertical_spacing=95 / (drawn.panel_height * rows) if rows > 1 else 0,
    ).layout
    layout = plotly_figure(drawn).layout
    for index in range(panels):
        for axis in (f"xaxis{index + 1}", f"yaxis{index + 1}"):
            assert layout[axis].domain == pytest.approx(expected[axis].domain)
            assert layout[axis].anchor == expected[axis].anchor
    for title, other in zip(layout.annotations, expected.annotations, strict=True):
        assert (title.text, title.xanchor, title.yanchor) == (
            other.text,
            other.xanchor,
            other.yanchor,
        )
        assert (title.x, title.y) == pytest.approx((other.x, other.y))


def test_a_name_has_one_entry_in_the_legend():
    entries = [trace.name for trace in plotly_figure(chart(3, 2)).data if trace.showlegend]
    assert entries == ["a"]


def test_numbers_that_json_lacks_are_null():
    drawn = chart(1, 1)
    description = describe_figure(drawn)
    description["layout"]["yaxis"]["range"] = [float("nan"), 1.0]
    assert json.loads(figure_json(description))["layout"]["yaxis"]["range"] == [None, 1.0]
