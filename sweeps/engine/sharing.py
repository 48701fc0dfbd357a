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
from dataclasses import dataclass, replace
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
# A sweep keeps a slot that another equals it for until it has used it for so long.
_TURN_SECONDS: Final = 300.0
# Free slots of several nodes may fit no pack. Other sweeps use what a sweep leaves free for a
# minute, and leave it free for another minute some time later.
_UNUSED_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 600.0
_JOIN_SECONDS: Final = 5.0
_TOLERANCE: Final = 1e-9
# Requests of packs that wait for capacity are the demand that an autoscaler sees. They let a
# cluster double at once, within these bounds.
_MIN_REQUESTS: Final = 4
_MAX_REQUESTS: Final = 64

_Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class ClusterClaim:
    """Demand of one sweep for a cluster.

    Attributes:
        weight: Its weight beside other sweeps.
        bundle: Resources of a pack, by Ray's names.
        wanted: Packs that it could train now, those in training among them.
        held: Packs for which it has a worker.
        usage: Seconds of the cluster that it has used, divided by its weight.
        beat: Grows while the driver is alive.
    """

    weight: _Amount
    bundle: dict[str, _Amount]
    wanted: _Count
    held: _Count = 0
    usage: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    beat: int = 0


_CLAIM: Final = TypeAdapter(ClusterClaim)


def fair_shares(total: Mapping[str, float], claims: Mapping[str, ClusterClaim]) -> dict[str, int]:
    """Number of packs that each sweep may train at once: weighted max-min fairness.

    Packs are given one by one, each to the sweep with the smallest weighted share. Its share is the
    largest of its shares of the resources. Of equal sweeps the one that has used least is next; a
    sweep that holds a slot keeps it for five minutes more.
    """
    packs, free = dict.fromkeys(claims, 0), dict(total)
    costs = _pack_costs(total, claims)
    queue = [(*_weighted_share(claims[name], costs[name], 0), name) for name in claims]
    heapify(queue)
    while queue:
        *_, name = heappop(queue)
        bundle = claims[name].bundle
        has_room = all(free.get(kind, 0) >= need - _TOLERANCE for kind, need in bundle.items())
        if has_room and packs[name] < claims[name].wanted:
            packs[name] += 1
            for kind, need in bundle.items():
                free[kind] -= need
            heappush(queue, (*_weighted_share(claims[name], costs[name], packs[name]), name))
    return packs


def may_request_more(
    sweep: str, total: Mapping[str, float], claims: Mapping[str, ClusterClaim]
) -> bool:
    """Whether a sweep may wait for capacity beyond its share, which new nodes would bring.

    New capacity goes first to the sweep with the smallest weighted share. Nothing is new while
    another sweep has less than its share.
    """
    packs, costs = fair_shares(total, claims), _pack_costs(total, claims)
    if any(claims[name].held < packs[name] for name in claims if name != sweep):
        return False
    unsatisfied = [name for name in claims if packs[name] < claims[name].wanted]
    shares = {n: (*_weighted_share(claims[n], costs[n], packs[n]), n) for n in unsatisfied}
    return min(unsatisfied, key=shares.__getitem__, default=sweep) == sweep


def _weighted_share(claim: ClusterClaim, cost: float, packs: int) -> tuple[float, float]:
    """Weighted share of a sweep that has some packs, then its rank among equals."""
    is_held = claim.held > packs
    return packs * cost, claim.usage - is_held * _TURN_SECONDS * cost


def _pack_costs(total: Mapping[str, float], claims: Mapping[str, ClusterClaim]) -> dict[str, float]:
    """Largest share of a resource that one pack of each sweep takes, by the sweep's weight."""
    costs = {}
    for name, claim in claims.items():
        parts = [need / total[kind] for kind, need in claim.bundle.items() if total.get(kind)]
        costs[name] = max(parts, default=0.0) / claim.weight
    return costs


