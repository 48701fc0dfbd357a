"""Results that draw and describe themselves, for Python sessions and notebooks."""

from __future__ import annotations

import base64
import html
from collections.abc import Collection
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import pandas as pd

from sweeps.analysis.results import Result
from sweeps.analysis.tables import front_table
from sweeps.analysis.text import field_label, metric_label
from sweeps.report.headline import headline
from sweeps.store.recorded import open_ledger

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, repr=False)
class DisplayedResult(Result):
    """A result with figures, which notebooks show as a picture and a table of its front."""

    def _repr_html_(self) -> str:
        """The sweep's size, its result in words and its front, for notebooks without a network."""
        front = self.front(all=True)
        table = front_table(front, self.objectives, self.swept_fields)
        names = [metric_label(c) if "/" in c else field_label(c) for c in table.columns]
        content = pd.DataFrame(list(table.rows), columns=names).to_html(index=False)
        parts = [f"<p>{html.escape(line)}</p>" for line in (repr(self), headline(self, front))]
        if len(front):
            data = base64.b64encode(load_plots().draw_front(self, front)).decode()
            parts += [f'<img alt="Pareto front" width="600" src="data:image/png;base64,{data}">']
        return "".join((*parts, content))

    def plot_front(self, x: str | None = None, y: str | None = None) -> Figure:
        """Plots the Pareto front among all finished points, with 95% intervals.

        Args:
            x: Another metric for the x axis; the utility by default.
            y: Another metric for the y axis; the privacy metric by default.

        Raises:
            ValueError: If no point has a metric.
        """
        figure: Figure = load_plots().plot_front(self, x, y)
        return figure

    def plot_curves(self, point_ids: Collection[str] = ()) -> Figure:
        """Plots recorded curves of training, with 95% bands over replicates.

        Args:
            point_ids: Points to draw; a few of the front by default.

        Raises:
            ValueError: If these points recorded none.
        """
        figure: Figure = load_plots().plot_recorded(self, "training", point_ids)
        return figure

    def plot_roc(self, point_ids: Collection[str] = ()) -> Figure:
        """Plots ROC curves of the attacks, with 95% bands over replicates; see `plot_curves`."""
        figure: Figure = load_plots().plot_recorded(self, "roc", point_ids)
        return figure


def open_displayed(sweep: str, storage: str | None = None) -> DisplayedResult:
    """Reads a sweep, running or ended, from a storage directory or URI.

    `recorded:NAME` reads a finished sweep that comes with the project.

    Raises:
        InputError: If there is no such sweep, or its `spec.yaml` is damaged.
    """
    return DisplayedResult.read(open_ledger(sweep, storage))


def load_plots() -> ModuleType:
    """Imports `sweeps.report.plots`, which loads plotting libraries: about a second."""
    from sweeps.report import plots

    return plots
