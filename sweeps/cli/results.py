"""`sweeps points`, `pareto`, `compare`, `claims` and `report`: the results of sweeps."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Annotated, Literal

import pandas as pd
import typer

import tracking
from sweeps.analysis.comparison import (
    compare_sweeps,
    comparison_table,
    contrast_table,
)
from sweeps.analysis.constrained import Constraint
from sweeps.analysis.export import check_output_path, save_frame
from sweeps.analysis.pareto import Objectives, worst_values
from sweeps.analysis.remarks import count_exclusions, front_remarks, note_unconfirmed
from sweeps.analysis.results import Result, open_result
from sweeps.analysis.tables import front_table, points_table, varying_fields
from sweeps.analysis.text import format_count
from sweeps.cli.options import (
    Maximize,
    Minimize,
    Output,
    ReadAddress,
    ReadFrom,
    Storage,
    Sweep,
)
from sweeps.cli.terminal import print_table, say, say_sentence
from sweeps.errors import InputError
from sweeps.planning.continuation import names_user_files
from sweeps.remote.commands import connect_job_server
from sweeps.remote.submission import fetch_archive
from sweeps.report.display import load_plots
from sweeps.report.findings import findings_markdown, findings_text, judge_sweep
from sweeps.store.filesystem import DEFAULT_STORAGE
from sweeps.store.ledger import list_sweeps
from sweeps.store.recorded import PREFIX
from sweeps.store.transfer import ARCHIVE_FILE, unpack_sweep

_PLOT_SUFFIXES = (".html", ".png", ".svg", ".pdf")


def points(
    sweep: Sweep,
    storage: Storage = None,
    tracking_uri: ReadFrom = None,
    address: ReadAddress = None,
    output: Output = None,
) -> None:
    """Show every point of a sweep: configuration, metrics, intervals.

    -o saves the whole table as .parquet or .csv.
    """
    check_output_path(output, (".parquet", ".csv"))
    result = _open(sweep, storage, tracking_uri, address)
    if output is None:
        print_table(points_table(result.points, list(result.objectives), result.swept_fields))
    else:
        _save(result.points, output)
    _print_pending(result)


def pareto(
    sweep: Sweep,
    storage: Storage = None,
    tracking_uri: ReadFrom = None,
    address: ReadAddress = None,
    minimize: Minimize = None,
    maximize: Maximize = None,
    output: Output = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Plot the front: .html is interactive, .pdf, .svg or .png for print.",
        ),
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
    the points of a group from its first. -o saves the front as .parquet, .csv or .json.
    """
    check_output_path(output, (".parquet", ".csv", ".json"))
    check_output_path(plot, _PLOT_SUFFIXES)
    chosen = _parse_objectives(minimize or (), maximize or ())
    result = _open(sweep, storage, tracking_uri, address)
    objectives = chosen or result.objectives
    try:
        front = result.front(objectives, include_flagged=include_flagged, all=True)
        # The best point in each objective that the constraints do not name, or in all.
        limits = where or []
        constrained = {Constraint.parse(text).metric for text in limits}
        answers = []
        asked = [m for m in objectives if m not in constrained] or list(objectives)
        for metric in asked if limits else ():
            find = result.lowest if objectives[metric] == "min" else result.highest
            answers.append(str(find(metric, *limits, include_flagged=include_flagged)))
    except ValueError as error:
        raise InputError(str(error)) from error
    print_table(front_table(front, objectives, result.swept_fields))
    excluded = count_exclusions(result, objectives, include_flagged=include_flagged)
    causes = [f"{number} {cause}" for cause, number in excluded.items() if number]
    size = format_count(len(front), "point")
    typer.echo(f"{size} on the front; excluded: {', '.join(causes) or 'none'}")
    remarks = front_remarks(result, front, objectives, include_flagged=include_flagged)
    for line in (*remarks, *_hypervolume(result, objectives, include_flagged), *answers):
        say_sentence(line)
    _print_pending(result)
    if output is not None:
        _save(front, output)
    if plot is not None:
        _plot("save_front", result, front, objectives, path=plot)


