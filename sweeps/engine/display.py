"""Display of a sweep's progress: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweeps.analysis.text import format_count
from sweeps.errors import make_printable
from sweeps.planning.plan import format_duration
from sweeps.store.lease import RunProgress

LINE_SECONDS: Final = 10.0
"""Time between two lines of progress without a terminal."""

_BAR_WIDTH: Final = 24


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
    """Progress of a run, with the counts of its sweep, which has `points` in all."""

    points: int
    counts: SweepCounts = SweepCounts()

    def __str__(self) -> str:
        """One line with everything."""
        parts = (self.describe_training(), self.describe_points(), self.describe_front())
        return ", ".join(part for part in parts if part)

    def describe_training(self) -> str:
        """Current work, its share and the time left."""
        if self.doing is not None:
            return self.doing
        if self.share >= 1:
            return "all trained, the report and MLflow come next"
        if self.waiting is not None:
            return f"{self.share:.0%} trained, {self.waiting}"
        if self.eta is None:
            return f"{self.share:.0%} trained"
        seconds = self.eta if self.eta < 20 else round(self.eta, -1)
        return f"{self.share:.0%} trained, about {format_duration(seconds)} left"

    def describe_points(self) -> str:
        """Counts of points, and their rate; the points of a pack are done at its end."""
        counts = self.counts
        parts = [f"{counts.complete:,} of {format_count(self.points, 'point')} done"]
        if self.trainings is not None and self.trainings[1] > self.points:
            parts[0] += f" ({self.trainings[0]:,} of {format_count(self.trainings[1], 'training')})"
        parts += [f"{counts.failed} failed"] if counts.failed else []
        parts += [f"{counts.stopped} stopped early"] if counts.stopped else []
        parts += [f"{self.rate:.1f} points per minute"] if self.rate is not None else []
        if counts.complete < self.points and self.doing is None and self.use and self.use.packs:
            parts += [f"{format_count(self.use.packs, 'pack')} in training"]
        return ", ".join(parts)

    def describe_front(self) -> str:
        """Size and best values of the front; empty while there is none."""
        best = ", ".join(f"{metric} {value:.3g}" for metric, value in self.counts.best.items())
        return f"front of {self.counts.front} (best {best})" if self.counts.front else ""


Display = Callable[[SweepProgress], None]


@contextmanager
def display_progress() -> Iterator[Display]:
    """Display on standard error: a bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _with_warnings(_line_display(), _print_line)
        return
    live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
    live.start()
    try:
        # Three lines that stay in place; each is cut where the terminal is too narrow.
        yield _with_warnings(
            lambda progress: live.update(_render(progress), refresh=True),
            lambda warning: live.console.print(Text(warning)),
        )
    finally:
        with suppress(OSError):  # the terminal is closed
            live.stop()


def _with_warnings(display: Display, print_warning: Callable[[str], None]) -> Display:
    """Prints each warning once, before the progress."""
    printed = 0

    def show(progress: SweepProgress) -> None:
        nonlocal printed
        if progress.setbacks > printed and progress.setback is not None:
            print_warning(make_printable(f"Warning: {progress.setback}"))
        printed = progress.setbacks
        display(progress)

    return show


def _render(progress: SweepProgress) -> Group:
    first = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=progress.share, width=_BAR_WIDTH)
    first.add_row(bar, Text(progress.describe_training(), no_wrap=True, overflow="ellipsis"))
    others = (progress.describe_points(), progress.describe_front() or "no front yet")
    return Group(first, *(Text(line, no_wrap=True, overflow="ellipsis") for line in others))


def _line_display() -> Display:
    printed_at = time.monotonic()
    last_state: str | None = None

    def show(progress: SweepProgress) -> None:
        nonlocal printed_at, last_state
        state = progress.doing or progress.waiting
        is_new, last_state = state not in (None, last_state), state
        if is_new or time.monotonic() - printed_at >= LINE_SECONDS:
            printed_at = time.monotonic()
            _print_line(str(progress))

    return show


def _print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
