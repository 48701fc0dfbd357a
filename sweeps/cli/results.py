"""`sweeps points`, `pareto`, `compare`, `claims` and `report`: the results of sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json import dumps
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import typer

import tracking
from sweeps.analysis.comparison import Comparison, compare_sweeps, comparison_json
from sweeps.analysis.constrained import Constraint
from sweeps.analysis.export import check_output_path, save_frame
from sweeps.analysis.pareto import Objectives, worst_values
from sweeps.analysis.results import DEFAULT_STORAGE, Result, open_result
from sweeps.analysis.tables import Table, front_table, points_table, varying_fields
from sweeps.analysis.text import format_count
from sweeps.cli.options import Json, Maximize, Minimize, Output, Storage, Sweep
from sweeps.cli.terminal import print_table, say
from sweeps.errors import InputError
from sweeps.report.findings import findings_markdown, findings_text, judge_sweep
from sweeps.store.ledger import list_sweeps

_MLFLOW_METRICS = 4


def points(
    sweep: Sweep,
    storage: Storage = None,
    tracking_uri: Annotated[
        str | None, typer.Option(metavar="URI", help="Read from this MLflow store instead.")
    ] = None,
    output: Output = None,
) -> None:
    """Show every point of a sweep: configuration, metrics, intervals.

    -o saves the whole table as .parquet or .csv.
    """
    check_output_path(output, (".parquet", ".csv"))
    result = open_result(sweep, storage) if tracking_uri is None else None
    if result is not None:
        frame, metrics, fields = result.points, list(result.objectives), result.swept_fields
    else:
        frame = tracking.load_points(sweep, tracking_uri)
        metrics, fields = _headline_metrics(frame), varying_fields(frame)
    if output is None:
        print_table(points_table(frame, metrics, fields))
    if output is not None:
        _save(frame, output)
    _print_pending(result)


def pareto(
    sweep: Sweep,
    storage: Storage = None,
    minimize: Minimize = None,
    maximize: Maximize = None,
    output: Output = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Plot the front: .html is interactive, .png for print."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONSTRAINT",
            help="Find the best point under a constraint, as 'utility/accuracy >= 0.95'; "
            "repeatable.",
        ),
    ] = None,
    include_flagged: Annotated[
        bool, typer.Option("--include-flagged", help="Keep points with a raised flag.")
    ] = False,
) -> None:
    """Show the Pareto front of a sweep, on the study's objectives or others.

    Each point has its probability to be on the front of the true means. Intervals cannot separate
    the points of a group. -o saves the front as .parquet, .csv or .json.
    """
    check_output_path(output, (".parquet", ".csv", ".json"))
    check_output_path(plot, (".html", ".png"))
    chosen = _parse_objectives(minimize or (), maximize or ())
    result = open_result(sweep, storage)
    objectives = chosen or result.objectives
    try:
        front = result.front(objectives, include_flagged=include_flagged)
        answers = _answer(result, objectives, where or (), include_flagged)
    except ValueError as error:
        raise InputError(str(error)) from error
    print_table(front_table(front, objectives, result.swept_fields))
    typer.echo(_count_excluded(front, result.points))
    if result.front_reservation:
        say(result.front_reservation)
    for line in (*_hypervolume(result, objectives, include_flagged), *answers):
        typer.echo(line)
    _print_pending(result)
    if output is not None:
        _save(front, output)
    if plot is not None:
        _plot(result.points, front, objectives, plot)


def _answer(
    result: Result, objectives: Objectives, where: Sequence[str], include_flagged: bool
) -> list[str]:
    """The best point under the constraints in each objective that they do not name, or in all."""
    constrained = {Constraint.parse(text).metric for text in where}
    asked = [m for m in objectives if m not in constrained] or list(objectives)
    answers = []
    for metric in asked if where else ():
        find = result.lowest if objectives[metric] == "min" else result.highest
        answers.append(str(find(metric, *where, include_flagged=include_flagged)))
    return answers


def _hypervolume(result: Result, objectives: Objectives, include_flagged: bool) -> Iterator[str]:
    """The hypervolume with its interval, and its reference; nothing without a finite point."""
    reference = worst_values(result.points, objectives, include_flagged=include_flagged)
    if reference:
        corner = ", ".join(f"{metric} {value:.4g}" for metric, value in reference.items())
        volume = result.hypervolume(objectives, reference, include_flagged=include_flagged)
        yield f"hypervolume of the true means: {volume}, up to the worst values ({corner})"


def compare(
    sweeps: Annotated[list[str], typer.Argument(metavar="SWEEP SWEEP...", help="Their names.")],
    storage: Storage = None,
    minimize: Minimize = None,
    maximize: Maximize = None,
    json: Json = False,
) -> None:
    """Compare the fronts of sweeps: hypervolume, attainment, mutual domination.

    Differences from the first sweep have 95% intervals, paired by common seeds. Without --minimize
    and --maximize, the objectives that the studies share are used. Hypervolumes share one reference
    point, the worst values over all these sweeps.
    """
    objectives = _parse_objectives(minimize or (), maximize or ())
    results = [open_result(name, storage) for name in sweeps]
    comparison = compare_sweeps(results, objectives or None)
    if json:
        typer.echo(dumps(comparison_json(comparison), allow_nan=False))
        return
    print_table(_comparison_table(comparison))
    say(f"Differences from {sweeps[0]}, with 95% intervals:")
    print_table(_contrast_table(comparison))
    say("Joint front of all sweeps:")
    front = comparison.front.rename(columns={"sweep": "config/sweep"})
    fields = ["sweep", *varying_fields(comparison.front)]
    print_table(front_table(front, comparison.objectives, fields))


def claims(
    sweeps: Annotated[
        list[str] | None, typer.Argument(metavar="SWEEP", help="Names; all if none is given.")
    ] = None,
    storage: Storage = None,
    format_: Annotated[
        Literal["text", "markdown"], typer.Option("--format", help="Form of the output.")
    ] = "text",
) -> None:
    """Judge the published claims of sweeps: agrees, disagrees or cannot tell, and why.

    A sweep of a packaged study is judged by the claims that the study has today.
    """
    names = sweeps or list_sweeps(storage or DEFAULT_STORAGE)
    if not names:
        raise InputError(f"{storage or DEFAULT_STORAGE} has no sweep; give another --storage")
    judged = [judge_sweep(open_result(name, storage)) for name in names]
    for line in (findings_text if format_ == "text" else findings_markdown)(judged):
        say(line)


def report(
    sweep: Sweep,
    storage: Storage = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="HTML file to write.")
    ] = Path("report.html"),
) -> None:
    """Write a report of a sweep: one HTML page that needs no network."""
    # The page loads all figures, which takes a second.
    from sweeps.report.page import write_report

    check_output_path(output, (".html",))
    write_report(open_result(sweep, storage), output)
    typer.echo(output)


def _parse_objectives(minimize: Sequence[str], maximize: Sequence[str]) -> Objectives:
    if both := sorted(set(minimize) & set(maximize)):
        raise InputError(f"{both[0]} is given to both --minimize and --maximize; choose one")
    objectives: Objectives = {**dict.fromkeys(minimize, "min"), **dict.fromkeys(maximize, "max")}
    return objectives


def _headline_metrics(frame: pd.DataFrame) -> list[str]:
    """Metrics for the terminal: MLflow does not record which ones are objectives."""
    reported = [str(c) for c in frame.columns if f"{c}.ci_low" in frame.columns]
    overall = [m for m in reported if m.count("/") == 1 and m.startswith(("privacy/", "utility/"))]
    return overall[:_MLFLOW_METRICS]


def _save(frame: pd.DataFrame, path: Path) -> None:
    save_frame(frame, path)
    typer.echo(f"{format_count(len(frame), 'point')} saved in {path}")


def _print_pending(result: Result | None) -> None:
    if result is not None and result.pending:
        total = format_count(result.size, "point")
        typer.echo(
            f"{result.pending} of {total} unfinished; continue with: sweeps resume {result.sweep}"
        )


def _count_excluded(front: pd.DataFrame, points: pd.DataFrame) -> str:
    counts = front.attrs["excluded"]
    stopped = int((points["status"] == "stopped").sum())
    excluded = [f"{counts['not_finished'] - stopped} failed"]
    excluded += [f"{stopped} stopped early"] if stopped else []
    excluded += [f"{counts['undefined']} with an undefined objective"]
    excluded += [f"{counts['flagged']} with a raised flag"] if counts["flagged"] else []
    return f"{format_count(len(front), 'point')} on the front; excluded: {', '.join(excluded)}"


def _plot(points: pd.DataFrame, front: pd.DataFrame, objectives: Objectives, path: Path) -> None:
    # Matplotlib takes half a second to load, which most commands need not wait for.
    from sweeps.report.figures.metrics import front_chart, save_front

    try:
        save_front(front_chart(points, front, objectives), path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    typer.echo(f"plot saved in {path}")


def _comparison_table(comparison: Comparison) -> Table:
    rows = [tuple(row) for row in _comparison_rows(comparison)]
    worst = ", ".join(f"{metric} {value:.4g}" for metric, value in comparison.reference.items())
    notes = [f"Hypervolume reference, the worst values over all these sweeps: {worst}."]
    for subject, values in comparison.differences.items():
        notes.append(f"Differences in {subject}: {'; '.join(values)}.")
    columns = ("", *(side.sweep for side in comparison.sweeps))
    return Table(columns, tuple(rows), " ".join(notes))


def _contrast_table(comparison: Comparison) -> Table:
    rows = [
        (
            each.sweep,
            each.metric,
            str(each.difference),
            each.verdict,
            str(each.points) if each.points else "front",
            str(each.seeds) if each.seeds else "none",
        )
        for each in comparison.contrasts
    ]
    columns = ("sweep", "quantity", "difference", "verdict", "equal settings", "common seeds")
    return Table(columns, tuple(rows))


def _comparison_rows(comparison: Comparison) -> Iterator[list[str]]:
    sides = comparison.sweeps
    yield ["points compared", *(str(side.points) for side in sides)]
    yield ["replicates", *(str(side.replicates) for side in sides)]
    yield ["points on its own front", *(str(side.on_front) for side in sides)]
    yield ["points on the joint front", *(str(side.on_joint_front) for side in sides)]
    yield ["hypervolume", *(_format(side.hypervolume) for side in sides)]
    yield ["hypervolume of true means", *(str(side.hypervolume_interval) for side in sides)]
    yield ["hypervolume attained by half", *(_format(side.attained) for side in sides)]
    for rival in sides:
        shares = (side.dominated.get(rival.sweep) for side in sides)
        cells = ("" if share is None else f"{share:.0%}" for share in shares)
        yield [f"front dominated by {rival.sweep}", *cells]


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
