"""Mirrors a ledger to MLflow, in a process of its own beside the sweep.

Run as `python -m sweeps.publisher STORAGE SWEEP`, with the tracking URI in `MLFLOW_TRACKING_URI`
(as it may hold credentials) and a pipe as standard input. A line `finish` asks for everything
that is left; the pipe's end, which is also what a dead driver leaves, asks to stop after the
points in hand. The last line of standard output says in JSON how it went.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from privnets.points import TradeoffPoint
from sweeps.following import Follower
from sweeps.ledger import Ledger
from sweeps.manifest import Manifest, read_manifest
from sweeps.results import read_result
from sweeps.summary import hypervolume_so_far, stored_files
from tracking.errors import TrackingError

_BATCH = 20
_POLL_SECONDS = 2.0
_LONGEST_WAIT = 30.0
_FINISH_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Published:
    """How publishing went.

    Attributes:
        points: How many points MLflow is known to hold.
        left: How many complete points it is not known to hold.
        error: Why, where it did not go through.
    """

    points: int
    left: int
    error: str | None

    @property
    def whole(self) -> bool:
        """Whether MLflow has everything that the ledger has."""
        return self.left == 0 and self.error is None


class Publisher:
    """Publishes a sweep's points as they become complete.

    Attributes:
        error: Why the last attempt failed; None if it went through.
    """

    def __init__(self, ledger: Ledger, manifest: Manifest, tracking_uri: str) -> None:
        """Begin at the beginning of the ledger; what MLflow holds already is passed over."""
        self.error: str | None = None
        self._ledger = ledger
        self._manifest = manifest
        self._uri = tracking_uri
        self._follower = Follower(ledger, manifest.plan.seeds)
        self._waiting: deque[TradeoffPoint] = deque()
        self._aside: dict[str, str] = {}
        self._at_once = _BATCH
        self._published = 0

    def publish(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Publish what is complete by now.

        Args:
            stopped: Asked between batches; true ends the work early.

        Returns:
            Whether everything went through.
        """
        import tracking

        try:
            self._waiting.extend(self._follower.read())
        except OSError as error:
            self.error = f"the ledger cannot be read: {error}"
            return False
        self.error = None
        while self._waiting and not stopped():
            batch = [self._waiting[i] for i in range(min(self._at_once, len(self._waiting)))]
            try:
                tracking.record(
                    batch,
                    sweep=self._manifest.sweep,
                    study=self._manifest.study.name,
                    tracking_uri=self._uri,
                    log_scaled=frozenset(self._manifest.plan.log_fields),
                    name_fields=tuple(self._manifest.study.space),
                    keys=self._manifest.plan.metrics,
                )
            except TrackingError as error:
                self.error = str(error)
                return False
            except (OSError, ValueError) as error:
                self._narrow(batch, error)
                continue
            for _ in batch:
                self._waiting.popleft()
            self._published += len(batch)
        return not self._waiting

    def _narrow(self, batch: list[TradeoffPoint], error: Exception) -> None:
        """Find the point that cannot be recorded and set it aside, so that the others can be."""
        if len(batch) > 1:
            self._at_once = 1
        else:
            self._aside[self._waiting.popleft().point_id] = str(error)

    def publish_summary(self) -> bool:
        """Bring the sweep's parent run up to date with its tables, figures and report.

        Returns:
            Whether it went through.
        """
        import tracking

        result = read_result(self._ledger, "")
        with TemporaryDirectory(prefix="sweeps-publisher-") as folder:
            try:
                tracking.record_sweep(
                    self._manifest.sweep,
                    study=self._manifest.study.name,
                    tracking_uri=self._uri,
                    files=stored_files(self._ledger, Path(folder)),
                    hypervolume=hypervolume_so_far(result),
                    params=_params(self._manifest),
                    status="RUNNING" if result.pending else "FINISHED",
                )
            except (TrackingError, OSError, ValueError) as error:
                self.error = str(error)
                return False
        return True

    def outcome(self) -> Published:
        """How it went so far."""
        error = self.error
        if self._aside:
            point_id, reason = next(iter(self._aside.items()))
            words = f"{len(self._aside)} points cannot be recorded; {point_id}: {reason}"
            error = f"{error}; {words}" if error else words
        return Published(self._published, len(self._waiting) + len(self._aside), error)


def publish_all(ledger: Ledger, manifest: Manifest, tracking_uri: str) -> Published:
    """Publish everything that MLflow lacks, trying once."""
    publisher = Publisher(ledger, manifest, tracking_uri)
    if publisher.publish():
        publisher.publish_summary()
    return publisher.outcome()


def follow(publisher: Publisher, orders: queue.Queue[str]) -> None:
    """Publish until told to finish or to stop.

    While the tracking server is away, attempts are made ever more rarely; the sweep does not
    notice.

    Args:
        publisher: Which publishes.
        orders: `finish`, or `stop`.
    """
    wait = _POLL_SECONDS
    while (order := _next(orders, wait)) is None:
        went = publisher.publish(lambda: not orders.empty())
        wait = _POLL_SECONDS if went else min(wait * 2, _LONGEST_WAIT)
    if order == "finish":
        _finish(publisher, orders)


def main() -> None:
    """Follow the ledger named on the command line until standard input says otherwise."""
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # they are meant for the driver, which then tells us
    storage, sweep = sys.argv[1:]
    ledger = Ledger(storage, sweep)
    publisher = Publisher(ledger, read_manifest(ledger), os.environ["MLFLOW_TRACKING_URI"])
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    follow(publisher, orders)
    print(json.dumps(asdict(publisher.outcome())), flush=True)


def _finish(publisher: Publisher, orders: queue.Queue[str]) -> None:
    """Publish the rest, for as long as a short absence of the server may last."""
    deadline = time.monotonic() + _FINISH_SECONDS
    while not (publisher.publish(lambda: not orders.empty()) and publisher.publish_summary()):
        if time.monotonic() > deadline or _next(orders, _POLL_SECONDS) is not None:
            return


def _next(orders: queue.Queue[str], wait: float) -> str | None:
    try:
        return orders.get(timeout=wait)
    except queue.Empty:
        return None


def _listen(orders: queue.Queue[str]) -> None:
    for line in sys.stdin:
        if line.strip() == "finish":
            orders.put("finish")
    orders.put("stop")


def _params(manifest: Manifest) -> dict[str, str]:
    objectives = (f"{direction} {metric}" for metric, direction in manifest.plan.objectives.items())
    return {
        "study": manifest.study.name,
        "experiment": manifest.study.experiment,
        "points": str(manifest.plan.points),
        "replicates": str(len(manifest.plan.seeds)),
        "objectives": ", ".join(objectives),
        "command": manifest.command,
    }


if __name__ == "__main__":
    main()
