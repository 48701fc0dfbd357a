"""Keeping out of the way of a sweep that trains on the same machine."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

_NICENESS = 19
# A session of this niceness takes a thirtieth of a core that another session keeps busy.
SESSION_BEHIND, SESSION_EVEN = 15, 0
_SESSION = Path("/proc/self/autogroup")
_TRIES, _TRY_SECONDS = 10, 0.1
_SHARE = 0.05
_BUSY_CORES = 2.0
_SAVED_SECONDS = 2.0


def weigh_session(niceness: int) -> None:
    """Have other sessions go first, or take turns with them again.

    Linux may share processors out by session before it looks at priorities, which then count
    within a session alone. Unlike these a session's niceness can be taken back.

    Args:
        niceness: `SESSION_BEHIND` or `SESSION_EVEN`. Nothing happens where this process does not
            lead its session, and others are in it, or where sessions do not count.
    """
    if os.getsid(0) != os.getpid() or not _SESSION.exists():
        return
    for _ in range(_TRIES):
        try:
            _SESSION.write_text(str(niceness))
        except BlockingIOError:  # the kernel takes ten such wishes a second, of all
            time.sleep(_TRY_SECONDS)
        except OSError:  # some containers forbid it
            return
        else:
            return


def step_back() -> None:
    """Have this thread wait for others, though not for ever; as `yield_the_machine` in all else."""
    os.nice(_NICENESS)


def yield_the_machine() -> None:
    """Have this thread run only when a processor has nothing else to do, as far as it may be.

    Threads that it starts do so too. It cannot be taken back without privileges. On Linux both the
    policy and, where the policy is refused, the niceness are of a thread alone; elsewhere the
    niceness is of the whole process.
    """
    if hasattr(os, "sched_setscheduler"):
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        except OSError:  # some containers forbid the call
            os.nice(_NICENESS)
    else:
        os.nice(_NICENESS)


class Pace:
    """Keeps work to a share of the time; some of it may be saved up.

    Work goes into `with` blocks of it.
    """

    def __init__(
        self, share: float = 1.0, saved: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with everything saved.

        Args:
            share: Of the time, in (0, 1]; 1 is all of it.
            saved: The most seconds of work that may be saved up.
            clock: Seconds.
        """
        self._share = share
        self._most = saved
        self._clock = clock
        self._left = saved
        self._told = clock()
        self._working = False

    def __enter__(self) -> Pace:
        """Work begins."""
        self._tell(working=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Work ends for now."""
        self._tell(working=False)

    def wait(self) -> float:
        """Seconds for which to do nothing; 0 if there is time to work."""
        self._tell(working=self._working)
        return max(0.0, -self._left / self._share)

    def _tell(self, *, working: bool) -> None:
        now = self._clock()
        elapsed, self._told = now - self._told, now
        gained = self._share * elapsed - (elapsed if self._working else 0.0)
        self._left = min(self._most, self._left + gained)
        self._working = working


def pace_beside_training(tracking_uri: str) -> Pace:
    """How fast to publish while a sweep trains here.

    A thread that yields the machine need not slow down; but a server on the same machine works
    for it at an ordinary priority. It is asked for no more than a twentieth of the machine.

    Args:
        tracking_uri: Resolved.
    """
    free = tracking_uri.startswith("sqlite") or not _is_here(urlsplit(tracking_uri).hostname)
    share = _SHARE * (os.cpu_count() or 1) / _BUSY_CORES
    return Pace() if free else Pace(min(1.0, share), _SAVED_SECONDS)


def _is_here(host: str | None) -> bool:
    """Whether a host is this machine; one that cannot be found is not."""
    if not host:
        return True  # a database's own way to a socket in the file system
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return any(_is_own(family, address) for family, *_, address in found)


def _is_own(family: int, address: tuple[Any, ...]) -> bool:
    # Only an address of this machine can be bound to.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True
