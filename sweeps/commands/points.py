"""`sweeps points`: every point of a sweep as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.commands.options import Output, Storage, Sweep, print_table

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
    from sweeps.export import check_output, save_frame
    from sweeps.frames import varying
    from sweeps.tables import points_table

    check_output(output, _SUFFIXES)
    frame, metrics = _load(sweep, storage, tracking_uri)
    if output is not None:
        save_frame(frame, output)
        typer.echo(f"{len(frame)} points in {output}")
        return
    print_table(points_table(frame, metrics, varying(frame)))


def _load(
    sweep: str, storage: str | None, tracking_uri: str | None
) -> tuple[pd.DataFrame, list[str]]:
    """The points, and the metrics worth a column on a terminal."""
    if tracking_uri is None:
        from sweeps.results import open_result

        result = open_result(sweep, storage)
        return result.points, list(result.objectives)
    import tracking

    frame = tracking.load_points(sweep, tracking_uri)
    reported = [str(c) for c in frame.columns if f"{c}.ci_low" in frame.columns]
    # Runs do not say what their study minimised: show the metrics of the whole, not per attack.
    chief = [m for m in reported if m.count("/") == 1 and m.startswith(("privacy/", "utility/"))]
    return frame, chief[:_MOST_METRICS]
