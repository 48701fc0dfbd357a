"""Output on the terminal: lines, tables and commands, safe for text from other machines."""

from __future__ import annotations

import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterable, Sequence

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from privnets.credentials import redact
from sweeps.analysis.text import Table
from sweeps.errors import make_printable
from sweeps.remote.environment import SUBMIT_COMMAND

_TEXT_WIDTH = 100
_GAP = re.compile(r"(?<=[/_])|(?<!±)\s")
_PIPED_WIDTH = 120


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


def say_sentence(text: str, indent: str = "") -> None:
    """Prints a sentence; on a terminal no word of it is broken over lines."""
    if make_console().is_terminal:
        say_wrapped(text, indent)
    else:
        say(text)


def print_table(table: Table) -> None:
    """Prints a table of points at the width of the terminal, 120 columns without one."""
    print_rows(table.columns, table.rows)
    if table.note:
        say_sentence(table.note)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Prints rows as a table that breaks no word; where that is too wide, a block per row."""
    console = make_console()
    cells = [[_printable(cell) for cell in row] for row in rows]
    plain = [[cell.plain for cell in row] for row in cells]
    widths = [
        # Parts that must not be broken: of a metric's name, or `± 0.02`.
        max(cell_len(word) for text in texts for word in _GAP.split(text))
        for texts in zip(columns, *plain, strict=True)
    ]
    spare = console.width - sum(widths) - (len(widths) - 1)
    if spare < 0:
        _print_blocks(console, columns, cells)
        return
    gap = 2 if spare >= len(widths) - 1 else 1
    spare -= (gap - 1) * (len(widths) - 1)
    grid = RichTable(box=None, padding=(0, gap, 0, 0), pad_edge=False)
    for index, texts in enumerate(zip(columns, *plain, strict=True)):
        extra = max(0, min(spare, max(map(cell_len, texts)) - widths[index]))
        spare -= extra
        widths[index] += extra
    for name, width in zip(columns, widths, strict=True):
        grid.add_column(_wrap(_printable(name), width), width=width)
    cells = [list(map(_wrap, row, widths)) for row in cells]
    for row in cells:
        grid.add_row(*row)
    console.print(grid)


def _print_blocks(
    console: Console, columns: Sequence[str], cells: Sequence[Sequence[Text]]
) -> None:
    name_width = max(map(cell_len, columns))
    for row in cells:
        grid = RichTable.grid(padding=(0, 2))
        grid.add_column(min_width=min(name_width, console.width // 2))
        grid.add_column(overflow="fold")
        for name, cell in zip(columns, row, strict=True):
            grid.add_row(make_printable(name), cell)
        console.print(grid)
        console.print()


def _printable(cell: str | Text) -> Text:
    """A cell without control characters."""
    return cell if isinstance(cell, Text) else Text(make_printable(cell))


def _wrap(cell: Text, width: int) -> Text:
    """Breaks a cell between words into lines of at most `width` characters."""
    lines, start, end, following = [], 0, 0, 0
    for gap in [*_GAP.finditer(cell.plain), None]:
        stop = gap.start() if gap else len(cell)
        if cell_len(cell.plain[start:stop]) > width and end > start:
            lines.append(cell[start:end])
            start = following
        end, following = stop, gap.end() if gap else stop
    return Text("\n").join([*lines, cell[start:]])


def make_console() -> Console:
    """Returns a console that shows square brackets and colons as they are."""
    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console


def command_line() -> str:
    """Returns this command line without credentials; in a cluster's job, the user's own."""
    if submitted := os.environ.get(SUBMIT_COMMAND):
        return submitted
    return shlex.join(["sweeps", *map(redact, sys.argv[1:])])
