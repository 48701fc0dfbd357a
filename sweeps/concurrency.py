"""How many packs run at once on a cluster that grows and shrinks while they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from operator import length_hint
from typing import Final

from ray.tune.search import BasicVariantGenerator

from cluster.connection import Machine
from cluster.scaling import Demand
from sweeps.remaining import places
from sweeps.spec import Resources

_LOOK_SECONDS: Final = 1.0
# Packs that an autoscaler is asked to make room for at a time: as many as run already, so that it
# may double a cluster in one go, within these bounds; each costs the head of the cluster a little.
_LEAST_ASKED, _MOST_ASKED = 4, 64


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

    @property
    def left(self) -> int:
        """How many have not been handed out."""
        return length_hint(self._left)

    def next(self) -> str:
        """The next one."""
        return next(self._left)

    def widen(self, concurrency: int) -> None:
        """From now on there is room for so many; none that runs is taken back."""
        self.search.max_concurrent = max(concurrency, 1)  # 0 would be no limit


class Following:
    """Keeps a queue as wide as a cluster is, and has an autoscaler make the cluster wider."""

    def __init__(
        self,
        queue: Queue,
        machines: Callable[[], Sequence[Machine]],
        resources: Resources,
        demand: Demand | None,
    ) -> None:
        """Look for the first time at once.

        Args:
            queue: Of the packs.
            machines: Gives those that are alive.
            resources: Of a pack.
            demand: By which room is asked for; None where nobody would bring any.
        """
        self._queue = queue
        self._machines = machines
        self._resources = resources
        self._demand = demand
        self._looked_at = -_LOOK_SECONDS

    def tick(self) -> None:
        """A moment has passed."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        room = places(self._machines(), self._resources)
        self._queue.widen(room)
        if self._demand is not None:
            self._demand.ask(min(self._queue.left, self._allowed(room)))

    def _allowed(self, room: int) -> int:
        """For how many more packs room may be asked for."""
        ahead = min(max(room, _LEAST_ASKED), _MOST_ASKED)
        limit = self._resources.concurrency
        return ahead if limit == "auto" else min(ahead, limit - room)


@contextmanager
def following(
    queue: Queue, machines: Callable[[], Sequence[Machine]], resources: Resources, *, grows: bool
) -> Iterator[Following]:
    """A queue that follows a cluster for a block; after it nothing is asked for any more.

    Args:
        queue: Of the packs.
        machines: Gives those that are alive.
        resources: Of a pack.
        grows: Whether there is an autoscaler to be asked.
    """
    with Demand(resources.cpus, resources.gpus) if grows else nullcontext() as demand:
        yield Following(queue, machines, resources, demand)
