"""How far a sweep is, and showing it: a bar on a terminal, a line every so often elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeps.analysis.text import format_count
from sweeps.engine.counting import SweepCounts
from sweeps.errors import make_printable
from sweeps.planning.plan import format_duration
from sweeps.store.lease import ResourceUse

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cluster.connection import Machine

LINE_SECONDS = 10.0
# Actors take a while to get what they are to have, also where all of it is free.
_WAITING_SECONDS = 10.0
_BAR_WIDTH = 24
_LONGEST = 200
_NODE_DIED = "its node has died"  # as Ray says of an actor


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """How far a sweep is.

    Attributes:
        points: How many it has in all.
        done: How many are complete, those that failed or were stopped among them.
        failed: How many are complete but failed, or lost with their pack.
        share: Of the work that this run began with, in [0, 1].
        rate: Points per minute since this run began; None before the first.
        eta: Seconds left; None while that cannot be told.
        front: Points on the front so far.
        best: Best value so far of each objective, by metric.
        doing: What is done before training, in words; None while packs are trained.
        stopped: How many are complete but were stopped early.
        use: What it works on; None before that is known.
        trainings: How many are done, and how many there are in all; None where that is not told.
        waiting: What training waits for, in words; None while packs are trained.
        setbacks: How many packs were lost in training, and are tried again.
        setback: The last of these, in words.
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
        """One line."""
        return ", ".join(part for part in (self.numbers(), self.front_words()) if part)

    def numbers(self) -> str:
        """How many points, how fast, how long."""
        return ", ".join((self.training_words(), self.point_words()))

    def training_words(self) -> str:
        """What is done, how far that is, and how long it will take."""
        if self.doing is not None:
            return self.doing
        if self.share >= 1:
            return "all trained, the report and MLflow come next"
        if self.waiting is not None:
            return f"{self.share:.0%} trained, {self.waiting}"
        left = f", about {format_duration(_rounded(self.eta))} left" if self.eta is not None else ""
        return f"{self.share:.0%} trained{left}"

    def point_words(self) -> str:
        """How many points are done, and how fast; those of a pack come together, at its end."""
        parts = [f"{self.done:,} of {format_count(self.points, 'point')} done"]
        if self.trainings is not None and self.trainings[1] > self.points:
            parts[0] += f" ({self.trainings[0]:,} of {format_count(self.trainings[1], 'training')})"
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.stopped} stopped early"] if self.stopped else []
        parts += [f"{self.rate:.1f} points per minute"] if self.rate is not None else []
        if self.done < self.points and self.doing is None and self.use is not None:
            packs = self.use.packs
            parts += [f"{format_count(packs, 'pack')} in training"] if packs else []
        return ", ".join(parts)

    def front_words(self) -> str:
        """The front so far in words; empty while there is none."""
        best = ", ".join(f"{metric} {value:.3g}" for metric, value in self.best.items())
        return f"front of {self.front} (best {best})" if self.front else ""


