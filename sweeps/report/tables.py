"""Tables of a report beside its points; cells are text, escaped on the page."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pandas as pd

import privnets
from privnets.config import nest, point_id
from privnets.data import DataError
from privnets.registry import is_own_experiment
from sweeps.analysis.flags import (
    FLAG_TEXTS,
    NOT_CONVERGED,
    STRONGEST,
    raised_flags,
)
from sweeps.analysis.pareto import problem_fields, split_by_problem
from sweeps.analysis.results import Result
from sweeps.analysis.tables import (
    MAX_ROWS,
    METRIC_FLOORS,
    Row,
    describe_config,
    limit_rows,
    row_interval,
)
from sweeps.analysis.text import Table, format_number, format_setting, metric_label, short_ids
from sweeps.planning.continuation import is_of_user
from sweeps.report.figures.curves import CurveSet
from sweeps.store.reader import Note

_KINDS = ("flag", "undefined", "note")
_NUMBER = re.compile(r"\d+(\.\d+)?(e[-+]?\d+)?")
_REASON_COLUMNS = ("item, or the first of them", "reason", "points", "id")

_MAX_ATTACKER_ROWS, _MAX_PROBLEMS = 200, 4
_ATTACKER = re.compile(r"privacy/attacker/(.+)/balanced_accuracy")
_OTHER_LABELS = re.compile(rf"{STRONGEST}_(\w+)_labels")
_VERDICTS = {
    "above": "is above the floor",
    "not distinguished": "contains the floor",
    "below": "is below the floor, so that the attacker is under-trained,",
    "no interval": "is unknown without replicates",
    "undefined": "or floor is undefined",
}
_CARD_COLUMNS: Mapping[str, str] = {
    "config/dataset": "data",
    "config/problem": "data",
    "config/model": "model",
    "config/releaser": "model",
    "config/train_size": "training records",
    "config/features": "features",
    "config/records": "attacked records",
    "config/panel": "attackers",
}
_ACCURACY = re.compile(r"(utility|floor/utility)[/_](train_|test_)?(accuracy|mse)")
_FLOOR_PARTS = ("floor/prior", "floor/utility_label", "floor/side_information")


class AttackerReport(NamedTuple):
    """Table with a row per finished point, and a count of verdicts."""

    table: Table
    summary: str


def attacker_report(curves: CurveSet) -> AttackerReport | None:
    """Attackers of every finished point, curve by curve; None without named attackers."""
    points = curves.points
    defined = [str(column) for column in points.columns[points.notna().any()]]
    names = [match[1] for column in defined if (match := _ATTACKER.fullmatch(column))]
    if not names or STRONGEST not in points:
        return None
    rows, fields = points.to_dict("records"), curves.fields
    matches = (_OTHER_LABELS.fullmatch(str(column)) for column in points.columns)
    others = {f"by {match[1]} labels": match[0] for match in matches if match}
    shown, flags = short_ids(points["point_id"]), flag_texts(points)
    cells = []
    for row, raised in list(zip(rows, flags, strict=True))[:_MAX_ATTACKER_ROWS]:
        accuracies = {
            n: row_interval(row, f"privacy/attacker/{n}/balanced_accuracy") for n in names
        }
        floor = row_interval(row, METRIC_FLOORS[STRONGEST]).plus_minus
        if source := _largest({part: row_interval(row, part).value for part in _FLOOR_PARTS}):
            floor += f" ({source.removeprefix('floor/').replace('_', ' ')})"
        cells.append(
            (
                *(format_setting(row.get(f"config/{field}")) for field in fields),
                *(str(row_interval(row, key)) for key in (STRONGEST, *others.values())),
                compare_with_floor(row),
                "; ".join(raised),
                floor,
                row_interval(row, "baseline/attacker_balanced_accuracy").plus_minus,
                # Validation chose the reported one; the best on test is known only afterwards.
                _largest({name: each.value for name, each in accuracies.items()}) or "unknown",
                *(accuracy.plus_minus for accuracy in accuracies.values()),
                row_interval(row, "diagnostic/adversary_balanced_accuracy").plus_minus,
                shown[row["point_id"]],
            )
        )
    columns = (
        *fields,
        *("chosen on validation", *others, "against the floor", "flags", "floor", "raw data"),
        "best on test",
        *names,
        *("in-loop adversary (no measure of privacy)", "point"),
    )
    counts = Counter(map(compare_with_floor, rows))
    parts = [f"{words} at {counts[key]}" for key, words in _VERDICTS.items() if counts[key]]
    converged = sum(row.get(NOT_CONVERGED) == 0 for row in rows)
    return AttackerReport(
        limit_rows(columns, cells, len(rows), _MAX_ATTACKER_ROWS),
        f"Of {len(rows)} points, the strongest attacker's 95% interval {'; '.join(parts)}. "
        f"No attacker that ran out of steps could overtake it in any replicate at {converged}.",
    )


def compare_with_floor(row: Row) -> str:
    """Whether the strongest attacker's 95% interval is above its floor, as a key of verdicts."""
    attacked = row_interval(row, STRONGEST)
    floor = row_interval(row, METRIC_FLOORS[STRONGEST]).value
    if math.isnan(attacked.value + floor):
        return "undefined"
    if math.isnan(attacked.half):
        return "no interval"
    if attacked.low > floor:
        return "above"
    return "below" if attacked.high < floor else "not distinguished"


