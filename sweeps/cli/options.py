"""Arguments that several commands share, and tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.analysis.formatting import format_count

if TYPE_CHECKING:
    from sweeps.analysis.pareto import Objectives
    from sweeps.analysis.results import Result
    from sweeps.analysis.tables import Table

Sweep = Annotated[str, typer.Argument(help="The sweep's name, as `sweeps run` printed it.")]
Storage = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Where sweeps are kept; ./sweep-results by default."),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the table here.")
]

Minimize = Annotated[
    list[str] | None,
    typer.Option(metavar="METRIC", help="Smaller is better; may be given several times."),
]
Maximize = Annotated[
    list[str] | None,
    typer.Option(metavar="METRIC", help="Larger is better; may be given several times."),
]

_PIPED_WIDTH = 400  # wide enough that no cell is broken over lines where nobody looks at a screen


def named_objectives(minimize: Sequence[str], maximize: Sequence[str]) -> Objectives:
    """The objectives named on the command line, in the order given.

    Raises:
        InputError: If a metric is to be both small and large.
    """
    from sweeps.errors import InputError

    both = sorted(set(minimize) & set(maximize))
    if both:
        raise InputError(f"{both[0]} cannot be both minimized and maximized")
    found: Objectives = {
        **dict.fromkeys(minimize, "min"),
        **dict.fromkeys(maximize, "max"),
    }
    return found


def say(text: object, *, err: bool = False) -> None:
    """Print what others may have written: without what would steer a terminal.

    Args:
        text: To print.
        err: Whether to standard error.
    """
    from sweeps.errors import make_printable

    typer.echo(make_printable(str(text)), err=err)


def print_table(table: Table) -> None:
    """Print a table, at the terminal's width if there is one."""
    import re

    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    from sweeps.errors import make_printable

    # A value may hold square brackets and colons.
    console = Console(markup=False, emoji=False)
    if console.is_terminal:  # where room is scarce: metrics' names are long
        columns = (re.sub("([/_])", "\\1\n", column) for column in table.columns)
        drawn = RichTable(*map(make_printable, columns), box=SIMPLE_HEAD, pad_edge=False)
    else:
        console.width = _PIPED_WIDTH
        drawn = RichTable(*map(make_printable, table.columns))
    for column in drawn.columns:
        column.overflow = "fold"
    drawn.columns[-1].no_wrap = table.columns[-1] == "point"  # an id, to be copied whole
    for row in table.rows:
        drawn.add_row(*map(make_printable, row))
    console.print(drawn)
    if table.note:
        say(table.note)


def tell_pending(result: Result) -> None:
    """Say what a sweep that was interrupted, or is still running, lacks."""
    if result.pending:
        total = format_count(result.manifest.plan.points, "point")
        typer.echo(
            f"{result.pending} of the sweep's {total} {'is' if result.pending == 1 else 'are'} not "
            f"finished; sweeps resume {result.sweep} continues it"
        )
