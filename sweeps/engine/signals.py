"""Ctrl-C and requests to terminate: end in order the first time, at once the second."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """Someone asked for an end, and it came at once.

    Attributes:
        signal: The first that asked.
    """

    def __init__(self, signal: int) -> None:
        """Say who asked."""
        super().__init__(signal)
        self.signal = signal


@dataclass
class StopRequest:
    """Whether someone asked for an end.

    The first signal is only noted, for code that looks at `asked` or is soon done anyway; code that
    does neither stands in a `breakable` block. A second one raises `Interrupted` anywhere.

    Attributes:
        signal: The first that asked; None while nobody has.
        urgent: Whether a second one came.
    """

    signal: int | None = None
    urgent: bool = False
    _breakable: bool = False

    def is_requested(self) -> bool:
        """Whether someone asked for an end."""
        return self.signal is not None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A block that the first signal breaks off, also one that came before it.

        Raises:
            Interrupted: Where a signal came.
        """
        self._breakable = True
        try:
            if self.signal is not None:
                raise Interrupted(self.signal)
            yield
        finally:
            self._breakable = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.urgent = self.signal is not None
        self.signal = self.signal or number
        if self._breakable or self.urgent:
            raise Interrupted(self.signal)


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Take SIGINT, SIGTERM and SIGHUP alike while the block runs.

    Those that this process was told to ignore, as `nohup` tells it, stay ignored. Only a process's
    main thread may take signals; elsewhere nothing changes.
    """
    interruption = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    heeded = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interruption._receive) for number in heeded}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