def _largest(values: Mapping[str, float]) -> str:
    """The name of the largest defined value; empty without one."""
    defined = {name: value for name, value in values.items() if not math.isnan(value)}
    return max(defined, key=defined.__getitem__, default="")


def flag_texts(points: pd.DataFrame) -> list[list[str]]:
    """Raised flags of each point in words."""
    return [
        [FLAG_TEXTS.get(str(flag), str(flag)) for flag, is_up in own.items() if is_up]
        for _, own in raised_flags(points).iterrows()  # also where no flag exists, in pandas 2
    ]


def flag_warnings(points: pd.DataFrame) -> list[str]:
    """Each raised flag in words, with the number of points."""
    flags = flag_texts(points)
    counts = Counter(flag for own in flags for flag in own)
    ordered = dict.fromkeys([*FLAG_TEXTS.values(), *counts])
    return [f"At {counts[f]} of {len(flags)} points: {f}." for f in ordered if counts[f]]


def notes_table(notes: Sequence[Note], points: pd.DataFrame, fields: Sequence[str]) -> Table:
    """Reasons of raised flags and undefined metrics, and other notes, with numbers of points.

    Reasons that differ only in numbers are one row, with the numbers of its first point, and the
    metrics that have it, one a line.
    """
    keys = {note.key for note in notes} & {*points.columns}
    undefined = {key: {*points.loc[points[key].isna(), "point_id"]} for key in keys}
    groups: dict[tuple[str, str], list[Note]] = {}
    for note in notes:
        kind = "flag" if note.key.startswith("flag/") else "note"
        kind = "undefined" if note.point_id in undefined.get(note.key, ()) else kind
        groups.setdefault((kind, _NUMBER.sub("#", note.reason)), []).append(note)
    entries = sorted(groups.items(), key=lambda entry: (_KINDS.index(entry[0][0]), -len(entry[1])))
    examples = {own[0].point_id for _, own in entries[:MAX_ROWS]}
    chosen = points.loc[points["point_id"].isin(examples)].to_dict("records")
    configs = {row["point_id"]: describe_config(row, fields) for row in chosen}
    rows = [
        (
            kind,
            own[0].reason,
            str(len({note.point_id for note in own})),
            "\n".join(sorted({metric_label(note.key) for note in own})),
            configs[own[0].point_id],
        )
        for (kind, _), own in entries[:MAX_ROWS]
    ]
    columns = ("kind", "reason", "points", "metrics or flags", "example")
    return limit_rows(columns, rows, len(groups))


def failures_table(result: Result, fields: Sequence[str]) -> Table:
    """Failed packs, damaged files, and failed points with the reason of the first replicate."""
    rows = [
        *(("pack", reason, "", pack_id) for pack_id, reason in result.failures.items()),
        *(("damaged file", reason, "", name) for name, reason in result.unreadable.items()),
        *_reasons(result, "failed", "failure", fields),
    ]
    return limit_rows(_REASON_COLUMNS, rows, len(rows))


def stopped_table(result: Result, fields: Sequence[str]) -> Table:
    """Points that were stopped early; a point with a failed replicate counts as failed."""
    rows = list(_reasons(result, "stopped", "stopped", fields))
    return limit_rows(_REASON_COLUMNS, rows, len(rows))


