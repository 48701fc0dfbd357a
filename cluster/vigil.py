"""Noticing that a cluster's head is gone.

Ray itself says nothing for a minute, and then ends the process of whoever has joined, in the middle
of whatever it does and without a word that a user understands.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_EVERY_SECONDS: Final = 2.0
_KNOCK_SECONDS: Final = 2.0
_SILENT_SECONDS: Final = 8.0


@contextmanager
def vigil(
    address: str, gone: Callable[[float], None], silent: float = _SILENT_SECONDS
) -> Iterator[None]:
    """A block beside which a head is knocked at every other second.

    Args:
        address: Its `host:port`.
        gone: Told once, in a thread of its own, how many seconds it has not answered for; again
            after it answered in between.
        silent: Seconds without an answer after which it is told.
    """
    over = threading.Event()
    thread = threading.Thread(target=_keep, args=(address, gone, silent, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _keep(
    address: str, gone: Callable[[float], None], silent: float, over: threading.Event
) -> None:
    answered, told = time.monotonic(), False
    while not over.wait(_EVERY_SECONDS):
        now = time.monotonic()
        if _answers(address):
            answered, told = now, False
        elif not told and now - answered >= silent and not over.is_set():
            told = True
            gone(now - answered)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_SECONDS).close()
    except OSError:
        return False
    return True
