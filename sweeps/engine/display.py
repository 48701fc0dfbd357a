"""Display of a sweep's progress on a terminal, in a notebook, or in a log."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from sweeps.analysis.text import format_count
from sweeps.errors import make_printable
from sweeps.planning.costs import format_duration
from sweeps.store.lease import RunProgress

LINE_SECONDS: Final = 10.0
"""Time between two lines of progress without a terminal."""

STOPPING: Final = "stopping: finishing checkpoints, up to 20 s; press Ctrl-C again to stop at once"
"""Current work after the first signal."""

_BAR_WIDTH: Final = 24
_ECHO_WIDTH: Final = 2  # Terminals print ^C at the end of the last line.


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """Counts of a sweep so far.

    Attributes:
        complete: Points with all replicates.
        failed: Complete points with a failed replicate, and points whose pack failed.
        stopped: Complete points without a failed replicate, but with a stopped one.
        front: Finished points on the front.
        best: Best value of each objective on the front, by metric.
        trainings: Replicates in the ledger, also of incomplete points.
    """

    complete: int = 0
    failed: int = 0
    stopped: int = 0
    front: int = 0
    best: Mapping[str, float] = field(default_factory=dict)
    trainings: int = 0


class SweepProgress(RunProgress):
    """Progress of a run, with the counts of its sweep.

    Attributes:
        points: Number of points in all.
        counts: Counts of the sweep so far.
        trained_before: Trainings of the sweep that this run found finished or copied.
    """

    points: int
    counts: SweepCounts = SweepCounts()
    trained_before: int = 0

    def __str__(self) -> str:
        """One line with everything."""
        parts = (self.describe_training(), self.describe_points(), self.describe_front())
        return ", ".join(part for part in parts if part)

    def describe_training(self) -> str:
        """Current work, its share and the time left."""
        if self.activity is not None:
            return self.activity
        if self.share >= 1:
            return "all trained, the report and MLflow come next"
        work = " of this run" if self.trained_before else ""
        trained = f"{self.share:.0%}{work} trained"
        if self.waiting is not None:
            return f"{trained}, {self.waiting}"
        if self.eta is None:
            return trained
        seconds = self.eta if self.eta < 20 else round(self.eta, -1)
        return f"{trained}, about {format_duration(seconds)} left"

    def describe_points(self) -> str:
        """Counts of points, and the rate of trainings; the points of a pack are done at its end."""
        counts = self.counts
        parts = [f"{counts.complete:,} of {format_count(self.points, 'point')} done"]
        rated, details = "trainings per minute", []
        if self.trainings is not None and self.trainings[1] > self.points:
            rated = "per minute"  # of trainings; a terminal of 80 columns has no room for more
            details = [f"{self.trainings[0]:,} of {format_count(self.trainings[1], 'training')}"]
        details += [f"{self.trained_before:,} at the start"] if self.trained_before else []
        parts[0] += f" ({', '.join(details)})" if details else ""
        parts += [f"{counts.failed} failed"] if counts.failed else []
        parts += [f"{counts.stopped} stopped early"] if counts.stopped else []
        parts += [f"{self.rate:.3g} {rated}"] if self.rate is not None else []
        if counts.complete < self.points and self.activity is None and self.use and self.use.packs:
            parts += [f"{format_count(self.use.packs, 'pack')} running"]
        return ", ".join(parts)

    def describe_front(self) -> str:
        """Size and best values of the front, without families; empty while there is none."""
        values = self.counts.best.items()
        best = ", ".join(f"{metric.rpartition('/')[2]} {value:.3g}" for metric, value in values)
        return f"front of {self.counts.front} (best {best})" if self.counts.front else ""


Display = Callable[[SweepProgress], None]


@contextmanager
def display_progress(*, quiet: bool = False) -> Iterator[Display]:
    """Display of progress: a bar on a terminal or in a notebook, a line now and then elsewhere.

    All but a notebook's is on standard error. A quiet display prints warnings and the stop alone.
    """
    if quiet:
        yield _with_warnings(_quiet_display(), print_line)
    elif _is_notebook():
        yield _NotebookDisplay()
    elif not sys.stderr.isatty():
        yield line_display(print_line)
    else:
        live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
        block = ProgressBlock()
        live.start()
        try:

            def show(progress: SweepProgress) -> None:
                block.progress = progress
                live.update(block, refresh=True)

            yield _with_warnings(show, lambda warning: live.console.print(Text(warning)))
        finally:
            with suppress(OSError):  # the terminal is closed
                live.stop()


class ProgressBlock:
    """Three lines that stay in place; each is cut where the terminal is too narrow.

    A terminal that becomes narrower breaks the lines of the last drawing, so the block then takes
    more rows than were drawn. Rich erases the drawn number of rows, and this block the others.
    """

    def __init__(self) -> None:
        """Starts without progress, which must be set before the block is drawn."""
        self.progress: SweepProgress | None = None
        self._lengths: list[int] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields control codes for broken lines, then the lines."""
        width = options.max_width
        broken = sum(math.ceil(length / width) - 1 for length in self._lengths)
        for _ in range(broken):
            yield Control((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))
        lines = [] if self.progress is None else _render(self.progress)
        for line in lines:
            line.no_wrap = True
            line.truncate(max(1, width - _ECHO_WIDTH), overflow="ellipsis")
            yield line
        self._lengths = [max(1, line.cell_len + _ECHO_WIDTH) for line in lines]