class ClusterShare:
    """Share of one sweep in a Ray.

    Attributes:
        name: Name of the run that no other run has.
        resources: Resources of a pack, and the weight of the sweep.
        limit: Packs for which it may have or request a worker now.
        held: Packs for which it has a worker.
        packs: Packs that it has begun, or that wait for a worker.
        has_more: Whether it can make more packs, as far as known.
    """

    def __init__(self, resources: Resources, name: str, most: int) -> None:
        """Starts without a worker, and with all of the slots of the Ray, which are `most`."""
        self.name, self.resources = name, resources
        self.held = self.packs = 0
        self.has_more = False
        self.limit = max(1, most)
        self._beat, self._beaten_at, self._usage = 0, 0.0, 0.0
        self._changes: dict[str, tuple[ClusterClaim, float]] = {}
        self._unused: dict[tuple[str, int], float] = {}

    def claim(self, total: Mapping[str, float], most: int, now: float) -> bytes:
        """Current claim of the sweep, for the other drivers.

        Args:
            total: Resources of the Ray.
            most: Packs that its machines can train at once.
            now: Time of this machine's clock, in seconds.
        """
        own = self._own(most)
        passed = now - self._beaten_at if self._beat else 0.0
        self._usage += own.held * passed * _pack_costs(total, {self.name: own})[self.name]
        self._beat, self._beaten_at = self._beat + 1, now
        return _CLAIM.dump_json(self._own(most))

    def update(
        self, total: Mapping[str, float], most: int, texts: Mapping[str, bytes], now: float
    ) -> list[str]:
        """Sets the limit by the claims of all sweeps; returns the sweeps whose drivers died.

        Args:
            total: Resources of the Ray.
            most: Packs that its machines can train at once.
            texts: Claims of all sweeps, as `claim` returns them.
            now: Time of this machine's clock, in seconds.
        """
        living, dead = self._living(texts, now)
        own = self._own(most)
        others = {name: claim for name, claim in living.items() if name != self.name}
        if not own.wanted:  # so that a sweep that waited for itself displaces no other for long
            least = min((claim.usage for claim in others.values()), default=0.0)
            self._usage = max(self._usage, least)
        claims = self._usable(total, {**others, self.name: own}, now)
        limit = fair_shares(total, claims)[self.name]
        if not most or may_request_more(self.name, total, claims):
            limit += min(max(most, _MIN_REQUESTS), _MAX_REQUESTS)
        most_packs = self.resources.concurrency
        self.limit = limit if most_packs == "auto" else min(limit, most_packs)
        return dead

    def _own(self, most: int) -> ClusterClaim:
        wanted = most if self.has_more else min(self.packs, most)
        weight, bundle = self.resources.weight, self.resources.bundle()
        return ClusterClaim(weight, bundle, wanted, self.held, self._usage, self._beat)

    def _living(
        self, texts: Mapping[str, bytes], now: float
    ) -> tuple[dict[str, ClusterClaim], list[str]]:
        """Claims that changed within the last seconds, and the names of the others."""
        living, dead = {}, []
        for name, text in texts.items():
            with suppress(ValidationError):  # of another version
                claim = _CLAIM.validate_json(text)
                known, since = self._changes.get(name, (None, now))
                self._changes[name] = claim, since if known == claim else now
                if known != claim or now - since < _DEAD_SECONDS:
                    living[name] = claim
                else:
                    dead.append(name)
        return living, dead

    def _usable(
        self, total: Mapping[str, float], claims: Mapping[str, ClusterClaim], now: float
    ) -> dict[str, ClusterClaim]:
        """Claims, without what other sweeps could have had for a minute and did not take."""
        shares = fair_shares(total, claims)
        is_free = all(claim.held <= shares[name] for name, claim in claims.items())
        unused = {}
        for name, claim in claims.items():
            if name != self.name and claim.held < shares[name]:
                since = self._unused.get((name, claim.held), now)
                is_early = now - since < _UNUSED_SECONDS and not is_free
                unused[name, claim.held] = (
                    now if is_early or now - since >= _RETRY_SECONDS else since
                )
        self._unused = unused
        given_up = {name for (name, _), since in unused.items() if now - since >= _UNUSED_SECONDS}
        return {
            name: replace(claim, wanted=claim.held) if name in given_up else claim
            for name, claim in claims.items()
        }


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
    share = ClusterShare(resources, name, slots(connection.machines(), resources))
    if connection.started:
        yield share
        return
    ended, heading = threading.Event(), "the cluster could not be shared with other sweeps"

    def keep_sharing() -> None:
        while not ended.wait(_INTERVAL_SECONDS):
            with recording(heading):
                _exchange_claims(connection, share)
        with recording(heading):  # so that others need not wait until the claim counts as dead
            delete_cluster_value(_PREFIX + name)

    with recording(heading):
        _exchange_claims(connection, share)
    thread = threading.Thread(target=keep_sharing, name="share", daemon=True)
    thread.start()
    try:
        yield share
    finally:
        ended.set()
        thread.join(_JOIN_SECONDS)  # a call of a dead head hangs


def _exchange_claims(connection: Connection, share: ClusterShare) -> None:
    total, most = connection.resources(), slots(connection.machines(), share.resources)
    now = time.monotonic()
    write_cluster_value(_PREFIX + share.name, share.claim(total, most, now))
    claims = read_cluster_values(_PREFIX)
    texts = {key.removeprefix(_PREFIX): text for key, text in claims.items()}
    for name in share.update(total, most, texts, now):
        delete_cluster_value(_PREFIX + name)
