"""The driver's hold on its publisher, which is a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO

from sweeps.errors import InputError
from sweeps.publishing.process import FINISH, HURRY, STORAGE, PublishOutcome
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest
from sweeps.store.reader import is_fixed_column, replicate_table
from tracking.redaction import redact

_STOP_SECONDS = 30.0
_ASK_SECONDS = 0.2


@dataclass
class PublisherProcess:
    """A running publisher."""

    _process: subprocess.Popen[bytes]
    _ledger: Ledger
    _output: IO[bytes]
    _errors: IO[bytes]

    def hurry(self) -> None:
        """Let it take what it can of the machine, as nothing is trained any more."""
        self._tell(HURRY)

    def finish(self, stopped: Callable[[], bool] = lambda: False) -> PublishOutcome:
        """Have everything published that is left, and wait for it.

        Args:
            stopped: Asked often; once true, publishing ends after the points in hand.
        """
        self._tell(FINISH)
        while self._process.poll() is None:
            if stopped():
                return self.stop()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ASK_SECONDS)
        return self._ended()

    def stop(self) -> PublishOutcome:
        """End it after the points in hand."""
        self._hang_up()
        return self._ended()

    def __enter__(self) -> PublisherProcess:
        """Have it while the block runs."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it, if it has not ended."""
        if self._process.poll() is None:
            self.stop()

    def _tell(self, order: str) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it is gone; how it went is told at the end
                self._process.stdin.write(f"{order}\n".encode())
                self._process.stdin.flush()

    def _ended(self) -> PublishOutcome:
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._hang_up()
        return self._outcome(_lines(self._output), _lines(self._errors))

    def _hang_up(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _outcome(self, said: list[str], complained: list[str]) -> PublishOutcome:
        for line in reversed(said):
            # Anything that it loads may print; its own last words are the ones that can be read.
            with suppress(ValueError, TypeError):
                return PublishOutcome(**json.loads(line))
        last = complained[-1] if complained else f"it ended with code {self._process.returncode}"
        return PublishOutcome(
            0, _complete(self._ledger), f"the publisher did not end well: {redact(last)}"
        )


def start_publisher(storage: str, sweep: str, tracking_uri: str) -> PublisherProcess:
    """Start a publisher, which ends with this process at the latest.

    Args:
        storage: Absolute path or URI of the storage; it travels in the environment, as it may
            hold credentials.
        sweep: The sweep's name.
        tracking_uri: Resolved; it travels alike.
    """
    ledger = Ledger(storage, sweep)
    # Open as long as the publisher writes to them.
    output, errors = TemporaryFile(), TemporaryFile()  # noqa: SIM115
    process = subprocess.Popen(
        [sys.executable, "-m", "sweeps.publishing.process", sweep],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=errors,
        env={**os.environ, "MLFLOW_TRACKING_URI": tracking_uri, STORAGE: storage},
        start_new_session=True,
    )
    return PublisherProcess(process, ledger, output, errors)


def _lines(file: IO[bytes]) -> list[str]:
    """What was written to a file, which is closed then."""
    with file:
        file.seek(0)
        return file.read().decode(errors="replace").strip().splitlines()


def _complete(ledger: Ledger) -> int:
    """How many points are complete; 0 where there is no telling."""
    try:
        seeds = read_manifest(ledger).plan.seeds
        return len(replicate_table(ledger.read_tables(columns=is_fixed_column)).complete(seeds))
    except (OSError, InputError):
        return 0
