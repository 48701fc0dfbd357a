"""How many packs run at once on a cluster that grows and shrinks while they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from ray.tune.search import BasicVariantGenerator

from cluster.connection import Machine
from sweeps.engine.capacity import slots
from sweeps.study.spec import Resources

_LOOK_SECONDS: Final = 1.0
# Packs that wait for room beside those that have it: as many again, so that an autoscaler may
# double a cluster in one go, within these bounds; each costs the head of the cluster a little.
_LEAST_AHEAD, _MOST_AHEAD = 4, 64


class Queue:
    """Hands out packs, in order, as long as there is room for them.

    Attributes:
        search: By which Tune takes them.
    """

    def __init__(self, packs: Sequence[str], concurrency: int) -> None:
        """Hand out none yet.

        Args:
            packs: Their ids.
            concurrency: How many there is room for.
        """
        self.search = BasicVariantGenerator(max_concurrent=concurrency)
        self._left = iter(packs)

    def next(self) -> str:
        """The next one."""
        return next(self._left)

    def widen(self, concurrency: int) -> None:
        """From now on there is room for so many; none that runs is taken back."""
        self.search.max_concurrent = max(concurrency, 1)  # 0 would be no limit


class Following:
    """Keeps a queue as wide as a cluster is, and wider where an autoscaler may add to that.

    Tune asks Ray for room for each pack that it was handed, and Ray's autoscalers, old and new,
    start nodes for what waits for room. Whoever asked on a sweep's behalf beside Tune would be
    its packs' rival for that room, and what is asked for last is often placed first.
    """

    def __init__(
        self,
        queue: Queue,
        machines: Callable[[], Sequence[Machine]],
        resources: Resources,
        grows: Callable[[], bool],
    ) -> None:
        """Look for the first time at once.

        Args:
            queue: Of the packs.
            machines: Gives those that are alive.
            resources: Of a pack.
            grows: Whether there is an autoscaler, as far as can be told; asked until it is true.
        """
        self._queue = queue
        self._machines = machines
        self._resources = resources
        self._ask_grows = grows
        self._grows = False
        self._looked_at = -_LOOK_SECONDS

    def tick(self) -> None:
        """A moment has passed."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        room = slots(self._machines(), self._resources)
        self._grows = self._grows or self._ask_grows()
        self._queue.widen(self._with_ahead(room) if self._grows else room)

    def _with_ahead(self, room: int) -> int:
        """Room, and as much again as may be waited for."""
        wide = room + min(max(room, _LEAST_AHEAD), _MOST_AHEAD)
        limit = self._resources.concurrency
        return wide if limit == "auto" else min(wide, limit)