def _open(
    sweep: str,
    storage: str | None,
    tracking_uri: str | None = None,
    address: str | None = None,
) -> Result:
    """Reads a sweep from a storage, or a copy of its ledger from MLflow or a cluster.

    A copy in MLflow may be older than the sweep, so its time is printed.
    """
    given = {"--storage": storage, "--tracking-uri": tracking_uri, "--address": address}
    named = [option for option, value in given.items() if value is not None]
    if len(named) > 1:
        raise InputError(f"give one place to read {sweep} from; got {' and '.join(named)}")
    if tracking_uri is not None:
        archive = tracking.read_sweep_file(sweep, ARCHIVE_FILE, tracking_uri)
    elif address is not None:
        archive = fetch_archive(connect_job_server(address), sweep)
    else:
        return open_result(sweep, storage)
    folder = Path(mkdtemp(prefix="sweeps-copy-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    unpack_sweep(archive, folder, sweep)
    result = open_result(sweep, str(folder))
    times = result.replicates["finished_at"]
    if tracking_uri is not None and len(times):
        last = f"{times.max():%Y-%m-%d %H:%M:%S} UTC"
        say(f"Copy of {sweep} in MLflow; its last training finished {last}.", err=True)
    return result


def _hypervolume(result: Result, objectives: Objectives, include_flagged: bool) -> Iterator[str]:
    """The hypervolume with its interval, and its reference; nothing without a finite point."""
    reference = worst_values(result.points, objectives, include_flagged=include_flagged)
    if reference:
        corner = ", ".join(f"{metric} {value:.4g}" for metric, value in reference.items())
        try:
            volume = result.hypervolume(objectives, reference, include_flagged=include_flagged)
        except ValueError as error:
            yield str(error)
            return
        yield f"hypervolume of the true means: {volume}, up to the worst values ({corner})"
        if volume.low <= 0:
            yield "  (corrected for the luck of noisy points; noise hides whether it is above 0)"


def compare(
    sweeps: Annotated[list[str], typer.Argument(metavar="SWEEP SWEEP...", help="Sweep names.")],
    storage: Storage = None,
    tracking_uri: ReadFrom = None,
    address: ReadAddress = None,
    minimize: Minimize = None,
    maximize: Maximize = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the fronts: .html is interactive, .pdf, .svg or .png for print.",
        ),
    ] = None,
) -> None:
    """Compare the fronts of sweeps: hypervolume, attainment, mutual domination.

    Differences from the first sweep have 95% intervals, paired by common seeds. Without --minimize
    and --maximize, the objectives that the studies share are used. Hypervolumes share one reference
    point, the worst values over all these sweeps.
    """
    objectives = _parse_objectives(minimize or (), maximize or ())
    check_output_path(plot, _PLOT_SUFFIXES)
    results = [_open(name, storage, tracking_uri, address) for name in sweeps]
    comparison = compare_sweeps(results, objectives or None)
    if plot is not None:
        _plot("save_fronts", results, comparison.objectives, path=plot)
    print_table(comparison_table(comparison))
    for result in results:
        if note := note_unconfirmed(result):
            say(f"{result.sweep}: {note}")
        _print_pending(result)
    say(f"Differences from {sweeps[0]}, with 95% intervals:")
    print_table(contrast_table(comparison))
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
    """Test the claims of a study on its results: agrees, disagrees, cannot tell or not posed.

    A sweep of a packaged study is judged by the claims that the study has today.
    """
    names = sweeps or list_sweeps(storage or DEFAULT_STORAGE)
    if not names:
        raise InputError(f"{storage or DEFAULT_STORAGE} has no sweep; give another --storage")
    judged = [judge_sweep(open_result(name, storage)) for name in names]
    for line in (findings_text if format_ == "text" else findings_markdown)(judged):
        say(line)


def report(
    sweeps: Annotated[list[str], typer.Argument(metavar="SWEEP...", help="Sweep names.")],
    storage: Storage = None,
    tracking_uri: ReadFrom = None,
    address: ReadAddress = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="HTML file to write.",
            show_default="(report.html in the sweep's folder; of several: A-B.html)",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write every figure as PNG, SVG and PDF, and every table as CSV, instead.",
        ),
    ] = None,
) -> None:
    """Write a report of a sweep: one HTML page that needs no network.

    The page of several sweeps compares them and links to a report of each beside it. With
    --figures, each sweep of several has a folder.
    """
    check_output_path(output, (".html",))
    results = [_open(name, storage, tracking_uri, address) for name in dict.fromkeys(sweeps)]
    if figures is None:
        (first, *others) = results
        is_copy = tracking_uri is not None or address is not None or "://" in first.storage
        is_copy |= any(name.startswith(PREFIX) for name in sweeps)
        # A comparison must not take the place of the sweep's own report.
        path = output or Path(first.storage, first.sweep, "report.html")
        if output is None and (others or is_copy):
            path = Path("-".join(result.sweep for result in results) + ".html")
        typer.echo(load_plots().write_report(results, path))
        return
    for result in results:
        folder = figures if len(results) == 1 else figures / result.sweep
        try:
            written = load_plots().write_figures(result, folder)
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror}") from error
        typer.echo(f"{format_count(len(written), 'file')} written to {folder}")


def _parse_objectives(minimize: Sequence[str], maximize: Sequence[str]) -> Objectives:
    if both := sorted(set(minimize) & set(maximize)):
        raise InputError(f"{both[0]} is given to both --minimize and --maximize; choose one")
    objectives: Objectives = {**dict.fromkeys(minimize, "min"), **dict.fromkeys(maximize, "max")}
    return objectives


def _save(frame: pd.DataFrame, path: Path) -> None:
    save_frame(frame, path)
    typer.echo(f"{format_count(len(frame), 'point')} saved in {path}")


def _print_pending(result: Result) -> None:
    if result.pending:
        total, sweep = format_count(result.size, "point"), result.sweep
        own = names_user_files(result.study)  # `resume` refuses to run what only the storage names
        command = f"sweeps run STUDY --name {sweep}" if own else f"sweeps resume {sweep}"
        typer.echo(f"{result.pending} of {total} unfinished; continue with: {command}")


def _plot(function: str, *arguments: object, path: Path) -> None:
    """Calls a function of `sweeps.report.plots` that writes a file."""
    try:
        getattr(load_plots(), function)(*arguments, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    typer.echo(f"plot saved in {path}")
