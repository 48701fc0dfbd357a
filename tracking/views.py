"""Descriptions and views on MLflow's pages: which runs, columns and charts a link shows.

Importing this module does not load MLflow.

MLflow keeps a view that a person shares as a tag of the experiment, as JSON. The form is private to
its pages; this module knows that of MLflow 3.17, and `tests/tracking/test_ui.py` fails when an
upgrade changes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

FIRST = "_"
"""Prefix of copies of objectives and swept fields, so that they lead MLflow's sorted lists."""

VIEW = "mlflow.sharedViewState."
"""Prefix of an experiment's tag that holds a view of MLflow's pages: filter, columns, charts."""

_ALL_RUNS = 100_000


def sweep_note(sweep: str, study: str, headline: str = "") -> str:
    """Returns the description of a sweep's parent run, which leads with the headline."""
    return f"{headline}\n\n".lstrip() + (
        f"Sweep **{sweep}** of the study **{study}**. Each child run is a trade-off point: one "
        "configuration. Every metric is a mean over replicates. To compare points, select them in "
        "the table. For a knob on a logarithmic scale choose its `log10_` parameter. The artifacts "
        "of this run are the specification, all points, the Pareto front and the report.\n\n"
        f"`sweeps points {sweep}` and `sweeps pareto {sweep}` print the same tables."
    )


def sweep_view(condition: str, params: Sequence[str], metrics: Sequence[str]) -> str:
    """Returns the view of a sweep's points: a chart of two metrics, and parallel coordinates.

    Args:
        condition: Condition on runs that selects the points, as MLflow writes it.
        params: Parameters, as columns and as axes of the parallel coordinates.
        metrics: Metrics, likewise; the first is the vertical axis of the chart of two.
    """
    section = "objectives"
    common = {"metricSectionId": section, "deleted": False, "isGenerated": False}
    parallel = {
        "type": "PARALLEL",
        "uuid": "parallel",
        "runsCountToCompare": _ALL_RUNS,
        "selectedParams": list(params),
        "selectedMetrics": list(metrics),
        "showAllRuns": True,
        **common,
    }
    vertical, horizontal = metrics[0], metrics[-1]
    scatter = {
        "type": "SCATTER",
        "uuid": "scatter",
        "runsCountToCompare": _ALL_RUNS,
        "xaxis": {"key": horizontal, "type": "METRIC"},
        "yaxis": {"key": vertical, "type": "METRIC"},
        **common,
    }
    return json.dumps(
        {
            "searchFilter": condition,
            "orderByKey": f"metrics.`{vertical}`",
            "orderByAsc": True,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "selectedColumns": [
                *(f"params.`{name}`" for name in params),
                *(f"metrics.`{name}`" for name in metrics),
            ],
            "runsHiddenMode": "SHOWALL",
            "compareRunCharts": [scatter, parallel],
            "compareRunSections": [
                {
                    "uuid": section,
                    "name": "Objectives and swept fields",
                    "display": True,
                    "columns": 2,
                    "cardHeight": 480,
                    "isReordered": True,
                    "deleted": False,
                    "isGenerated": False,
                }
            ],
            "isAccordionReordered": True,
            "hideEmptyCharts": True,
        }
    )
