"""`sweeps points`: every point of a sweep as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.analysis.formatting import format_count
from sweeps.cli.options import Output, Storage, Sweep, print_table, tell_pending

if TYPE_CHECKING:
    import pandas as pd

_SUFFIXES = (".parquet", ".csv")
_MOST_METRICS = 4


def points(
    sweep: Sweep,
    storage: Storage = None,
    tracking_uri: Annotated[
        str | None, typer.Option(metavar="URI", help="Read from this MLflow store instead.")
    ] = None,
    output: Output = None,
) -> None:
    """Show or save (.parquet, .csv) every point: its configuration, metrics and intervals."""
    from sweeps.analysis.export import check_output_path, save_frame
    from sweeps.analysis.results import open_result
    from sweeps.analysis.tables import points_table, varying_fields

    check_output_path(output, _SUFFIXES)
    if tracking_uri is None:
        result = open_result(sweep, storage)
        frame, metrics, fields = result.points, list(result.objectives), result.swept_fields
    else:
        frame, metrics = _tracked(sweep, tracking_uri)
        fields = varying_fields(frame)
    if output is not None:
        save_frame(frame, output)
        typer.echo(f"{format_count(len(frame), 'point')} in {output}")
    else:
        print_table(points_table(frame, metrics, fields))
    if tracking_uri is None:
        tell_pending(result)


def _tracked(sweep: str, tracking_uri: str) -> tuple[pd.DataFrame, list[str]]:
    """The points in MLflow, and the metrics worth a column on a terminal."""
    import tracking

    frame = tracking.load_points(sweep, tracking_uri)
    reported = [str(c) for c in frame.columns if f"{c}.ci_low" in frame.columns]
    # Runs do not say what their study minimised: show the metrics of the whole, not per attack.
    chief = [m for m in reported if m.count("/") == 1 and m.startswith(("privacy/", "utility/"))]
    return frame, chief[:_MOST_METRICS]
