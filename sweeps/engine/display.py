"""Display of a sweep's progress: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweeps.analysis.text import format_count
from sweeps.errors import make_printable
from sweeps.planning.plan import format_duration
from sweeps.store.lease import ResourceUse

LINE_SECONDS: Final = 10.0
"""Time between two lines of progress without a terminal."""

_BAR_WIDTH: Final = 24


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """Progress of a sweep.

    Attributes:
        done: Complete points, failed and stopped ones included.
        failed: Points that failed, or whose pack failed.
        share: Share of this run's work that is done, in [0, 1].
        rate: Points per minute in this run; None before the first.
        eta: Estimated seconds left; None while unknown.
        best: Best value of each objective on the front, by metric.
        doing: Preparation in progress, in words; None while packs are trained.
        stopped: Points that were stopped early.
        use: Resources in use; None before they are known.
        trainings: Replicates finished, and replicates in all; None if unknown.
        waiting: What training waits for, in words; None while packs are trained.
        setbacks: Number of warnings, mostly of packs that were lost and are tried again.
        setback: The last warning.
    """

    points: int
    done: int
    failed: int
    share: float
    rate: float | None
    eta: float | None
    front: int
    best: Mapping[str, float]
    doing: str | None = None
    stopped: int = 0
    use: ResourceUse | None = None
    trainings: tuple[int, int] | None = None
    waiting: str | None = None
    setbacks: int = 0
    setback: str | None = None

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
        parts = [f"{self.done:,} of {format_count(self.points, 'point')} done"]
        if self.trainings is not None and self.trainings[1] > self.points:
            parts[0] += f" ({self.trainings[0]:,} of {format_count(self.trainings[1], 'training')})"
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.stopped} stopped early"] if self.stopped else []
        parts += [f"{self.rate:.1f} points per minute"] if self.rate is not None else []
        if self.done < self.points and self.doing is None and self.use and self.use.packs:
            parts += [f"{format_count(self.use.packs, 'pack')} in training"]
        return ", ".join(parts)

    def describe_front(self) -> str:
        """Size and best values of the front; empty while there is none."""
        best = ", ".join(f"{metric} {value:.3g}" for metric, value in self.best.items())
        return f"front of {self.front} (best {best})" if self.front else ""


Display = Callable[[SweepProgress], None]


@contextmanager
def display_progress() -> Iterator[Display]:
    """Display on standard error: a bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _line_display()
        return
    live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
    live.start()
    try:
        yield _bar_display(live)
    finally:
        with suppress(OSError):  # the terminal is closed
            live.stop()


def _bar_display(live: Live) -> Display:
    """Three lines that stay in place; each is cut where the terminal is too narrow."""
    warnings = 0

    def show(progress: SweepProgress) -> None:
        nonlocal warnings
        if progress.setbacks > warnings and progress.setback is not None:
            live.console.print(Text(_format_warning(progress.setback)))
        warnings = progress.setbacks
        live.update(_render(progress), refresh=True)

    return show


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
