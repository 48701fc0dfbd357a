"""Tables of points: access to rows of a frame, and text tables for terminals and reports."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from privnets.contract import Direction
from privnets.membership.config import MECHANISM_FIELDS, MODELS, PRIVACY_FIELDS
from privnets.statistics.intervals import Interval
from sweeps.analysis.pareto import problem_fields
from sweeps.analysis.text import Table, field_label, format_setting, short_ids
from sweeps.study.search_space import is_shared

Row = Mapping[Hashable, Any]
"""A row of a frame of points, as `DataFrame.to_dict("records")` gives it."""


class PointGroup(NamedTuple):
    """Points that agree in some fields, with their values of these fields."""

    settings: Mapping[str, Any]
    points: pd.DataFrame


MAX_ROWS = 50
"""Rows that a table shows; a longer one is cut and says so."""

METRIC_BOUNDS: Mapping[str, str] = {"privacy/membership_advantage": "bound/advantage"}
"""Metric to the metric that holds its theoretical upper bound."""

METRIC_FLOORS: Mapping[str, str] = {
    "privacy/attacker_balanced_accuracy": "floor/attacker_balanced_accuracy"
}
"""Attacker's metric to the metric that holds the floor: the value without the release."""

_RATE = re.compile(r"privacy/attack/[^/]+/tpr_at_fpr_([0-9.]+)")
_UTILITY, _UTILITY_FLOOR = "utility/", "floor/utility_"

RAW_DATA_VALUES: Mapping[str, str | float] = {
    "privacy/attacker_balanced_accuracy": "baseline/attacker_balanced_accuracy",
    "utility/accuracy": "baseline/utility_accuracy",
    "utility/normalized_error": 0.0,
    "utility/censored": 0.0,
}
"""Metric to its value on unmodified data: another metric, or a constant."""

OBFUSCATION, STRENGTH = "config/obfuscation", "strength"
"""Column of the trivial obfuscation of a release, and the field of its strength."""

INTERVAL_SUFFIXES = (".ci_low", ".ci_high")

FRONT_PROBABILITY, FRONT_GROUP = "front/probability", "front/group"
"""Columns of `Result.front`: probability to be on the front, and group of inseparable points."""

_HEADINGS = {FRONT_PROBABILITY: "P(on front)", FRONT_GROUP: "group"}
_HEADING_NOTES = {
    FRONT_PROBABILITY: "P(on front): probability that the point is on the front of the true means.",
    FRONT_GROUP: (
        "Points of one group cannot be told apart from its first: differences paired by seed are "
        "within chance in every objective."
    ),
}


def front_table(
    front: pd.DataFrame, objectives: Mapping[str, Direction], fields: Sequence[str]
) -> Table:
    """Table of a Pareto front, with bounds of objectives.

    Each problem's points are best in the first objective first.

    Attacks on membership add the strongest one's true-positive rate at a low false-positive rate. A
    bound that is undefined at every point is left out. A front of `Result.front` also shows how
    likely each point is on it, and the group of points that intervals cannot separate.
    """
    bounds = [METRIC_BOUNDS[m] for m in objectives if METRIC_BOUNDS.get(m) in front]
    defined = [bound for bound in bounds if front[bound].notna().any()]
    # The largest true-positive rate of an attack near 1% false positives.
    known = (_RATE.fullmatch(str(column)) for column in front.columns[front.notna().any()])
    rates = [match for match in known if match]
    rate = min((match[1] for match in rates), key=lambda r: abs(float(r) - 0.01), default="")
    found = {str(match[0]): float(front[match[0]].mean()) for match in rates if match[1] == rate}
    defined += [max(found, key=found.__getitem__)] if found else []
    ordered = best_first(front, objectives)
    if problem := [f"config/{field}" for field in problem_fields(front)]:
        ordered = ordered.sort_values(problem, kind="stable")
    rows = ordered.iloc[evenly_spaced(len(front), MAX_ROWS)]
    others = [name for name in (FRONT_PROBABILITY, FRONT_GROUP) if name in front]
    cells = _cells(rows, [*objectives, *defined], fields, others)
    notes = [*(_HEADING_NOTES[name] for name in others), *_panel_notes(front, fields)]
    if len(rows) < len(front):
        notes.insert(0, f"{len(rows)} of {len(front)} points, evenly spaced along the front.")
    columns = (*objectives, *defined, *fields, *(_HEADINGS[name] for name in others), "point")
    return Table(columns, tuple(cells), " ".join(notes))


