"""`sweeps audit`: membership leakage of models whose outputs were saved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from privnets.audit.attacks import Family
from privnets.audit.evaluation import audit_signals
from privnets.audit.files import AuditError
from privnets.audit.page import format_table
from privnets.audit.result import EPSILON, METRICS, AuditResult
from sweeps.analysis.export import check_output_path, save_frame
from sweeps.analysis.tables import Table
from sweeps.cli.terminal import print_table, say
from sweeps.errors import InputError, describe_choices

_FAILED_GATE = 1
_GATED = (*METRICS, EPSILON)


def audit(
    file: Annotated[Path, typer.Argument(help="Saved outputs: .npz, .csv or .parquet.")],
    member: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column that says who was in the training set.")
    ] = "member",
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the true classes, needed with probabilities.",
            show_default="labels or label",
        ),
    ] = None,
    target: Annotated[
        int | None, typer.Option(metavar="MODEL", help="Audit this model alone, counted from 0.")
    ] = None,
    family: Annotated[
        Family | None,
        typer.Option(
            metavar="FAMILY",
            help="Attacks that the verdict and the gates are about: threshold, offline or online.",
            show_default="verdict: the one with the most knowledge; gates: all",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one HTML page.")
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Save the risk of each record as .csv or .parquet."),
    ] = None,
    fail_above: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=LIMIT",
            help="Exit with 1 if the strongest attack's measured value is above this limit, as "
            "advantage=0.1; repeatable.",
        ),
    ] = None,
) -> None:
    """Audit saved outputs of models: how much do they reveal about who was in the training set?

    A gate compares the measured value, not an end of its interval, of the strongest attack of
    each family. Exit code 1 if a gate fails, 2 for input that cannot be audited.
    """
    check_output_path(report, (".html",))
    check_output_path(records, (".csv", ".parquet"))
    gates = [_parse_gate(text) for text in fail_above or ()]
    try:
        result = audit_signals(file, member, labels=labels, target=target, family=family)
    except AuditError as error:
        raise InputError(str(error)) from error
    _show(result)
    if report is not None:
        _write_report(result, report)
    if records is not None:
        save_frame(result.records, records)
        say(f"records saved in {records}")
    families = result.families if family is None else (result.family,)
    if not all([_passes(result, gate, families) for gate in gates]):
        raise typer.Exit(_FAILED_GATE)


@dataclass(frozen=True, slots=True)
class AuditGate:
    """Largest value of a metric that passes."""

    metric: str
    limit: float


def _parse_gate(text: str) -> AuditGate:
    metric, _, limit = text.partition("=")
    if metric not in _GATED:
        expected = describe_choices(_GATED, metric)
        raise InputError(f"--fail-above {text}: got metric {metric!r}; expected {expected}")
    try:
        number = float(limit)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise InputError(f"--fail-above {text}: got {limit!r}; expected a number, as {metric}=0.1")
    return AuditGate(metric, number)


def _show(result: AuditResult) -> None:
    frame = format_table(result.table, METRICS)
    rows = tuple(tuple(map(str, row)) for row in frame.itertuples(index=False))
    print_table(Table(tuple(frame.columns), rows, "* fewer than ten false positives expected."))
    say(result.basis)
    if result.not_run:
        say(result.not_run)
    say(result.verdict)


def _write_report(result: AuditResult, path: Path) -> None:
    try:
        result.report(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    say(f"report saved in {path}")


def _passes(result: AuditResult, gate: AuditGate, families: Sequence[Family]) -> bool:
    """Whether the strongest attack of each family has at most the limit; prints each answer."""
    passes = True
    for family in families:
        row = result.strongest_by(gate.metric, family)
        value, has_passed = float(row[gate.metric]), bool(row[gate.metric] <= gate.limit)
        passes &= has_passed
        interval = ""
        if gate.metric != EPSILON:
            low, high = row[f"{gate.metric}.ci_low"], row[f"{gate.metric}.ci_high"]
            unsure = "; the interval holds the limit" if low <= gate.limit < high else ""
            interval = f" ({low:.3f} to {high:.3f}{unsure})"
        verb = "passes" if has_passed else "FAILS"
        say(f"{family}: {gate.metric} {value:.3f}{interval} of {row.name} {verb} {gate.limit:g}")
    return passes
