"""Thread that copies a ledger to MLflow beside the driver.

A process of its own spent longer on importing MLflow than a short sweep spends on publishing.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from privnets.credentials import redact
from sweeps.publishing.publisher import (
    FINISH,
    PAUSE,
    STOP,
    Publisher,
    PublishOutcome,
    publish_until_ordered,
)
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest
from sweeps.store.status import Outage

_STOP_SECONDS, _URGENT_SECONDS = 30.0, 1.0
_POLL_SECONDS = 0.2


class BackgroundPublisher:
    """Publishes a sweep's points in a thread, as they become complete."""

    def __init__(self, ledger: Ledger, tracking_uri: str) -> None:
        """Starts at once; the thread does not keep Python from ending."""
        self._ledger, self._uri = ledger, tracking_uri
        self._orders: queue.Queue[str] = queue.Queue()
        self._sent = 0
        self._left_behind_at = math.inf
        self._outage: Outage | None = None
        self._outcome: PublishOutcome | None = None
        self._thread = threading.Thread(target=self._publish, name="sweeps-publisher", daemon=True)
        self._thread.start()

    def outage(self) -> Outage | None:
        """Returns the present outage of MLflow, if any."""
        return self._outage

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
        self._orders.put(FINISH if is_final else PAUSE)
        while self._thread.is_alive() and not should_stop():
            self._thread.join(_POLL_SECONDS)
            on_sent(self._sent)
        return self.stop()

    def stop(self, *, is_urgent: bool = False) -> PublishOutcome:
        """Ends publishing after the points being sent, for which it waits half a minute once.

        If it is urgent, it waits for a second only.
        """
        self._orders.put(STOP)
        now = time.monotonic()
        patience = _URGENT_SECONDS if is_urgent else _STOP_SECONDS
        self._left_behind_at = min(self._left_behind_at, now + patience)
        self._thread.join(max(0.0, self._left_behind_at - now))
        late = PublishOutcome(0, 0, f"MLflow did not answer within {_STOP_SECONDS:.0f} s")
        return self._outcome or late

    def _publish(self) -> None:
        try:
            publisher = Publisher(self._ledger, read_manifest(self._ledger), self._uri)
            publish_until_ordered(publisher, self._orders, self._note)
            self._outcome = publisher.outcome()
        except Exception as error:  # whatever it is, training goes on
            reason = redact(f"{type(error).__name__}: {error}")
            self._outcome = PublishOutcome(0, 0, f"the publisher failed: {reason}")

    def _note(self, news: Outage | int | None) -> None:
        if isinstance(news, int):
            self._sent = news
        else:
            self._outage = news


@contextmanager
def start_publisher(ledger: Ledger, tracking_uri: str) -> Iterator[BackgroundPublisher]:
    """Publishes a sweep during a block."""
    publisher = BackgroundPublisher(ledger, tracking_uri)
    try:
        yield publisher
    except KeyboardInterrupt:  # a second signal ends the run at once
        publisher.stop(is_urgent=True)
        raise
    finally:
        publisher.stop()
