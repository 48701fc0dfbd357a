"""The process that publishes a sweep beside its driver.

Run as `python -m sweeps.publishing.process SWEEP`, with the tracking URI in `MLFLOW_TRACKING_URI`,
the storage in `SWEEPS_PUBLISHER_STORAGE` (as either may hold credentials) and a pipe as standard
input.
A line `hurry` says that nothing is trained any more, and `finish` asks for everything that is left;
the pipe's end, which is also what a dead driver leaves, asks to stop after the points in hand. The
last line of standard output says in JSON how it went.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sweeps.engine.garbage import patient_collection
from sweeps.publishing.pacing import (
    SESSION_BEHIND,
    SESSION_EVEN,
    Pace,
    pace_beside_training,
    step_back,
    weigh_session,
    yield_the_machine,
)

if TYPE_CHECKING:
    from sweeps.publishing.publisher import Publisher

STORAGE = "SWEEPS_PUBLISHER_STORAGE"
HURRY, FINISH = "hurry", "finish"
_POLL_SECONDS = 2.0
_LONGEST_WAIT = 30.0
_FINISH_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class PublishOutcome:
    """How publishing went.

    Attributes:
        points: How many points MLflow is known to hold.
        left: How many complete points it is not known to hold.
        error: Why, where it did not go through.
        page: With the sweep's runs, for the end of a server's address; None where there is none.
    """

    points: int
    left: int
    error: str | None
    page: str | None = None

    @property
    def whole(self) -> bool:
        """Whether MLflow has everything that the ledger has."""
        return self.left == 0 and self.error is None


def follow(publisher: Publisher, orders: queue.Queue[str], pace: Pace) -> None:
    """Publish until told to finish or to stop.

    Until the first order all is done in a thread that yields the machine to the sweep. What comes
    after, somebody waits for: it must not starve where others keep the machine busy.

    Args:
        publisher: Which publishes.
        orders: `HURRY`, `FINISH`, or anything else to stop.
        pace: How much of the time to publish in before any of them.
    """
    with ThreadPoolExecutor(1, initializer=yield_the_machine) as aside:
        order = aside.submit(_until_told, publisher, orders, pace).result()
    weigh_session(SESSION_EVEN)
    while order == HURRY:
        _keep_up(publisher, orders, Pace())
        order = _until_told(publisher, orders, Pace())
    if order != FINISH or not _finish(publisher, orders):
        publisher.close()


def main() -> None:
    """Follow the ledger named on the command line until standard input says otherwise."""
    patient_collection()
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # they are meant for the driver, which then tells us
    weigh_session(SESSION_BEHIND)
    (sweep,) = sys.argv[1:]
    uri = os.environ["MLFLOW_TRACKING_URI"]
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    with ThreadPoolExecutor(1, initializer=step_back) as aside:
        publisher = aside.submit(_begun, os.environ[STORAGE], sweep, uri, orders).result()
    follow(publisher, orders, pace_beside_training(uri))
    print(json.dumps(asdict(publisher.outcome())), flush=True)


def _begun(storage: str, sweep: str, tracking_uri: str, orders: queue.Queue[str]) -> Publisher:
    """A publisher that has said that the sweep runs, unless there are orders already.

    It loads MLflow and more, two seconds of a core that the sweep's own start needs as well.
    """
    from sweeps.publishing.publisher import Publisher
    from sweeps.store.ledger import Ledger
    from sweeps.store.manifest import read_manifest

    ledger = Ledger(storage, sweep)
    publisher = Publisher(ledger, read_manifest(ledger), tracking_uri)
    if orders.empty():
        publisher.announce()
    gc.freeze()  # to look through all of MLflow again and again would be a quarter of the work
    return publisher


def _until_told(publisher: Publisher, orders: queue.Queue[str], pace: Pace) -> str:
    """Publish until there is an order; gives it.

    While the tracking server is away, attempts are made ever more rarely; the sweep does not
    notice.
    """
    wait = _POLL_SECONDS
    while (order := _next(orders, max(wait, pace.wait()))) is None:
        _keep_up(publisher, orders, pace)
        wait = min(wait * 2, _LONGEST_WAIT) if publisher.error else _POLL_SECONDS
    return order


def _keep_up(publisher: Publisher, orders: queue.Queue[str], pace: Pace) -> None:
    """Publish what is complete by now, as far as the pace and further orders let it."""
    with pace:
        if publisher.announce():
            publisher.publish(lambda: not orders.empty() or pace.wait() > 0)


def _finish(publisher: Publisher, orders: queue.Queue[str]) -> bool:
    """Publish the rest, for as long as a short absence of the server may last; whether it went."""
    deadline = time.monotonic() + _FINISH_SECONDS
    while not (
        publisher.publish_whole(lambda: not orders.empty())
        and publisher.publish_summary(ended=True)
    ):
        if time.monotonic() > deadline or _next(orders, _POLL_SECONDS) is not None:
            return False
    return True


def _next(orders: queue.Queue[str], wait: float) -> str | None:
    try:
        return orders.get(timeout=wait)
    except queue.Empty:
        return None


def _listen(orders: queue.Queue[str]) -> None:
    for line in sys.stdin:
        if line.strip() in (HURRY, FINISH):
            orders.put(line.strip())
            weigh_session(SESSION_EVEN)  # somebody waits, also for what is in hand or being loaded
    orders.put("stop")
    weigh_session(SESSION_EVEN)


if __name__ == "__main__":
    main()
