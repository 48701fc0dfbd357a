"""Servers as guests of this process: none of their processes outlives it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO

# Leads a group of processes and ends it when the pipe closes, as it does when we close it, and
# also when we are killed.
_GUARD = "trap '' INT TERM HUP; cat; kill -$0 0; sleep 5; kill -KILL 0"


class ServerFailed(RuntimeError):
    """A server ended by itself, or never answered."""


@dataclass(frozen=True)
class Guests:
    """A group of processes that end together.

    Attributes:
        group: Its number.
        processes: Those that were started in it.
    """

    group: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: int | IO[bytes],
        user: tuple[int, int] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start one more.

        Args:
            command: Its program and arguments, which everybody on the machine can read.
            environment: All of its environment.
            output: Where it writes what it has to say.
            user: The numbers of the user and group that it runs as, which only root may choose.
        """
        number, group = user or (None, None)
        started = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=self.group,
            user=number,
            group=group,
            extra_groups=None if user is None else [],
        )
        self.processes.append(started)
        return started


@contextmanager
def guests(farewell: signal.Signals = signal.SIGTERM, grace: float = 6.0) -> Iterator[Guests]:
    """Processes for a block, all of which are gone after it.

    Args:
        farewell: The signal by which they end in order.
        grace: Seconds that this may take; then they are killed, as at a second signal of ours.
    """
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, farewell.name.removeprefix("SIG")],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        process_group=0,
    )
    group = Guests(guard.pid)
    try:
        yield group
    finally:
        _end(guard, group, farewell, grace)


def _end(
    guard: subprocess.Popen[bytes], group: Guests, farewell: signal.Signals, grace: float
) -> None:
    try:
        with suppress(ProcessLookupError):
            os.killpg(guard.pid, farewell)
        for process in group.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(grace)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(guard.pid, signal.SIGKILL)
        for process in (guard, *group.processes):
            process.wait()
        if guard.stdin is not None:
            guard.stdin.close()
