"""Doing things at once that may never return, and not waiting for those that do not."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_THREAD = "doctor"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why there is no result.

    Attributes:
        reason: In words.
    """

    reason: str


def at_once(work: Mapping[str, Callable[[], T]], seconds: float) -> dict[str, T | Trouble]:
    """Do several things at once.

    What hangs, as a file system whose server is away does, is left behind in a thread that ends
    with the process.

    Args:
        work: Name to what to do.
        seconds: What has not ended by then is not waited for.

    Returns:
        Name to result, or what was raised, or that it took too long.
    """
    begun = {name: Background(action) for name, action in work.items()}
    until = time.monotonic() + seconds
    return {name: each.result(until - time.monotonic(), seconds) for name, each in begun.items()}


def abandoned() -> bool:
    """Whether something was left behind that has not ended; it may keep a process from ending."""
    return any(thread.name == _THREAD for thread in threading.enumerate())


class Background(Generic[T]):
    """Something that is done beside other things."""

    def __init__(self, action: Callable[[], T]) -> None:
        """Begin.

        Args:
            action: What to do.
        """
        self._action = action
        self._ended: queue.SimpleQueue[T | Trouble] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=_THREAD, daemon=True).start()

    def result(self, patience: float, allowed: float) -> T | Trouble:
        """What came of it; to be asked for once.

        Args:
            patience: Seconds to wait from now on.
            allowed: Seconds that it was given, for the message.
        """
        try:
            return self._ended.get(timeout=max(patience, 0.0))
        except queue.Empty:
            return Trouble(f"no answer within {allowed:g} s")

    def _run(self) -> None:
        try:
            self._ended.put(self._action())
        except Exception as error:  # whoever asks is told
            self._ended.put(Trouble(str(error) or type(error).__name__))
