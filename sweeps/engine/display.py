"""Shows the progress of a sweep: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweeps.engine.progress import Display, SweepProgress
from sweeps.errors import make_printable

LINE_SECONDS: Final = 10.0
"""Time between two lines of progress without a terminal."""

_BAR_WIDTH: Final = 24


@contextmanager
def display_progress() -> Iterator[Display]:
    """Display on standard error: a bar on a terminal, a line now and then elsewhere.

    Yields:
        The display; it may be called at any rate.
    """
    if sys.stderr.isatty():
        with _bar_display() as show:
            yield show
    else:
        yield _line_display()


@contextmanager
def _bar_display() -> Iterator[Display]:
    """Three lines that stay in place; each is cut where the terminal is too narrow."""
    live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
    warnings = 0

    def show(progress: SweepProgress) -> None:
        nonlocal warnings
        if progress.setbacks > warnings and progress.setback is not None:
            live.console.print(Text(_format_warning(progress.setback)))
        warnings = progress.setbacks
        live.update(_render(progress), refresh=True)

    live.start()
    try:
        yield show
    finally:
        with suppress(OSError):  # the terminal is closed
            live.stop()


def _render(progress: SweepProgress) -> Group:
    first = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=progress.share, width=_BAR_WIDTH)
    first.add_row(bar, Text(progress.describe_training(), no_wrap=True, overflow="ellipsis"))
    others = (progress.describe_points(), progress.describe_front() or "no front yet")
    return Group(first, *(Text(line, no_wrap=True, overflow="ellipsis") for line in others))


def _line_display() -> Display:
    printed_at = time.monotonic()
    warnings = 0
    last_state: str | None = None

    def show(progress: SweepProgress) -> None:
        nonlocal printed_at, warnings, last_state
        if progress.setbacks > warnings and progress.setback is not None:
            print(_format_warning(progress.setback), file=sys.stderr, flush=True)
        warnings = progress.setbacks
        state = progress.doing or progress.waiting
        is_new, last_state = state not in (None, last_state), state
        if is_new or time.monotonic() - printed_at >= LINE_SECONDS:
            printed_at = time.monotonic()
            print(progress, file=sys.stderr, flush=True)

    return show


def _format_warning(setback: str) -> str:
    return make_printable(f"Warning: {setback}")