def _reasons(
    result: Result, status: str, column: str, fields: Sequence[str]
) -> Iterator[tuple[str, str, str, str]]:
    """Each different reason of a status once, with its first point and the number of points."""
    verb = "were stopped" if status == "stopped" else status
    points = result.points.loc[result.points["status"] == status]
    own = result.replicates[result.replicates["point_id"].isin(points["point_id"])]
    reasons = own.groupby("point_id")[column].agg(["first", "count", "size"])
    joined, shown = points.join(reasons, on="point_id"), short_ids(result.points["point_id"])
    for _, group in joined.groupby(["first", "count", "size"], sort=False):
        row = group.iloc[0].to_dict()
        reason = f"{row['first']} ({row['count']} of {row['size']} replicates {verb})"
        yield describe_config(row, fields), reason, str(len(group)), shown[row["point_id"]]


def card_table(result: Result) -> Table:
    """Data, model, accuracies, seeds, versions and date of a sweep, as far as they are stored."""
    points, replicates = result.points, result.replicates
    points = points.loc[points["status"] == "finished"]
    rows = {
        name: _join_values(points[column])
        for column, name in _CARD_COLUMNS.items()
        if column in points and points[column].notna().any()
    }
    if "test_size" in replicates and replicates["test_size"].notna().any():
        rows["test records"] = _join_values(replicates["test_size"])
    rows |= {name: text for name, text in _describe_labels(result, points) if text}
    for metric in points.columns[points.notna().any()]:
        if _ACCURACY.fullmatch(str(metric)):
            utility = str(metric).removeprefix("floor/utility_")
            owner = "" if utility == metric else "trivial model's "
            rows[owner + metric_label(utility)] = _join_values(points[metric])
    spec = result.spec
    seeds = sorted({*replicates["seed"]})
    rows["seeds"] = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else ", ".join(map(str, seeds))
    if versions := spec.get("versions"):
        rows["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    if len(times := replicates["finished_at"].dropna()):
        days = (f"{time:%Y-%m-%d}" for time in (times.min(), times.max()))
        rows["date"] = " to ".join(dict.fromkeys(days))
    return Table(("fact", "value"), tuple(rows.items()))


def _describe_labels(result: Result, points: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Classes of each problem with their shares, where this machine has the same data."""
    places = [own[0] for own in split_by_problem(points) if len(own)]
    firsts = points.iloc[places[:_MAX_PROBLEMS]]
    stored = result.select_points(firsts["point_id"].tolist())
    for row in firsts.to_dict("records"):
        point, fields = stored[row["point_id"]], problem_fields(points)
        # Storage is not trusted: it names neither code to run nor files to read.
        if is_own_experiment(point.experiment) or any(
            is_of_user(point.experiment, name) or ":" in str(value)
            for name, value in point.config.items()
        ):
            continue
        with suppress(OSError, ValueError, ImportError, DataError):  # these data are elsewhere
            experiment = privnets.experiment(point.experiment)
            config = experiment.Config(**nest(point.config))
            version, fingerprint = experiment.version, experiment.fingerprint(config)
            if point_id(experiment.name, version, config, fingerprint) == point.point_id:
                sentences = " ".join(experiment.describe_labels(config))
                yield f"classes, {describe_config(row, fields)}" if fields else "classes", sentences


def _join_values(values: pd.Series[Any]) -> str:
    """The value that all points have, both ends of numbers, or a list."""
    known = values.dropna()
    different = sorted({format_setting(value) for value in known})
    numbers = pd.to_numeric(known, errors="coerce")
    if len(different) == 1 or numbers.isna().any():
        return ", ".join(different)
    return f"{format_number(numbers.min())} to {format_number(numbers.max())}"


def facts_table(result: Result) -> Table:
    """Sweep, times, and the other facts of its manifest, one row per plain value."""
    times = result.replicates["finished_at"]
    facts = {"sweep": result.sweep, "replicates recorded": f"{len(times):,}"}
    if len(times):
        facts["first replicate finished"] = f"{times.min():%Y-%m-%d %H:%M:%S} UTC"
        facts["last replicate finished"] = f"{times.max():%Y-%m-%d %H:%M:%S} UTC"
    spec = {key: value for key, value in result.spec.items() if key not in ("study", "command")}
    (content,) = pd.json_normalize({**facts, **spec}, sep=" ").to_dict("records")
    rows = []
    for key, value in content.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        rows.append((str(key), "none" if value is None else text or "none"))
    return Table(("fact", "value"), tuple(rows))
