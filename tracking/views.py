"""Views of MLflow's pages: which runs, columns and charts a link shows.

MLflow keeps a view that a person shares as a tag of the experiment, as JSON. The form is private to
its pages; this module knows that of MLflow 3.17, and `tests/tracking/test_ui.py` fails when an
upgrade changes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tracking import runs

_ALL_RUNS = 100_000


def sweep_view(sweep: str, params: Sequence[str], metrics: Sequence[str]) -> str:
    """Returns the view of a sweep's points: a chart of two metrics, and parallel coordinates.

    Args:
        sweep: Name of the sweep.
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
            "searchFilter": f"tags.{runs.KIND} = 'point' and tags.{runs.SWEEP} = '{sweep}'",
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
