"""Display of a sweep's progress on a terminal, in a notebook, or in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sweeps.analysis.text import format_count
from sweeps.errors import make_printable
from sweeps.planning.costs import format_duration
from sweeps.store.status import SweepStatus

LINE_SECONDS: Final = 10.0
"""Time between two lines of progress without a terminal."""

STOPPING: Final = "stopping: finishing checkpoints, up to 20 s; press Ctrl-C again to stop at once"
"""Current work after the first signal."""

_BAR_WIDTH: Final = 24


def describe(status: SweepStatus) -> str:
    """One line with everything that a display shows."""
    parts = (describe_training(status), describe_points(status), describe_front(status))
    return ", ".join(part for part in parts if part)


def describe_training(status: SweepStatus) -> str:
    """Current work, its share and the time left."""
    if status.activity is not None:
        return status.activity
    if status.share >= 1:
        return "all trained, the report and MLflow come next"
    work = " of this run" if status.trained_before else ""
    trained = f"{status.share:.0%}{work} trained"
    if status.waiting is not None:
        return f"{trained}, {status.waiting}"
    if status.eta is None:
        return trained
    seconds = status.eta if status.eta < 20 else round(status.eta, -1)
    return f"{trained}, about {format_duration(seconds)} left"


def describe_points(status: SweepStatus) -> str:
    """Counts of points, and the rate of trainings; the points of a pack are done at its end."""
    counts, before = status.counts, status.trained_before
    parts = [f"{counts.complete:,} of {format_count(status.points, 'point')} done"]
    rated, details = "trainings per minute", []
    if status.trainings is not None and status.trainings[1] > status.points:
        rated = "per minute"  # of trainings; a terminal of 80 columns has no room for more
        details = [f"{status.trainings[0]:,} of {format_count(status.trainings[1], 'training')}"]
    details += [f"{before:,} at the start"] if before else []
    parts[0] += f" ({', '.join(details)})" if details else ""
    parts += [f"{counts.failed} failed"] if counts.failed else []
    parts += [f"{counts.stopped} stopped early"] if counts.stopped else []
    if status.rate is not None and status.share < 1:  # it falls once nothing trains
        parts.append(f"{status.rate:.3g} {rated}")
    if counts.complete < status.points and status.activity is None and status.use:
        packs = status.use.packs
        parts += [f"{format_count(packs, 'pack')} running"] if packs else []
    return ", ".join(parts)


def describe_front(status: SweepStatus) -> str:
    """Size and best values of the front, without families; empty while there is none."""
    values = status.counts.best.items()
    best = ", ".join(f"{metric.rpartition('/')[2]} {value:.3g}" for metric, value in values)
    return f"front of {status.counts.front} (best {best})" if status.counts.front else ""


Display = Callable[[SweepStatus], None]


@contextmanager
def display_progress(*, quiet: bool = False) -> Iterator[Display]:
    """Display of progress: a bar on a terminal or in a notebook, a line now and then elsewhere.

    All but a notebook's is on standard error. A quiet display prints warnings and the stop alone.
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if quiet:
        shown: list[str] = []

        def show_stop(status: SweepStatus) -> None:
            if status.activity == STOPPING and not shown:
                shown.append(STOPPING)
                print_line(STOPPING)

        yield _with_warnings(show_stop, print_line)
    elif getattr(shell, "kernel", None) is not None:  # this process is that of a notebook
        yield _NotebookDisplay()
    elif not sys.stderr.isatty():
        yield line_display(print_line)
    else:
        live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
        live.start()
        try:

            def show(status: SweepStatus) -> None:
                live.update(Group(*render(status)), refresh=True)

            yield _with_warnings(show, lambda warning: live.console.print(Text(warning)))
        finally:
            with suppress(OSError):  # the terminal is closed
                live.stop()


def line_display(print_text: Callable[[str], None]) -> Display:
    """Display that prints a line now and then, and each warning once."""
    printed_at = time.monotonic()
    last_state: str | None = None

    def show(status: SweepStatus) -> None:
        nonlocal printed_at, last_state
        state = status.activity or status.waiting
        is_new, last_state = state not in (None, last_state), state
        if is_new or time.monotonic() - printed_at >= LINE_SECONDS:
            printed_at = time.monotonic()
            print_text(describe(status))

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

    def __call__(self, status: SweepStatus) -> None:
        self._show(status)

    def _replace(self, status: SweepStatus) -> None:
        lines = [*self._warnings, *(line.plain for line in render(status))]
        content = {"text/plain": "\n".join(lines)}
        if self._handle is None:
            show = import_module("IPython.display").display  # exists in a notebook alone
            self._handle = show(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _with_warnings(display: Display, print_warning: Callable[[str], None]) -> Display:
    """Prints each warning once, before the progress; likewise an outage of MLflow and its end."""
    printed, outage_since = 0, None

    def show(status: SweepStatus) -> None:
        nonlocal printed, outage_since
        since = None if status.outage is None else status.outage.since
        if since != outage_since:
            end = "points reach MLflow again"
            print_warning(make_printable(f"Warning: {status.outage}" if since else end))
        outage_since = since
        if status.warning_count > printed and status.last_warning is not None:
            print_warning(make_printable(f"Warning: {status.last_warning}"))
        printed = status.warning_count
        display(status)

    return show


def render(status: SweepStatus) -> list[Text]:
    """Three lines: bar and current work, points, front; each is cut where a terminal is too narrow.

    A stop needs the whole first line.
    """
    done = round(_BAR_WIDTH * status.share)
    bar = Text.assemble(("━" * done, "green"), ("━" * (_BAR_WIDTH - done), "bright_black"))
    others = (describe_points(status), describe_front(status) or "no front yet")
    first = bar + Text(f" {describe_training(status)}")
    lines = [Text(STOPPING) if status.activity == STOPPING else first, *map(Text, others)]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return lines
