"""Who attacked each point and how well, against what floor, and which numbers are not to trust."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from sweeps.analysis.formatting import format_setting
from sweeps.analysis.statistics import Interval
from sweeps.analysis.tables import METRIC_FLOORS, Table, row_interval
from sweeps.report.figures.curves import CurveSet, Row
from sweeps.report.figures.panels import STRONGEST, UNDER_FLOOR, under_floor

IN_LOOP = "diagnostic/adversary_balanced_accuracy"
BASELINE = "baseline/attacker_balanced_accuracy"
FLAGS: Mapping[str, str] = {
    "flag/attacker_below_floor": "attacker under its floor: under-trained",
    "flag/attacker_not_converged": "attacker not trained to convergence",
}
_BY_CHANCE = "under its floor in some replicates, within chance"

_MOST_ROWS = 200
_ATTACKER = re.compile(r"privacy/attacker/(.+)/balanced_accuracy")
_VERDICTS = {
    "above": "lies above the floor",
    "not told apart": "holds the floor, so that what is left may be chance,",
    "below": "lies below the floor, so that the attacker is under-trained,",
    "no interval": "is not known for want of replicates",
    "undefined": "or floor is undefined",
}
_FLOOR_PARTS = ("floor/prior", "floor/utility_label", "floor/side_information")


@dataclass(frozen=True, slots=True)
class AttackerReport:
    """What is known of a sweep's attackers.

    Attributes:
        table: A row per finished point.
        warnings: Flags that were raised, in words, with how many points raise them.
        summary: How many points' attackers are above their floor beyond chance.
    """

    table: Table
    warnings: tuple[str, ...]
    summary: str


def attacker_report(curves: CurveSet) -> AttackerReport | None:
    """Every finished point's attackers, curve by curve; None where there are none by name."""
    if not curves.curves:
        return None
    points = pd.concat([curve.points for curve in curves.curves])
    names = attacker_names(points)
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
    cells = tuple(_cells(row, curves.fields, names) for row in rows[:_MOST_ROWS])
    note = f"{len(rows) - len(cells):,} more are not shown." if len(rows) > len(cells) else ""
    table = Table(columns, cells, note)
    return AttackerReport(table, tuple(_warnings(points)), _summary(rows))


def attacker_names(points: pd.DataFrame) -> list[str]:
    """The attackers that some point has a number of."""
    found = [(_ATTACKER.fullmatch(str(c)), str(c)) for c in points.columns]
    return [match[1] for match, column in found if match and points[column].notna().any()]


def best_on_test(row: Row, names: Sequence[str]) -> str:
    """The attacker of the largest mean on test, `unknown` where none is defined.

    Nobody knows beforehand who that is: what is reported is the one that validation chose.
    """
    known = {name: float(row[_key(name)]) for name in names if row[_key(name)] == row[_key(name)]}
    return max(known, key=known.__getitem__, default="unknown")


def against_floor(row: Row) -> str:
    """Whether the strongest attacker is above its floor by more than its 95% interval allows."""
    attacked, floor = row_interval(row, STRONGEST), row_interval(row, METRIC_FLOORS[STRONGEST]).mean
    if math.isnan(attacked.mean + floor):
        return "undefined"
    if math.isnan(attacked.half):
        return "no interval"
    if attacked.low > floor:
        return "above"
    return "below" if attacked.high < floor else "not told apart"


def _cells(row: Row, fields: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    return (
        *(format_setting(row.get(f"config/{field}")) for field in fields),
        str(row_interval(row, STRONGEST)),
        against_floor(row),
        "; ".join(_raised(row)),
        _floor(row),
        row_interval(row, BASELINE).plus_minus,
        best_on_test(row, names),
        *(row_interval(row, _key(name)).plus_minus for name in names),
        row_interval(row, IN_LOOP).plus_minus,
        str(row["point_id"]),
    )


def _floor(row: Row) -> str:
    """The floor, and which of its parts it is."""
    floor = row_interval(row, METRIC_FLOORS[STRONGEST])
    parts: dict[str, Interval] = {part: row_interval(row, part) for part in _FLOOR_PARTS}
    known = {part: found.mean for part, found in parts.items() if not math.isnan(found.mean)}
    if not known:
        return floor.plus_minus
    source = max(known, key=known.__getitem__).removeprefix("floor/").replace("_", " ")
    return f"{floor.plus_minus} ({source})"


def _raised(row: Row) -> list[str]:
    raised = [key for key in _flags(row) if float(row[key]) > 0]
    return [
        _BY_CHANCE if key == UNDER_FLOOR and not under_floor(row) else FLAGS.get(key, key)
        for key in raised
    ]


def _flags(row: Row) -> list[str]:
    return [str(key) for key in row if re.fullmatch(r"flag/[^.]+", str(key))]


def _warnings(points: pd.DataFrame) -> list[str]:
    said = [word for row in points.to_dict("records") for word in _raised(row)]
    words = dict.fromkeys([*FLAGS.values(), *said])
    return [f"{w} at {said.count(w)} of {len(points)} points." for w in words if w in said]


def _summary(rows: Sequence[Row]) -> str:
    verdicts = [against_floor(row) for row in rows]
    counts = {verdict: verdicts.count(verdict) for verdict in _VERDICTS if verdict in verdicts}
    told = "; ".join(f"{_VERDICTS[verdict]} at {count}" for verdict, count in counts.items())
    return f"Of {len(rows)} points, the strongest attacker's 95% interval {told}."


def _key(name: str) -> str:
    return f"privacy/attacker/{name}/balanced_accuracy"
