"""`sweeps audit` and `sweeps release`: saved outputs of models, and trained releasers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import privnets
from privnets.adversarial.attackers.profiles import ProfileName
from privnets.adversarial.problems.own import OwnProblem, OwnReference
from privnets.adversarial.release_check import checked_problem
from privnets.adversarial.trained_releaser import TrainedReleaser
from privnets.audit.attacks import Family
from privnets.audit.evaluation import audit_signals
from privnets.audit.files import AuditError
from privnets.audit.page import format_table
from privnets.audit.result import EPSILON, METRICS, AuditResult
from privnets.data.user_files import import_object
from sweeps.analysis.export import check_output_path, save_frame
from sweeps.analysis.results import Result, open_result
from sweeps.analysis.tables import Table
from sweeps.cli.options import Storage, Sweep
from sweeps.cli.terminal import print_table, say
from sweeps.errors import InputError, describe_choices
from sweeps.planning.costs import format_duration

_FAILED_GATE = 1
_GATED = (*METRICS, EPSILON)
_REPORT_SECONDS = 10

LabelColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the true classes, needed with probabilities.",
        show_default="labels or label",
    ),
]
JudgedFamily = Annotated[
    Family | None,
    typer.Option(
        metavar="FAMILY",
        help="Attacks that the verdict and the gates are about: threshold, offline or online.",
        show_default="verdict: the one with the most knowledge; gates: all",
    ),
]
Gates = Annotated[
    list[str] | None,
    typer.Option(
        metavar="METRIC=LIMIT",
        help="Exit with 1 if the strongest attack's measured value is above this limit, as "
        "advantage=0.1; repeatable.",
    ),
]
KeptColumns = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Copy this column, unprotected; repeatable."),
]
NetworkName = Annotated[
    str | None,
    typer.Option(metavar="MODULE:NAME", help="Function that made your own releaser."),
]
NoiseSeed = Annotated[
    int | None,
    typer.Option(min=0, help="Repeat the noise of this seed.", show_default="fresh noise"),
]


def audit(
    file: Annotated[Path, typer.Argument(help="Saved outputs: .npz, .csv or .parquet.")],
    member: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column that says who was in the training set.")
    ] = "member",
    labels: LabelColumn = None,
    target: Annotated[
        int | None, typer.Option(metavar="MODEL", help="Audit this model alone, counted from 0.")
    ] = None,
    family: JudgedFamily = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one HTML page.")
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Save the risk of each record as .csv or .parquet."),
    ] = None,
    fail_above: Gates = None,
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
        say(f"records saved in {records}; member: share of the models that trained with the record")
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


def release(
    sweep: Sweep,
    point: Annotated[str, typer.Argument(help="Id of the point, or its first digits.")],
    records: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Records of the form that it was trained on.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUTPUT", help="Write the release here.")
    ],
    storage: Storage = None,
    replicate: Annotated[
        int | None,
        typer.Option(metavar="SEED", help="Take this replicate.", show_default="the first"),
    ] = None,
    seed: NoiseSeed = None,
    keep: KeptColumns = None,
    check: Annotated[
        bool, typer.Option("--check", help="Attack the release; INPUT must have the secret.")
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Table of secrets for --check of images."),
    ] = None,
    network: NetworkName = None,
    panel: Annotated[
        ProfileName, typer.Option(metavar="PANEL", help="Attackers of --check: full or quick.")
    ] = "full",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write to OUTPUT although it exists.")
    ] = False,
) -> None:
    """Release new records by the trained releaser of a point, with its noise.

    INPUT and OUTPUT are tables (.csv, .parquet), folders of images, or arrays (.npy). Only
    attributes are released. Secret and utility label are left out unless --keep copies them.
    """
    if labels is not None and not check:
        raise InputError(f"--labels serves --check alone; got --labels {labels} without --check")
    factory: Any = None if network is None else import_object(network, "--network")
    result = open_result(sweep, storage)
    content = _stored_releaser(result, point, replicate)
    releaser = privnets.load_releaser(content, factory)
    if check:  # before anything is written
        _warn_of_training_file(result, releaser, checked_problem(releaser, records, labels))
    try:
        counts = releaser.release_files(records, output, seed, keep or (), overwrite=overwrite)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error}") from error
    say(f"released {counts.released:,} records to {output}")
    if counts.left_out:
        say(f"left out {counts.left_out:,} records with missing values")
    if check:
        advice = "; --panel quick is faster" if panel == "full" else ""
        say(f"checking the release with the {panel} panel: may take minutes{advice}", err=True)
        found = privnets.check_release(releaser, records, output, panel, labels, _elapsed_report())
        say(found.verdict)


def _elapsed_report() -> Callable[[], None]:
    """Returns a function that prints the time since now, at most every ten seconds."""
    start = last = time.monotonic()

    def report() -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _REPORT_SECONDS:
            last = now
            say(f"checking the release, {format_duration(now - start)} so far", err=True)

    return report


def _warn_of_training_file(result: Result, releaser: TrainedReleaser, problem: OwnProblem) -> None:
    """Warns if the content of the input is that of the files that the sweep trained on."""
    trained_on = releaser.description.problem
    stored = set("; ".join(result.manifest.data.values()).split("; "))
    if isinstance(trained_on, OwnReference) and problem.fingerprint_as(trained_on) in stored:
        say(
            "Warning: INPUT has the records that the sweep trained on, so the check is not "
            "independent of training; use new records.",
            err=True,
        )


def _stored_releaser(result: Result, prefix: str, seed: int | None) -> bytes:
    """Returns the file of a trained releaser of a sweep."""
    known = sorted(result.points["point_id"])
    ids = [each for each in known if each.startswith(prefix)]
    if len(ids) != 1:
        begun = f"the ids of {len(ids)} points" if ids else "no id of a finished point"
        raise InputError(
            f"point: got {prefix!r}, which begins {begun}; expected "
            f"{describe_choices(ids or known, prefix)}"
        )
    stored = {each.seed: each for each in result.select_points(ids)[ids[0]].replicates}
    replicate = stored.get(min(stored) if seed is None else seed)
    if replicate is None:
        raise InputError(
            f"--replicate: got {seed}; expected {describe_choices(map(str, stored), str(seed))}"
        )
    try:
        return replicate.artifacts["releaser.safetensors"]
    except (KeyError, OSError) as error:
        raise InputError(f"point {ids[0]} has no trained releaser: {error}") from error
