"""`sweeps audit`: leakage of membership by a model, or by saved outputs of models."""

from __future__ import annotations

import inspect
import json as json_format
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from privnets.attacks.base import Family
from privnets.audit.evaluation import MIN_REFERENCES, audit_model, audit_signals
from privnets.audit.gate import GateResult, Judge, Ranges, check_limits, plain_number
from privnets.audit.inputs import AuditError, read_columns
from privnets.audit.model_outputs import Meaning
from privnets.audit.page import format_table
from privnets.audit.result import GATED, AuditResult
from privnets.config import did_you_mean
from privnets.references.user_files import import_object, set_folder
from sweeps.analysis.export import check_output_path, save_frame
from sweeps.analysis.text import Table, format_count
from sweeps.cli.options import Json
from sweeps.cli.terminal import print_table, say
from sweeps.errors import InputError, percentage_hint

FAILED_GATE: Final = 1

Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-above",
        metavar="METRIC=LIMIT",
        help="Exit with 1 if the strongest attack may be above this limit, as advantage=0.1; "
        "repeatable.",
    ),
]
JudgedEnd = Annotated[
    Judge,
    typer.Option(
        metavar="END",
        help="What a limit is compared with: upper (end of the interval), estimate or lower.",
    ),
]
JUnit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the gates as JUnit XML.")
]


def audit(
    file: Annotated[
        Path | None, typer.Argument(help="Saved outputs: .npz, .csv or .parquet.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Audit this fitted model, or the one that this function returns, with --data.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Records of --model: .csv or .parquet, all columns."),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Recipe fit(x, y, seed) of reference models.",
            show_default="clones of an estimator",
        ),
    ] = None,
    references: Annotated[
        int, typer.Option(min=MIN_REFERENCES, help="Number of reference models of --model.")
    ] = 16,
    outputs: Annotated[
        Meaning | None,
        typer.Option(
            metavar="MEANING",
            help="What a module or function of --model returns: probabilities, logits or "
            "predictions.",
            show_default="one decision for all models by their values",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of --data that the model does not take."),
    ] = None,
    member: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column that says who was in the training set.")
    ] = "member",
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the true classes, or of the target of --data.",
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
            help="Attacks that the verdict and the limits are about.",
            show_default="verdict: the one with the most knowledge; limits: all",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Source of random halves.")] = 0,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one HTML page.")
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Save the risk of each record as .csv or .parquet."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Save outputs as .npz, for `sweeps audit FILE --target 0`."
        ),
    ] = None,
    fail_above: Limits = None,
    judge: JudgedEnd = "upper",
    junit: JUnit = None,
    json: Json = False,
) -> None:
    """Audit a model, or saved outputs: how much do they reveal about who was in the training set?

    With --model and --data, reference models are trained for stronger attacks. A gate compares the
    upper end of the interval of the strongest attack of each family with a limit. Exit code 1 if a
    gate fails, 2 for input that cannot be audited.
    """
    check_output_path(report, (".html",))
    check_output_path(records, (".csv", ".parquet"))
    check_output_path(save, (".npz",))
    check_output_path(junit, (".xml",))
    names: dict[str, str] = {}  # the page about a file finds its names itself
    try:
        limits = parse_limits(fail_above or (), GATED)
        if model is None:
            others = {"data": data, "fit": fit, "ignore": ignore, "save": save, "outputs": outputs}
            if unused := [f"--{option}" for option, value in others.items() if value]:
                raise InputError(f"{', '.join(unused)} needs --model")
            if file is None:
                raise InputError(
                    "give a FILE of saved outputs, or --model MODULE:NAME with --data TABLE"
                )
            result = audit_signals(
                file, member, labels=labels, target=target, family=family, seed=seed
            )
        else:
            if file is not None or data is None:
                raise InputError("--model needs --data TABLE, and no FILE of saved outputs")
            names = {"model": model, "data": str(data)}
            x, y, inside = _read_records(data, labels or "label", member, ignore or ())
            fitted, recipe = _import_model(model, fit)
            result = audit_model(
                fitted, x, y, inside, references=references, fit=recipe, seed=seed,
                outputs=outputs, family=family,
            )  # fmt: skip
        gates = result.check(limits, judge=judge, family=family)
    except AuditError as error:
        raise InputError(str(error)) from error
    if json:
        typer.echo(json_format.dumps(_document(result, gates), allow_nan=False))
    else:
        _show(result)
    _write_files(result, report, records, save, names)
    finish_gates(gates, str(file or model), junit, quiet=json)


