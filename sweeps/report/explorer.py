"""Data of the page's table of all points, which sorts, filters, and follows figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sweeps.analysis.results import PHASE, is_only_searched
from sweeps.analysis.tables import (
    FRONT_GROUP,
    FRONT_PROBABILITY,
    row_interval,
    select_records,
)
from sweeps.analysis.text import (
    field_label,
    format_setting,
    metric_label,
    setting_as_number,
    short_ids,
)
from sweeps.report.contents import ReportContents
from sweeps.report.tables import flag_texts


def explorer_data(report: ReportContents, artifacts: str = "", runs: str = "") -> dict[str, Any]:
    """Columns of the table of all points; rows are in the order of `report.points`.

    Each column has a key, a heading, texts, and numbers (None for NaN) if it has any; a metric also
    has the lower and upper ends of its 95% intervals, if any is known. A point that a search tried
    but did not confirm has none: the interval of a single seed is too short.

    Args:
        report: A sweep's report.
        artifacts: Address of the folder that has a folder of each point; empty for no links.
        runs: Address of a search in MLflow, to which a point's id is added; empty for no links.
    """
    points = report.points
    return {
        "columns": list(_columns(report, points)),
        "ids": points["point_id"].tolist(),
        "shown": [*short_ids(points["point_id"]).values()],
        "artifacts": artifacts,
        "runs": runs,
    }


def _columns(report: ReportContents, points: pd.DataFrame) -> Iterator[dict[str, Any]]:
    result = report.result
    claimed = [claim.metric for claim in result.study.claims]
    metrics = [m for m in dict.fromkeys([*result.objectives, *claimed]) if m in points]
    phases = points.get(PHASE)
    fields = [f for f in report.fields if f"config/{f}" in points]
    rows = select_records(points, fields, metrics)
    searched = is_only_searched(points)
    for metric in metrics:
        intervals = [row_interval(row, metric) for row in rows]
        means = [interval.plus_minus for interval in intervals]
        column = _column(metric, metric_label(metric), means, points[metric].to_numpy())
        ends = [
            _numbers(np.where(searched, math.nan, [getattr(each, end) for each in intervals]))
            for end in ("low", "high")
        ]
        yield {**column, "ends": ends} if any(end is not None for end in ends[0]) else column
    if phases is not None:
        yield _column(PHASE, PHASE, phases.tolist())
    counts = points["replicates"]
    if phases is not None or counts.nunique() > 1:
        yield _column("replicates", "replicates", counts.astype(str).tolist(), counts.to_numpy())
    for field in fields:
        values = points[f"config/{field}"].tolist()
        numbers = np.array([setting_as_number(value) for value in values])
        known = numbers if np.isfinite(numbers).any() else None
        yield _column(f"config/{field}", field_label(field), [*map(format_setting, values)], known)
    front = report.front.set_index("point_id")
    for name, heading in ((FRONT_GROUP, "front group"), (FRONT_PROBABILITY, "P(on front)")):
        if name in front:
            numbers = front[name].reindex(points["point_id"]).to_numpy(dtype=np.float64)
            yield _column(
                name, heading, ["" if math.isnan(n) else f"{n:.2g}" for n in numbers], numbers
            )
    flags = ["; ".join(own) for own in flag_texts(points)]
    if any(flags):
        yield _column("flags", "flags", flags)
    if points["status"].nunique() > 1:
        yield _column("status", "status", points["status"].tolist())


def _column(
    key: str, heading: str, texts: Sequence[str], numbers: Any | None = None
) -> dict[str, Any]:
    column: dict[str, Any] = {"key": key, "label": heading, "texts": list(texts)}
    if numbers is not None:
        column["numbers"] = _numbers(numbers)
    return column


def _numbers(values: Iterable[float]) -> list[float | None]:
    """Numbers as JSON has them: None for NaN, and no infinities; far numbers sort alike."""
    known = (float(value) for value in values)
    return [None if math.isnan(v) else float(f"{max(min(v, 1e300), -1e300):.6g}") for v in known]