def line_display(print_text: Callable[[str], None]) -> Display:
    """Display that prints a line now and then, and each warning once."""
    printed_at = time.monotonic()
    last_state: str | None = None

    def show(progress: SweepProgress) -> None:
        nonlocal printed_at, last_state
        state = progress.activity or progress.waiting
        is_new, last_state = state not in (None, last_state), state
        if is_new or time.monotonic() - printed_at >= LINE_SECONDS:
            printed_at = time.monotonic()
            print_text(str(progress))

    return _with_warnings(show, print_text)


def print_line(text: str) -> None:
    """Prints a line on standard error at once."""
    print(text, file=sys.stderr, flush=True)


class _NotebookDisplay:
    """Output of a notebook's cell that is replaced in place: all warnings, then the progress."""

    def __init__(self) -> None:
        self._warnings: list[str] = []
        self._handle: Any = None
        self._show = _with_warnings(self._replace, self._warnings.append)

    def __call__(self, progress: SweepProgress) -> None:
        self._show(progress)

    def _replace(self, progress: SweepProgress) -> None:
        lines = [*self._warnings, *(line.plain for line in _render(progress))]
        content = {"text/plain": "\n".join(lines)}
        if self._handle is None:
            show = import_module("IPython.display").display  # exists in a notebook alone
            self._handle = show(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _quiet_display() -> Display:
    stop_was_shown = False

    def show(progress: SweepProgress) -> None:
        nonlocal stop_was_shown
        if progress.activity == STOPPING and not stop_was_shown:
            stop_was_shown = True
            print_line(STOPPING)

    return show


def _with_warnings(display: Display, print_warning: Callable[[str], None]) -> Display:
    """Prints each warning once, before the progress; likewise an outage of MLflow and its end."""
    printed, outage_since = 0, None

    def show(progress: SweepProgress) -> None:
        nonlocal printed, outage_since
        since = None if progress.outage is None else progress.outage.since
        if since != outage_since:
            end = "points reach MLflow again"
            print_warning(make_printable(f"Warning: {progress.outage}" if since else end))
        outage_since = since
        if progress.warning_count > printed and progress.last_warning is not None:
            print_warning(make_printable(f"Warning: {progress.last_warning}"))
        printed = progress.warning_count
        display(progress)

    return show


def _render(progress: SweepProgress) -> list[Text]:
    """The lines: bar and current work, points, front; a stop needs the whole first line."""
    done = round(_BAR_WIDTH * progress.share)
    bar = Text.assemble(("━" * done, "green"), ("━" * (_BAR_WIDTH - done), "bright_black"))
    others = (progress.describe_points(), progress.describe_front() or "no front yet")
    first = bar + Text(f" {progress.describe_training()}")
    return [Text(STOPPING) if progress.activity == STOPPING else first, *map(Text, others)]
