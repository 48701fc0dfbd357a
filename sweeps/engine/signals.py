"""Stop signals: the first one requests an orderly stop, the second stops at once.

Schedulers of clusters announce the end of a job by SIGTERM, SIGUSR1 or SIGUSR2.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

STOP_SIGNALS: Final = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2),
)


class Interrupted(KeyboardInterrupt):
    """Raised where a signal breaks off the work; `signal` is the number of the first one."""

    def __init__(self, signal: int) -> None:
        """Creates the exception for a signal number."""
        super().__init__(signal)
        self.signal = signal


@dataclass
class StopRequest:
    """Records the signals that this process has received.

    The first signal is only recorded: code that runs long polls `is_requested`, or waits in an
    `interruptible` block. A second signal raises `Interrupted` anywhere.

    Attributes:
        signal: Number of the first signal; None before it.
        is_urgent: Whether a second signal came.
    """

    signal: int | None = None
    is_urgent: bool = False
    _is_interruptible: bool = False

    def is_requested(self) -> bool:
        """Whether a signal has requested a stop."""
        return self.signal is not None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Block that the first signal breaks off; an earlier signal keeps it from starting.

        Raises:
            Interrupted: If a signal came.
        """
        self._is_interruptible = True
        try:
            if self.signal is not None:
                raise Interrupted(self.signal)
            yield
        finally:
            self._is_interruptible = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.is_urgent = self.signal is not None
        self.signal = self.signal or number
        if self._is_interruptible or self.is_urgent:
            raise Interrupted(self.signal)


@contextmanager
def catch_stop_signals(on_stop: Callable[[], None] = lambda: None) -> Iterator[StopRequest]:
    """Handles all stop signals alike while the block runs.

    A signal that this process ignores already (as under `nohup`) stays ignored. Python delivers
    signals to the main thread only, so in other threads the request is never set.

    Args:
        on_stop: Called once at the first signal, in another thread: the main thread may be inside
            a call of Ray, where Python handles signals late.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    handled = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, request._receive) for number in handled}
    try:
        with _calling_at_once(on_stop, handled):
            yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _calling_at_once(on_stop: Callable[[], None], numbers: Collection[int]) -> Iterator[None]:
    """Calls a function in a thread when the first of these signals arrives."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def wait_for_signal() -> None:
        with os.fdopen(reader, "rb", buffering=0) as signals:
            is_stopping = False
            while received := signals.read(1):  # the number of a signal
                if received[0] in numbers and not is_stopping:
                    is_stopping = True
                    on_stop()

    thread = threading.Thread(target=wait_for_signal, name="stop signals", daemon=True)
    thread.start()
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.close(writer)
