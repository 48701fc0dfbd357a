"""Publisher process: copies a ledger to MLflow beside the driver.

The process gets the tracking URI in `MLFLOW_TRACKING_URI` and the storage in
`SWEEPS_PUBLISHER_STORAGE`, because either may hold credentials. A line `finish` on its standard
input asks for everything that is left; `pause` does so for a sweep that a later run continues. The
end of the input, which also a dead driver leaves, asks to stop after the points being sent. Its
output is JSON by lines: the number of points sent after each batch, an `Outage` or null after each
attempt that changes it, and the `PublishOutcome` at the end.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile
from typing import IO, Final

from pydantic import TypeAdapter

from privnets.credentials import redact
from sweeps.process import raise_gc_thresholds
from sweeps.publishing.publisher import (
    FINISH,
    PAUSE,
    Publisher,
    PublishOutcome,
    publish_until_ordered,
)
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest
from sweeps.store.status import Outage

STORAGE_VARIABLE: Final = "SWEEPS_PUBLISHER_STORAGE"

_STOP: Final = "stop"
_NICENESS: Final = 19
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.2
_MAX_TAIL: Final = 64 * 1024
_NEWS: Final = TypeAdapter[Outage | int | None](Outage | int | None)


@dataclass
class PublisherProcess:
    """Running publisher process, as its driver sees it."""

    _process: subprocess.Popen[bytes]
    _output: IO[bytes]
    _errors: IO[bytes]

    def finish(
        self,
        should_stop: Callable[[], bool] = lambda: False,
        on_sent: Callable[[int], object] = lambda sent: None,
        *,
        is_final: bool = True,
    ) -> PublishOutcome:
        """Waits until everything is published; once `should_stop` is true, as `stop`.

        Meanwhile `on_sent` is called with the number of points sent. Unless it is final, the sweep
        counts as ended early.
        """
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # the process is dead, which the outcome shows
                self._process.stdin.write(f"{FINISH if is_final else PAUSE}\n".encode())
                self._process.stdin.flush()
        while self._process.poll() is None and not should_stop():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_SECONDS)
            on_sent(next((news for news in self._news() if isinstance(news, int)), 0))
        return self.stop()

    def outage(self) -> Outage | None:
        """Returns the outage of MLflow that the process has reported last, unless it is over."""
        for news in self._news():
            if not isinstance(news, int):
                return news
        return None

    def _news(self) -> Iterator[Outage | int | None]:
        """Yields what the process has reported, the latest first."""
        size = os.fstat(self._output.fileno()).st_size
        # Not `read`, which would move the place at which the process writes.
        tail = os.pread(self._output.fileno(), _MAX_TAIL, max(0, size - _MAX_TAIL))
        for line in reversed(tail.splitlines()):
            with suppress(ValueError):  # a line of a library
                yield _NEWS.validate_json(line)

    def stop(self) -> PublishOutcome:
        """Ends publishing after the points being sent."""
        is_in_time = self.close()
        lines = _read_lines(self._output)
        for line in reversed(lines):
            # Libraries may print more lines.
            with suppress(ValueError, TypeError):
                return PublishOutcome(**json.loads(line))
        if not is_in_time:
            return PublishOutcome(0, 0, f"MLflow did not answer within {_STOP_SECONDS:.0f} s")
        errors = _read_lines(self._errors) or [f"exit code {self._process.returncode}"]
        error = f"the publisher process failed: {redact(errors[-1])}"
        return PublishOutcome(0, 0, error)

    def close(self) -> bool:
        """Ends the process, and kills it if it takes too long; returns whether it ended itself."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        return True


@contextmanager
def start_publisher(ledger: Ledger, tracking_uri: str) -> Iterator[PublisherProcess]:
    """Runs a publisher process for a block; it ends with this process at the latest."""
    with TemporaryFile() as output, TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "sweeps.publishing.process", ledger.sweep],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            env=os.environ
            | {"MLFLOW_TRACKING_URI": tracking_uri, STORAGE_VARIABLE: ledger.storage},
            # Signals of the terminal are for the driver. A session of its own would make Linux
            # share processors between sessions, whatever the process's priority.
            process_group=0,
        )
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)  # its imports delay training too
        publisher = PublisherProcess(process, output, errors)
        try:
            yield publisher
        finally:
            publisher.close()


def main() -> None:
    """Publishes the sweep named on the command line until standard input asks for an end."""
    raise_gc_thresholds()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # they are meant for the driver
    (sweep,) = sys.argv[1:]
    ledger = Ledger(os.environ[STORAGE_VARIABLE], sweep)
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
    publisher = Publisher(ledger, read_manifest(ledger), os.environ["MLFLOW_TRACKING_URI"])
    publish_until_ordered(publisher, orders, _report)
    print(json.dumps(asdict(publisher.outcome())), flush=True)


def _report(news: Outage | int | None) -> None:
    print(_NEWS.dump_json(news).decode(), flush=True)


def _read_orders(orders: queue.Queue[str]) -> None:
    for line in sys.stdin:
        orders.put(line.strip())
    orders.put(_STOP)


def _read_lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return file.read().decode(errors="replace").strip().splitlines()


if __name__ == "__main__":
    main()
