"""Output on the terminal: lines, tables and commands, safe for text from other machines."""

from __future__ import annotations

import os
import re
import shlex
import sys
import textwrap
from typing import TYPE_CHECKING, Final

import typer
from rich.box import HEAVY_HEAD, SIMPLE_HEAD, Box
from rich.console import Console
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from sweeps.analysis.tables import Table
from sweeps.errors import make_printable
from tracking.redaction import redact

SUBMIT_COMMAND: Final = "SWEEPS_SUBMITTED_BY"
"""Environment variable of a cluster's job: the command line that submitted the sweep."""

_TEXT_WIDTH = 100
_PIPED_WIDTH = 400  # Without a terminal, no cell is broken over lines.


def say(text: object, *, err: bool = False) -> None:
    """Prints a line that may come from a file or another machine, without control characters."""
    typer.echo(make_printable(str(text)), err=err)


def say_wrapped(text: str, indent: str) -> None:
    """Prints a text within the terminal's width, at most 100 columns; later lines are indented."""
    width = min(make_console().width, _TEXT_WIDTH)
    lines = textwrap.wrap(
        make_printable(text), width, subsequent_indent=indent, break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
    typer.echo("\n".join(lines))


def print_table(table: Table) -> None:
    """Prints a table of points at the width of the terminal, if there is one."""
    console = make_console()
    if console.is_terminal:  # Metric names are long: break them over lines.
        names = [re.sub("([/_])", "\\1\n", column) for column in table.columns]
        grid = make_grid(*names, box=SIMPLE_HEAD)
    else:
        grid = make_grid(*table.columns)
    grid.columns[-1].no_wrap = table.columns[-1] == "point"  # An id must be copied whole.
    for row in table.rows:
        grid.add_row(*map(make_printable, row))
    console.print(grid)
    if table.note:
        say(table.note)


def make_console() -> Console:
    """Returns a console that shows square brackets and colons as they are."""
    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console


def make_grid(*columns: str, box: Box = HEAVY_HEAD) -> RichTable:
    """Returns an empty table whose long cells fold instead of being cut."""
    grid = RichTable(*map(make_printable, columns), box=box, pad_edge=box is not SIMPLE_HEAD)
    for column in grid.columns:
        column.overflow = "fold"
    return grid


def command_line() -> str:
    """Returns this command line without credentials; in a cluster's job, the user's own."""
    if submitted := os.environ.get(SUBMIT_COMMAND):
        return submitted
    return shlex.join(["sweeps", *map(redact, sys.argv[1:])])
