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

from sweeps.publisher import Published

_STOP_SECONDS = 30.0
_ASK_SECONDS = 0.2


@dataclass
class Publication:
    """A running publisher."""

    _process: subprocess.Popen[bytes]
    _output: IO[bytes]

    def finish(self, stopped: Callable[[], bool] = lambda: False) -> Published:
        """Have everything published that is left, and wait for it.

        Args:
            stopped: Asked often; once true, publishing ends after the points in hand.
        """
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it is gone; how it went is told below
                self._process.stdin.write(b"finish\n")
                self._process.stdin.flush()
        while self._process.poll() is None:
            if stopped():
                return self.stop()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ASK_SECONDS)
        return self._ended()

    def stop(self) -> Published:
        """End it after the points in hand."""
        self._hang_up()
        return self._ended()

    def __enter__(self) -> Publication:
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

    def _ended(self) -> Published:
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._hang_up()
        with self._output:
            self._output.seek(0)
            return self._outcome(self._output.read().decode(errors="replace"))

    def _hang_up(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _outcome(self, said: str) -> Published:
        lines = said.strip().splitlines() or [f"it ended with code {self._process.returncode}"]
        if self._process.returncode == 0:
            return Published(**json.loads(lines[-1]))
        return Published(0, 0, f"the publisher did not end well: {lines[-1]}")


def start_publication(storage: str, sweep: str, tracking_uri: str) -> Publication:
    """Start a publisher, which ends with this process at the latest.

    Args:
        storage: Absolute path or URI of the storage.
        sweep: The sweep's name.
        tracking_uri: Resolved; it travels in the environment, as it may hold credentials.
    """
    output = TemporaryFile()  # noqa: SIM115 - open as long as the publisher writes to it
    process = subprocess.Popen(
        [sys.executable, "-m", "sweeps.publisher", storage, sweep],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        env={**os.environ, "MLFLOW_TRACKING_URI": tracking_uri},
        start_new_session=True,
    )
    return Publication(process, output)