def points_table(points: pd.DataFrame, metrics: Sequence[str], fields: Sequence[str]) -> Table:
    """Table of points: metrics with half their 95% intervals, configurations, status."""
    others = tuple(name for name in ("phase", "replicates", "status") if name in points)
    cells = _cells(points.iloc[:MAX_ROWS], metrics, fields, others)
    table = limit_rows((*metrics, *fields, *others, "point"), cells, len(points))
    notes = filter(None, [table.note, *_panel_notes(points, fields)])
    return replace(table, note=" ".join(notes))


def panels(points: pd.DataFrame) -> list[str]:
    """Panels of attackers that judged points; none where exact information did."""
    if not {"config/panel", "config/evaluation"} <= {*points}:
        return []
    attacked = points.loc[points["config/evaluation"] == "attackers", "config/panel"]
    return sorted(attacked.dropna().unique())


def _panel_notes(points: pd.DataFrame, fields: Sequence[str]) -> list[str]:
    """Sentence on the panel that judged all points."""
    found = panels(points)
    if "panel" in fields or len(found) != 1 or (points["config/evaluation"] != "attackers").any():
        return []
    return [f"All points were judged by the {found[0]} panel of attackers."]


def _cells(
    points: pd.DataFrame, metrics: Sequence[str], fields: Sequence[str], others: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    shown, cells = short_ids(points["point_id"]), []
    for row in points.to_dict("records"):
        own, values = own_fields(row, fields), [row[other] for other in others]
        cells.append(
            (
                *(format_metric(row, metric) for metric in metrics),
                *(_format_field(row, f) if f in own else "" for f in fields),
                # A probability has two decimals, and is unknown if it is NaN.
                *(
                    f"{v:.2f}".replace("nan", "unknown") if isinstance(v, float) else str(v)
                    for v in values
                ),
                shown[row["point_id"]],
            )
        )
    return cells


def _format_field(row: Row, field: str) -> str:
    is_learned = f"config/{field}" == OBFUSCATION and row[OBFUSCATION] == "none"
    return "none (learned)" if is_learned else format_setting(row.get(f"config/{field}"))


def own_fields(row: Row, fields: Sequence[str]) -> list[str]:
    """The fields that have an effect.

    An obfuscation has its strength, records and yardstick. Training without epsilon has no
    mechanism, and each mechanism has fields of its own.
    """
    if row.get("experiment") == "membership" and "config/epsilon" in row:
        epsilon, model = row["config/epsilon"], row.get("config/model")
        mechanisms = MODELS.get(model).mechanisms if model in MODELS.names() else ()
        used = frozenset[str]()
        if epsilon is not None and not math.isnan(epsilon):
            used = PRIVACY_FIELDS  # of a model of the user all have an effect
            if mechanisms:
                chosen = row["config/mechanism"] if len(mechanisms) > 1 else mechanisms[0]
                used = MECHANISM_FIELDS[chosen] | ({"mechanism"} if len(mechanisms) > 1 else set())
        fields = [f for f in fields if f in used or f not in PRIVACY_FIELDS]
    if (kind := row.get(OBFUSCATION)) is None:
        return list(fields)
    others = {"obfuscation": True, STRENGTH: kind != "none"}
    return [f for f in fields if others.get(f, kind == "none" or is_shared(f))]


def limit_rows(
    columns: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    total: int,
    limit: int = MAX_ROWS,
) -> Table:
    """A table of the first `limit` rows, with a note of how many more there are."""
    first = tuple(rows[:limit])
    note = f"{total - len(first):,} more are not shown." if total > len(first) else ""
    return Table(columns, first, note)


def best_first(front: pd.DataFrame, objectives: Mapping[str, Direction]) -> pd.DataFrame:
    """The rows sorted by the first objective, the best first."""
    metric, direction = next(iter(objectives.items()))
    return front.sort_values(metric, ascending=direction == "min", kind="stable")


def evenly_spaced(count: int, limit: int) -> list[int]:
    """At most `limit` of the indices 0 to `count` - 1, evenly spaced, with the first and last."""
    indices: list[int] = np.linspace(0, count - 1, min(count, limit)).round().astype(int).tolist()
    return indices


def describe_config(row: Row, fields: Sequence[str]) -> str:
    """Values of the fields in which points differ, as `field = value`."""
    own = own_fields(row, fields)
    values = [f"{field_label(f)} = {format_setting(row.get(f'config/{f}'))}" for f in own]
    return ", ".join(values) or "the only point"


def row_interval(row: Row, metric: str) -> Interval:
    """A row's mean and 95% interval of a metric; NaN for a column that the row lacks."""
    mean, low, high = (float(row.get(metric + s, math.nan)) for s in ("", *INTERVAL_SUFFIXES))
    return Interval(mean, low, high)


def format_metric(row: Row, metric: str) -> str:
    """A metric with half its 95% interval; `too few non-members` for a rate without support.

    A true-positive rate is undefined if it rests on too few false positives; their expected
    number is defined even then.
    """
    interval = row_interval(row, metric)
    _, found, rate = metric.partition("/tpr_at_fpr_")
    expected = f"privacy/expected_false_positives_at_fpr_{rate}"
    is_rate = bool(found) and not math.isnan(row_interval(row, expected).value)
    return "too few non-members" if is_rate and math.isnan(interval.value) else interval.plus_minus


def floor_of(metric: str) -> str:
    """Metric that holds a metric's floor: without the release, or of the trivial model.

    It is empty for other metrics; a utility may lack its floor.
    """
    if metric.startswith(_UTILITY):
        return _UTILITY_FLOOR + metric.removeprefix(_UTILITY)
    return METRIC_FLOORS.get(metric, "")


def raw_data_interval(row: Row, metric: str) -> Interval:
    """The metric on unmodified data, from the row; NaN if unknown."""
    value = RAW_DATA_VALUES.get(metric, math.nan)
    return row_interval(row, value) if isinstance(value, str) else Interval(value, value, value)


def select_records(
    points: pd.DataFrame, fields: Sequence[str], metrics: Sequence[str]
) -> list[dict[Hashable, Any]]:
    """Rows as mappings of these fields and metrics with intervals; faster than whole rows."""
    wanted = ["point_id", *(f"config/{field}" for field in fields)]
    wanted += [metric + suffix for metric in metrics for suffix in ("", *INTERVAL_SUFFIXES)]
    return points[[c for c in dict.fromkeys(wanted) if c in points]].to_dict("records")


def varying_fields(points: pd.DataFrame) -> list[str]:
    """The configuration fields that differ between points."""
    columns = [str(column) for column in points.columns if str(column).startswith("config/")]
    differing = [column for column in columns if points[column].nunique(dropna=False) > 1]
    return [column.removeprefix("config/") for column in differing]


def group_by_fields(points: pd.DataFrame, fields: Sequence[str]) -> list[PointGroup]:
    """Points that agree in these fields, in the order of their values."""
    if not fields:
        return [PointGroup({}, points)]
    groups = points.groupby([f"config/{field}" for field in fields], dropna=False)
    return [PointGroup(dict(zip(fields, v, strict=True)), part) for v, part in groups]