def parse_limits(texts: Iterable[str], ranges: Ranges) -> dict[str, float]:
    """Parses values of `--fail-above`: the largest value that passes, by metric.

    Raises:
        InputError: If a text is not `METRIC=NUMBER`, or `check_limits` refuses it.
    """
    limits = []
    for text in texts:
        metric, _, limit = text.partition("=")
        try:
            limits.append({metric: float(limit)})
        except ValueError:
            hint = percentage_hint(limit) or f", as {metric}=0.1"
            raise InputError(f"--fail-above {text}: expected METRIC=NUMBER{hint}") from None
    try:
        return check_limits(ranges, *limits)
    except AuditError as error:
        raise InputError(f"--fail-above: {error}") from error


def _read_records(
    path: Path, label: str, member: str, ignored: Sequence[str]
) -> tuple[Any, Any, Any]:
    """Records, targets and membership of a table."""
    if not path.is_file():
        raise InputError(f"--data {path} does not exist; give a table, as .csv or .parquet")
    table: Any = read_columns(path)
    if missing := [name for name in (label, member, *ignored) if name not in table]:
        known = ", ".join(map(str, table)) + did_you_mean(missing[0], map(str, table))
        raise InputError(f"{path} has no column {missing[0]!r}; its columns are {known}")
    return table.drop(columns=[label, member, *ignored]), table[label], table[member]


def _import_model(location: str, fit: str | None) -> tuple[Any, Any]:
    """The model at a location, or the one that the function there returns, and the recipe."""
    if ":" not in location:
        raise InputError(
            f"--model takes module:function; got {location}. Files of models are not loaded, as "
            "pickles may run any code: write a function in FILE.py that loads and returns the "
            "model, and give --model FILE:FUNCTION"
        )
    set_folder(Path.cwd())
    model: Any = import_object(location, "--model")
    model = model() if inspect.isfunction(model) else model
    return model, None if fit is None else import_object(fit, "--fit")


def _show(result: AuditResult) -> None:
    """Prints the table without rates that fill the line; the page and --json have them all."""
    frame = format_table(result.table).drop(columns=["tpr_at_fpr_0.1", "tpr_at_fpr_0.001"])
    rows = tuple(tuple(map(str, row)) for row in frame.itertuples(index=False))
    starred = any(cell.endswith("*") for row in rows for cell in row)
    note = "* fewer than ten false positives expected." if starred else ""
    print_table(Table(tuple(frame.columns), rows, note))
    say(result.basis)
    if result.not_run:
        say(result.not_run)
    say(result.verdict)


def _document(result: AuditResult, gates: GateResult) -> dict[str, Any]:
    rows = result.table.reset_index().to_dict("records")
    return {
        "format": 1,
        "verdict": result.verdict,
        "basis": result.basis,
        "not_run": result.not_run,
        "blind_spot": result.blind_spot,
        "attacks": [{str(k): plain_number(v) for k, v in row.items()} for row in rows],
        "gates": [answer.to_json() for answer in gates.answers],
        "passed": gates.has_passed,
    }


def _write_files(
    result: AuditResult,
    report: Path | None,
    records: Path | None,
    save: Path | None,
    names: Mapping[str, str],
) -> None:
    try:
        if report is not None:
            say(f"report saved in {result.report(report, **names)}", err=True)
        if records is not None:
            save_frame(result.records, records)
            count = format_count(len(result.records), "record")
            say(f"risks of {count} saved in {records}", err=True)
        if save is not None:
            result.save(save)
            say(f"outputs saved in {save}", err=True)
    except OSError as error:
        raise InputError(f"cannot write {error.filename}: {error.strerror}") from error


def finish_gates(gates: GateResult, name: str, junit: Path | None, *, quiet: bool = False) -> None:
    """Prints the answers of gates, writes them for a CI server, and exits with 1 if one fails."""
    if junit is not None:
        try:
            junit.write_text(gates.junit(name), encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {junit}: {error.strerror}") from error
    if gates.answers and not quiet:
        for line in str(gates).splitlines():
            say(line)
    if not gates.has_passed:
        raise typer.Exit(FAILED_GATE)
