"""Ctrl-C and requests to terminate: end in order the first time, at once the second."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Interruption:
    """Whether someone asked for an end; outside `patience` a signal raises KeyboardInterrupt.

    Attributes:
        signal: The one that asked; None while nobody has.
    """

    signal: int | None = None
    _patient: bool = False

    def asked(self) -> bool:
        """Whether someone asked for an end."""
        return self.signal is not None

    @contextmanager
    def patience(self) -> Iterator[None]:
        """A block that looks at `asked` by itself, and so is not broken off by the first signal."""
        self._patient = True
        try:
            yield
        finally:
            self._patient = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        first = self.signal is None
        self.signal = self.signal or number
        if not (first and self._patient):
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Take SIGINT, SIGTERM and SIGHUP alike while the block runs.

    Only a process's main thread may; elsewhere nothing changes.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {number: signal.signal(number, interruption._receive) for number in _SIGNALS}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
