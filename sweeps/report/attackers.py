"""Table of the attackers on every point, with floors and flags."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from sweeps.analysis.tables import METRIC_FLOORS, Row, Table, row_interval
from sweeps.analysis.text import format_setting
from sweeps.report.figures.curves import CurveSet
from sweeps.report.figures.tradeoff import BELOW_FLOOR_FLAG, STRONGEST, is_under_trained

_MAX_ROWS = 200
_ATTACKER = re.compile(r"privacy/attacker/(.+)/balanced_accuracy")
_FLAGS: Mapping[str, str] = {
    BELOW_FLOOR_FLAG: "attacker under its floor: under-trained",
    "flag/attacker_not_converged": "attacker not trained to convergence",
}
_BELOW_BY_CHANCE = "under its floor in some replicates, within chance"
_VERDICTS = {
    "above": "is above the floor",
    "not distinguished": "contains the floor, so that the rest may be chance,",
    "below": "is below the floor, so that the attacker is under-trained,",
    "no interval": "is unknown without replicates",
    "undefined": "or floor is undefined",
}
_FLOOR_PARTS = ("floor/prior", "floor/utility_label", "floor/side_information")


@dataclass(frozen=True, slots=True)
class AttackerReport:
    """Table with a row per finished point, raised flags in words, and a count of verdicts."""

    table: Table
    warnings: tuple[str, ...]
    summary: str


def attacker_report(curves: CurveSet) -> AttackerReport | None:
    """Attackers of every finished point, curve by curve; None without named attackers."""
    points = curves.points
    names = _attacker_names(points)
    if not names or STRONGEST not in points:
        return None
    rows = points.to_dict("records")
    columns = (
        *curves.fields,
        *("chosen on validation", "against the floor", "flags", "floor", "raw data"),
        "best on test",
        *names,
        *("in-loop adversary (no measure of privacy)", "point"),
    )
    cells = tuple(_cells(row, curves.fields, names) for row in rows[:_MAX_ROWS])
    note = f"{len(rows) - len(cells):,} more are not shown." if len(rows) > len(cells) else ""
    return AttackerReport(Table(columns, cells, note), tuple(_warnings(rows)), _summary(rows))


def compare_with_floor(row: Row) -> str:
    """Whether the strongest attacker's 95% interval is above its floor, as a key of verdicts."""
    attacked = row_interval(row, STRONGEST)
    floor = row_interval(row, METRIC_FLOORS[STRONGEST]).mean
    if math.isnan(attacked.mean + floor):
        return "undefined"
    if math.isnan(attacked.half):
        return "no interval"
    if attacked.low > floor:
        return "above"
    return "below" if attacked.high < floor else "not distinguished"


def _attacker_names(points: pd.DataFrame) -> list[str]:
    matches = {str(column): _ATTACKER.fullmatch(str(column)) for column in points.columns}
    return [match[1] for column, match in matches.items() if match and points[column].notna().any()]


def _cells(row: Row, fields: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    accuracies = {
        name: row_interval(row, f"privacy/attacker/{name}/balanced_accuracy") for name in names
    }
    defined = {name: one.mean for name, one in accuracies.items() if not math.isnan(one.mean)}
    return (
        *(format_setting(row.get(f"config/{field}")) for field in fields),
        str(row_interval(row, STRONGEST)),
        compare_with_floor(row),
        "; ".join(_raised_flags(row)),
        _floor(row),
        row_interval(row, "baseline/attacker_balanced_accuracy").plus_minus,
        # Validation chose the reported one; the best on test is known only afterwards.
        max(defined, key=defined.__getitem__, default="unknown"),
        *(accuracies[name].plus_minus for name in names),
        row_interval(row, "diagnostic/adversary_balanced_accuracy").plus_minus,
        str(row["point_id"]),
    )


def _floor(row: Row) -> str:
    """The floor, and the part of it that is the highest."""
    floor = row_interval(row, METRIC_FLOORS[STRONGEST]).plus_minus
    means = {part: row_interval(row, part).mean for part in _FLOOR_PARTS}
    defined = {part: mean for part, mean in means.items() if not math.isnan(mean)}
    if not defined:
        return floor
    source = max(defined, key=defined.__getitem__).removeprefix("floor/").replace("_", " ")
    return f"{floor} ({source})"


def _raised_flags(row: Row) -> list[str]:
    flags = [str(key) for key in row if re.fullmatch(r"flag/[^.]+", str(key))]
    return [
        _BELOW_BY_CHANCE
        if flag == BELOW_FLOOR_FLAG and not is_under_trained(row)
        else _FLAGS.get(flag, flag)
        for flag in flags
        if float(row[flag]) > 0
    ]


def _warnings(rows: Sequence[Row]) -> list[str]:
    raised = [flag for row in rows for flag in _raised_flags(row)]
    flags = dict.fromkeys([*_FLAGS.values(), *raised])
    counts = {flag: raised.count(flag) for flag in flags}
    return [f"{flag} at {n} of {len(rows)} points." for flag, n in counts.items() if n]


def _summary(rows: Sequence[Row]) -> str:
    verdicts = [compare_with_floor(row) for row in rows]
    counts = {verdict: verdicts.count(verdict) for verdict in _VERDICTS if verdict in verdicts}
    parts = "; ".join(f"{_VERDICTS[verdict]} at {count}" for verdict, count in counts.items())
    return f"Of {len(rows)} points, the strongest attacker's 95% interval {parts}."