class Tally:
    """Adds up what is known of a running sweep.

    Attributes:
        standing: How the complete points stand.
        doing: What is done before training, in words; None while packs are trained.
        lack: What packs wait for where none is in training, in words.
    """

    def __init__(self, points: int, standing: SweepCounts, trainings: int | None = None) -> None:
        """Begin with what is there.

        Args:
            points: How many points the sweep has.
            standing: How the points stand that are complete already.
            trainings: How many trainings it has, replicates counted; None where that is not told.
        """
        self.standing = standing
        self.doing: str | None = None
        self.lack = "waiting for room"
        self._points = points
        self._trainings = trainings
        self._before = standing.complete
        self._lost: set[str] = set()
        self._weights: Mapping[str, float] | None = None
        self._shares: dict[str, float] = {}
        self._places: dict[str, str | None] = {}
        self._machines: Sequence[Machine] = ()
        self._hosts: dict[str, str] = {}
        self._each = (0.0, 0.0)
        self._began = time.monotonic()
        self._waited = 0.0
        self._waits_since: float | None = None
        self._setbacks: list[str] = []

    def begin(self, weights: Mapping[str, float]) -> None:
        """Start the clock.

        Args:
            weights: Pack to what it costs.
        """
        self._weights = weights
        self._began = time.monotonic()

    def work_on(self, machines: Sequence[Machine], cpus: float, gpus: float) -> None:
        """Note what there is to work on.

        Args:
            machines: Those that are alive.
            cpus: Given to each pack.
            gpus: Given to each pack.
        """
        self._machines, self._each = machines, (cpus, gpus)
        self._hosts.update({machine.node: machine.host for machine in machines})

    def start(self, pack: str) -> None:
        """Note that a pack is in training, on a node that is yet to be told."""
        self._places[pack] = None

    def wait(self, waits: bool) -> None:
        """Note whether nothing can be trained for want of room."""
        if not waits and self._waits_since is not None:
            self._waited += time.monotonic() - self._waits_since
            self._waits_since = None
        elif waits and self._waits_since is None:
            self._waits_since = time.monotonic()

    def drop(self, pack: str, reason: str) -> None:
        """Note that a pack was lost in training, and is to be tried again.

        Args:
            pack: Its id.
            reason: In words.
        """
        node = self._places.pop(pack, None)
        again = "its pack goes on from its last checkpoint, or anew"
        if node is not None and not self._lives(node):
            self._setbacks.append(f"node {self._hosts[node]} ({node[:8]}) was lost: {again}")
        elif _NODE_DIED in reason:
            self._setbacks.append(f"a node was lost: {again}")
        else:
            self._setbacks.append(f"a worker was lost: {again} ({reason[:_LONGEST]})")

    def advance(self, pack: str, share: float, node: str | None = None) -> None:
        """Note how far a pack is, and on which node if it is in training."""
        self._shares[pack] = share
        if node is None or share >= 1:
            self._places.pop(pack, None)
        else:
            self._places[pack] = node

    def lose(self, pack: str, points: set[str]) -> None:
        """Note that a pack came to nothing, and so did its points."""
        self._lost.update(points)
        self.advance(pack, 1.0)

    def progress(self) -> SweepProgress:
        """How far the sweep is now."""
        time_now = time.monotonic()
        share, elapsed = self._share(), time_now - self._began
        waits = 0.0 if self._waits_since is None else time_now - self._waits_since
        waiting = self.lack if waits >= _WAITING_SECONDS else None
        trained = elapsed - self._waited
        told = share > 0.02 and self._waits_since is None
        now = self.standing
        fresh = now.complete - self._before
        return SweepProgress(
            points=self._points,
            done=now.complete,
            failed=now.failed + len(self._lost),
            share=share,
            rate=60 * fresh / elapsed if fresh else None,
            eta=trained * (1 - share) / share if told else None,
            front=now.front,
            best=now.best,
            doing=self.doing,
            stopped=now.stopped,
            use=self._use(),
            trainings=None if self._trainings is None else (now.trainings, self._trainings),
            waiting=waiting,
            setbacks=len(self._setbacks),
            setback=self._setbacks[-1] if self._setbacks else None,
        )

    def _use(self) -> ResourceUse | None:
        if not self._machines:
            return None
        # Of a node that is gone Ray may tell much later than that it is.
        places = [node for node in self._places.values() if node is None or self._lives(node)]
        packs, (cpus, gpus) = len(places), self._each
        return ResourceUse(
            packs=packs,
            nodes=len(self._machines),
            busy_nodes=len({node for node in places if node is not None}) or min(packs, 1),
            cpus=sum(machine.cpus for machine in self._machines),
            busy_cpus=packs * cpus,
            gpus=sum(machine.gpus for machine in self._machines),
            busy_gpus=packs * gpus,
        )

    def _lives(self, node: str) -> bool:
        """Whether a node is there, or so new that it was not seen yet."""
        there = any(machine.node == node for machine in self._machines)
        return there or node not in self._hosts

    def _share(self) -> float:
        if self._weights is None:
            return 0.0
        total = sum(self._weights.values())
        if total == 0:
            return 1.0
        return min(1.0, sum(self._weights[p] * s for p, s in self._shares.items()) / total)


def _rounded(seconds: float) -> float:
    """As no estimate is true to the second."""
    return seconds if seconds < 20 else round(seconds, -1)


@contextmanager
def display_progress() -> Iterator[Callable[[SweepProgress], None]]:
    """Show progress on standard error while the block runs.

    Yields:
        What to call with every new state; calls that come too often cost nothing.
    """
    if sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[Callable[[SweepProgress], None]]:
    """Three lines that stay where they are: none is broken, however narrow the terminal."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)

    told = 0

    def show(progress: SweepProgress) -> None:
        nonlocal told
        if progress.setbacks > told and progress.setback is not None:
            live.console.print(Text(_warning(progress.setback)))
        told = progress.setbacks
        live.update(_drawn(progress), refresh=True)

    live.start()
    try:
        yield show
    finally:
        with suppress(OSError):  # the terminal is gone
            live.stop()


def _drawn(progress: SweepProgress) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    first = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=progress.share, width=_BAR_WIDTH)
    first.add_row(bar, Text(progress.training_words(), no_wrap=True, overflow="ellipsis"))
    others = (progress.point_words(), progress.front_words() or "no front yet")
    return Group(first, *(Text(line, no_wrap=True, overflow="ellipsis") for line in others))


def _lines() -> Callable[[SweepProgress], None]:
    last = time.monotonic()
    told = 0
    before: str | None = None

    def show(progress: SweepProgress) -> None:
        nonlocal last, told, before
        if progress.setbacks > told and progress.setback is not None:
            print(_warning(progress.setback), file=sys.stderr, flush=True)
        told = progress.setbacks
        state = progress.doing or progress.waiting
        begun, before = state not in (None, before), state
        if begun or time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            print(progress, file=sys.stderr, flush=True)

    return show


def _warning(setback: str) -> str:
    """A line of its own; what went wrong may be told in the words of others."""
    return make_printable(f"Warning: {setback}")
