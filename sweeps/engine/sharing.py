"""Sharing of a cluster between sweeps: each trains as many packs at once as its weight gives it.

Every driver writes its claim to the cluster's key-value store once a second. From all claims, each
driver computes the same shares. A sweep above its share gives up slots as its packs end. A claim
that no longer changes is that of a driver that died, and holds nothing back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from cluster.ray_internals import delete_cluster_value, read_cluster_values, write_cluster_value
from sweeps.engine.capacity import slots
from sweeps.study.spec import Resources

if TYPE_CHECKING:
    from cluster.connection import Connection

_PREFIX: Final = "sweeps/claims/"
_INTERVAL_SECONDS: Final = 1.0
_DEAD_SECONDS: Final = 15.0
# Equal sweeps take turns with a slot that cannot be divided. A worker starts in a few seconds.
_TURN_SECONDS: Final = 300.0
_JOIN_SECONDS: Final = 5.0
_TOLERANCE: Final = 1e-9
# Requests of packs that wait for capacity are the demand that an autoscaler sees. They let a
# cluster double at once, within these bounds.
_MIN_REQUESTS: Final = 4
_MAX_REQUESTS: Final = 64

_Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Claim:
    """Demand of one sweep for a cluster.

    Attributes:
        weight: Its weight beside other sweeps.
        bundle: Resources of a pack, by Ray's names.
        wanted: Packs that it could train now, those in training among them.
        held: Packs for which it has a worker.
        joined: Unix time at which it began.
        beat: Grows while the driver is alive.
    """

    weight: _Amount
    bundle: dict[str, _Amount]
    wanted: _Count
    held: _Count = 0
    joined: float = 0.0
    beat: int = 0


_CLAIM: Final = TypeAdapter(Claim)


def fair_shares(
    total: Mapping[str, float], claims: Mapping[str, Claim], turn: int = 0
) -> dict[str, int]:
    """Number of packs that each sweep may train at once: weighted max-min fairness.

    Packs are given one by one, each to the sweep that has least for its weight. A sweep has the
    largest of its shares of the resources. Of equal sweeps the one that began first is given the
    next pack; each `turn` passes that rank on to the next sweep.
    """
    packs, free = dict.fromkeys(claims, 0), dict(total)
    ranks, costs = _ranks(claims, turn), _pack_costs(total, claims)
    line = [(0.0, ranks[name], name) for name in claims]
    heapify(line)
    while line:
        _, rank, name = heappop(line)
        bundle = claims[name].bundle
        has_room = all(free.get(kind, 0) >= need - _TOLERANCE for kind, need in bundle.items())
        if has_room and packs[name] < claims[name].wanted:
            packs[name] += 1
            for kind, need in bundle.items():
                free[kind] -= need
            heappush(line, (packs[name] * costs[name], rank, name))
    return packs


def may_request_more(
    sweep: str, total: Mapping[str, float], claims: Mapping[str, Claim], turn: int = 0
) -> bool:
    """Whether a sweep may wait for capacity beyond its share, which new nodes would bring.

    New capacity goes first to the sweep that has least for its weight. Nothing is new while
    another sweep has less than its share.
    """
    packs, costs = fair_shares(total, claims, turn), _pack_costs(total, claims)
    ranks = _ranks(claims, turn)
    if any(claims[name].held < packs[name] for name in claims if name != sweep):
        return False
    hungry = [name for name in claims if packs[name] < claims[name].wanted]
    first = min(hungry, key=lambda n: (packs[n] * costs[n], ranks[n]), default=sweep)
    return first == sweep


def _ranks(claims: Mapping[str, Claim], turn: int) -> dict[str, int]:
    order = sorted(claims, key=lambda name: (claims[name].joined, name))
    return {name: (place - turn) % len(order) for place, name in enumerate(order)}


def _pack_costs(total: Mapping[str, float], claims: Mapping[str, Claim]) -> dict[str, float]:
    """Largest share of a resource that one pack of each sweep takes, by the sweep's weight."""
    costs = {}
    for name, claim in claims.items():
        parts = [need / total[kind] for kind, need in claim.bundle.items() if total.get(kind)]
        costs[name] = max(parts, default=0.0) / claim.weight
    return costs


class ClusterShare:
    """Share of one sweep in a Ray, kept up to date by a thread.

    Attributes:
        limit: Packs for which it may have or request a worker now.
        held: Packs for which it has a worker.
        packs: Packs that it has begun, or that wait for a worker.
        has_more: Whether it can make more packs, as far as known.
    """

    def __init__(self, connection: Connection, resources: Resources, name: str) -> None:
        """Starts without a worker, and with all of the slots of the Ray."""
        self.held = self.packs = 0
        self.has_more = True
        self._connection, self._resources, self._name = connection, resources, name
        self._joined = time.time()
        self._beats: dict[str, tuple[Claim, float]] = {}
        self._beat = 0
        self.limit = max(1, slots(connection.machines(), resources))

    def update(self) -> None:
        """Writes the claim of the sweep, reads those of others, and sets the limit."""
        total = self._connection.resources()
        most = slots(self._connection.machines(), self._resources)
        self._beat += 1
        own = Claim(
            self._resources.weight,
            self._resources.bundle(),
            most if self.has_more else min(self.packs, most),
            self.held,
            self._joined,
            self._beat,
        )
        write_cluster_value(_PREFIX + self._name, _CLAIM.dump_json(own))
        claims = {**self._living(), self._name: own}
        turn = int(time.time() // _TURN_SECONDS)
        limit = fair_shares(total, claims, turn)[self._name]
        if may_request_more(self._name, total, claims, turn):
            limit += min(max(most, _MIN_REQUESTS), _MAX_REQUESTS)
        most_packs = self._resources.concurrency
        self.limit = limit if most_packs == "auto" else min(limit, most_packs)

    def remove(self) -> None:
        """Removes the claim, so that other sweeps need not wait until it counts as dead."""
        delete_cluster_value(_PREFIX + self._name)

    def _living(self) -> dict[str, Claim]:
        """Claims that changed within the last seconds, by this machine's clock."""
        now, living = time.monotonic(), {}
        for key, text in read_cluster_values(_PREFIX).items():
            with suppress(ValidationError):  # of another version
                claim = _CLAIM.validate_json(text)
                known, since = self._beats.get(key, (None, now))
                self._beats[key] = claim, since if known == claim else now
                if known != claim or now - since < _DEAD_SECONDS:
                    living[key.removeprefix(_PREFIX)] = claim
                else:
                    delete_cluster_value(key)
        return living


@contextmanager
def cluster_share(
    connection: Connection,
    resources: Resources,
    name: str,
    recording: Callable[[str], AbstractContextManager[None]],
) -> Iterator[ClusterShare]:
    """Shares a cluster with the other sweeps on it while the block runs.

    A Ray that was started for this sweep alone is not shared.

    Args:
        connection: Connection to the Ray.
        resources: Resources of a pack, and the weight of the sweep.
        name: Name of the run that no other run has.
        recording: Context manager that records exceptions under a heading.
    """
    share, ended = ClusterShare(connection, resources, name), threading.Event()
    if connection.started:
        yield share
        return

    def keep_sharing() -> None:
        heading = "the cluster could not be shared with other sweeps"
        while not ended.wait(_INTERVAL_SECONDS):
            with recording(heading):
                share.update()
        with recording(heading):
            share.remove()

    share.update()
    thread = threading.Thread(target=keep_sharing, name="share", daemon=True)
    thread.start()
    try:
        yield share
    finally:
        ended.set()
        thread.join(_JOIN_SECONDS)  # a call of a dead head hangs
