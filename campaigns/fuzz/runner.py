"""Feeds a target with inputs, and watches what each of them takes."""

from __future__ import annotations

import csv
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from campaigns.fuzz.targets import Target

MOST_SECONDS = 20.0
"""Of the processor's time that one input may take; ten times as long by the clock."""

MOST_GROWTH = 2**31
"""Bytes by which the process may grow over all inputs."""

RESULTS = Path(__file__).parent / "results"


class TooSlowError(BaseException):
    """An input took too long; no reader may pass over it."""


class TooLargeError(Exception):
    """Inputs took too much memory."""


@dataclass
class Tally:
    """Counts of a campaign.

    Attributes:
        inputs: How many were fed.
        accepted: How many were read; the others were refused in order.
        slowest: Seconds of the slowest.
        growth: Bytes that the process grew by.
        seconds: Of all.
        findings: How many inputs brought a reader out of order, those among them by which the
            smallest was looked for.
    """

    inputs: int = 0
    accepted: int = 0
    slowest: float = 0.0
    growth: int = 0
    seconds: float = 0.0
    findings: int = 0
    _before: int = field(default_factory=lambda: peak_bytes())

    def feed(self, target: Target, content: bytes) -> None:
        """Feed one input.

        Raises:
            TooSlowError: If it takes too long.
            TooLargeError: If memory grows too far.
            Exception: Whatever the reader lets through.
        """
        began = time.perf_counter()
        self.inputs += 1
        try:
            with _in_time():
                self.accepted += target.read(content)
        except BaseException:
            self.findings += 1
            raise
        took = time.perf_counter() - began
        self.slowest, self.seconds = max(self.slowest, took), self.seconds + took
        self.growth = peak_bytes() - self._before
        if self.growth > MOST_GROWTH:
            raise TooLargeError(f"{self.growth >> 20} MiB more after {content[:60]!r}")


def by_hypothesis(target: Target, inputs: int, base: int, tally: Tally) -> None:
    """Feed a target with inputs that Hypothesis draws.

    Args:
        target: To feed.
        inputs: How many, about: what comes twice is not fed twice.
        base: Seed of the draws.
        tally: To count in.
    """
    quiet = settings(
        max_examples=inputs,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )

    @seed(base)
    @quiet
    @given(target.inputs())
    def feed(content: bytes) -> None:
        tally.feed(target, content)

    feed()


def by_atheris(target: Target, inputs: int, base: int, tally: Tally) -> None:
    """Feed a target with inputs that libFuzzer finds by coverage; ends the process.

    Args:
        target: To feed; made while imports were instrumented.
        inputs: How many.
        base: Seed of the draws.
        tally: To count in.
    """
    import atheris  # type: ignore[import-not-found, unused-ignore]

    folder = target.folder / "corpus"
    folder.mkdir()
    for number, content in enumerate(target.corpus()):
        (folder / f"{number:03d}").write_bytes(content)

    def feed(content: bytes) -> None:
        try:
            tally.feed(target, content)
        except BaseException:
            record(target, "atheris", base, tally)
            raise
        if tally.inputs >= inputs:  # libFuzzer would end the process without a word
            record(target, "atheris", base, tally)
            shutil.rmtree(target.folder)
            print(f"{tally.inputs:,} inputs, {tally.accepted:,} read, no finding", file=sys.stderr)
            os._exit(0)

    options = ["-runs=-1", f"-seed={base}", "-max_len=65536", "-timeout=60", "-rss_limit_mb=6144"]
    atheris.Setup(["fuzz", *options, "-verbosity=0", str(folder)], feed)
    atheris.Fuzz()


def record(target: Target, engine: str, base: int, tally: Tally) -> None:
    """Append what was counted to the target's table."""
    RESULTS.mkdir(exist_ok=True)
    row: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "engine": engine,
        "seed": base,
        "inputs": tally.inputs,
        "read": tally.accepted,
        "refused": tally.inputs - tally.accepted - tally.findings,
        "findings": tally.findings,
        "seconds": f"{tally.seconds:.1f}",
        "slowest_ms": f"{1000 * tally.slowest:.0f}",
        "growth_mib": tally.growth >> 20,
    }
    path = RESULTS / f"{target.name}.csv"
    fresh = not path.exists()
    with path.open("a", newline="") as sheet:
        writer = csv.DictWriter(sheet, list(row), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def peak_bytes() -> int:
    """The most memory that this process ever had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextmanager
def _in_time() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise TooSlowError(f"more than {MOST_SECONDS:.0f} s")

    # By the processor's time, which other work does not count in, and by the clock for what waits.
    timers = {
        signal.SIGPROF: (signal.ITIMER_PROF, MOST_SECONDS),
        signal.SIGALRM: (signal.ITIMER_REAL, 10 * MOST_SECONDS),
    }
    before = {number: signal.signal(number, late) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"
