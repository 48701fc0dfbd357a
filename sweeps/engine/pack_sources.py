"""Sources of packs: those that a fixed plan still lacks, or that an adaptive search asks for.

A budget limits either.

An adaptive search is asked for some points at a time. Ask N is told the results of the asks before
it, except of the last ones, which may still be in training: with two asks in flight, all but one.
It never depends on which pack ended first. So the same records and the same ledger give the same
next ask, wherever a driver was killed.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from typing import final

import numpy as np

from privnets.frames import points_frame
from privnets.points import Replicate, TradeoffPoint
from sweeps.analysis.flags import is_flagged
from sweeps.analysis.pareto import meets_constraints, pareto_front
from sweeps.planning.packing import Pack
from sweeps.planning.plan import Plan, PlannedReplicate, ask_size
from sweeps.store.asks import AskRecord, write_ask
from sweeps.store.codec import ReplicateKey
from sweeps.store.ledger import Ledger
from sweeps.study.search import SEARCHES, Search, SearchResult
from sweeps.study.search_space import Proposal
from sweeps.study.spec import budget_seconds, budget_trainings


class PackSource:
    """Packs in the order in which they are trained, until a budget is spent."""

    def __init__(self, packs: Iterable[Pack], budget: int | str | None = None) -> None:
        """Starts with the first pack, and the time of a budget; see `SearchSpec.budget`."""
        self._queue: deque[Pack] = deque()
        self._unfinished: set[str] = set()
        self._in_training: set[str] = set()
        self._trainings_left = budget_trainings(budget)
        seconds = None if budget is None else budget_seconds(budget)
        self._end = math.inf if seconds is None else time.monotonic() + seconds
        self._add_packs(packs)

    @property
    def is_finished(self) -> bool:
        """Whether no pack will follow; until then one may be divided."""
        return self._has_ended() or (self._is_spent and not self._in_training)

    @property
    def has_reached_budget(self) -> bool:
        """Whether the budget is spent and packs are left."""
        return self._is_spent and not self._has_ended()

    def take(self) -> Pack | None:
        """Returns the next pack; None if there is none now, or the budget is spent."""
        if self._is_spent:
            return None
        self._refill()
        if not self._queue:
            return None
        pack = self._queue.popleft()
        self._trainings_left -= len(pack.replicates)
        self._in_training.add(pack.pack_id)
        return pack

    def end_pack(self, pack_id: str) -> None:
        """Notes that a pack is in the ledger, or has failed permanently."""
        self._in_training.discard(pack_id)
        self._unfinished.discard(pack_id)

    def divide_pack(self, pack: Pack) -> tuple[Pack, Pack]:
        """Puts the halves of a pack that was taken in its place, behind all others."""
        halves = pack.halves()
        self._add_packs(halves)
        self.end_pack(pack.pack_id)
        self._trainings_left += len(pack.replicates)
        return halves

    @property
    def _is_spent(self) -> bool:
        return self._trainings_left <= 0 or time.monotonic() >= self._end

    def _has_ended(self) -> bool:
        """Whether every pack has ended and no other follows."""
        return not self._unfinished

    def _refill(self) -> None:
        """Adds packs that follow only now."""

    def _add_packs(self, packs: Iterable[Pack]) -> None:
        for pack in packs:
            self._queue.append(pack)
            self._unfinished.add(pack.pack_id)


@final
class SearchedPacks(PackSource):
    """Packs of an adaptive search: what its recorded asks lack, then new asks, then confirmation.

    Attributes:
        plan: The plan, which grows by each ask.
    """

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        pending: Sequence[Pack],
        make_packs: Callable[[Sequence[PlannedReplicate]], list[Pack]],
        on_ask: Callable[[Plan, Sequence[Pack]], None],
        copy: Callable[[Sequence[ReplicateKey]], Set[ReplicateKey]] = lambda keys: frozenset(),
        budget: int | str | None = None,
    ) -> None:
        """Starts with what the recorded asks lack.

        Args:
            plan: Plan with the recorded asks.
            ledger: Ledger that has the results.
            pending: Packs of the replicates that recorded asks lack.
            make_packs: Groups the replicates of a new ask into packs.
            on_ask: Called with the grown plan and its new packs.
            copy: Copies replicates of a new ask that other sweeps have, and returns these.
            budget: Budget of the run.
        """
        self.plan = plan
        self._ledger = ledger
        self._make_packs = make_packs
        self._on_ask = on_ask
        self._copy = copy
        algorithm = type(SEARCHES.get(plan.study.search.algorithm))
        self._search: Search = algorithm(
            plan.study.space, plan.study.search, plan.objectives, plan.study.constraints
        )
        self._is_replayed = False
        self._is_exhausted = False
        self._told = 0
        self._ask_of: dict[ReplicateKey, int] = {}
        self._asks_of_packs: dict[str, set[int]] = {}
        for number, ask in enumerate(plan.asks):
            self._note_members(number, ask)
        super().__init__(pending, budget)

    def _has_ended(self) -> bool:
        return not self._unfinished and self._next_kind() is None

    def _refill(self) -> None:
        """Asks the search, if the results that it needs are there."""
        while not self._queue and self._next_kind() is not None:
            required = self._required_asks()
            if any(
                min(self._asks_of_packs[p], default=required) < required for p in self._unfinished
            ):
                return
            self._ask()

    def _next_kind(self) -> str | None:
        """Purpose of the next ask; None if there is none."""
        if self.plan.is_complete:
            return None
        asks, spec = self.plan.asks, self.plan.study.search
        has_ended = self._is_exhausted or (bool(asks) and asks[-1].ends_search(spec))
        has_more = not has_ended and self.plan.searched < self.plan.searches
        return "search" if has_more else "confirm"

    def _required_asks(self) -> int:
        """Number of asks, the first ones, that must have ended before the next one."""
        asked = len(self.plan.asks)
        if self._next_kind() == "confirm":
            return asked
        least = asked - self.plan.study.search.asks_in_flight + 1
        reused = sum(ask.kind == "reuse" for ask in self.plan.asks)
        return max(least, reused, *(ask.told for ask in self.plan.asks))

    def _ask(self) -> None:
        """Makes the next ask, records it and adds its packs, one of which ends with the budget."""
        kind, told = self._next_kind(), self._required_asks()
        if not self._is_replayed:
            # All trainings that the recorded asks were told of have ended by now, also those that
            # this run repeats. So only the ledger decides what the search knows.
            for recorded in self.plan.asks:
                self._tell(recorded.told)
                if recorded.kind != "confirm":
                    self._search.register(recorded.proposals)
            self._is_replayed = True
        self._tell(told)
        if kind == "confirm":
            # The front that the search estimates, else the front of the means.
            size = self.plan.study.search.confirmed_points
            front = self._search.front(size) if size else []
            front = mean_front(self.plan, self._ledger, size) if front is None else front
            ask = self.plan.propose("confirm", front, told)
        else:
            proposals = self._propose()
            if not proposals:
                self._is_exhausted = True
                return
            ask = self.plan.propose("search", proposals, told)
        number = len(self.plan.asks)
        write_ask(self._ledger, number, ask)
        self.plan = self.plan.grow(ask)
        self._note_members(number, ask)
        finished = self._ledger.finished_replicates()
        planned = {replicate.key: replicate for replicate in self.plan.replicates()}
        new = [k for k, asked in self._ask_of.items() if asked == number and k not in finished]
        copied = self._copy(new)
        members = [planned[key] for key in new if key not in copied]
        count = min(self._trainings_left, len(members))
        packs = [*self._make_packs(members[:count]), *self._make_packs(members[count:])]
        self._add_packs(packs)
        self._on_ask(self.plan, packs)

    def _propose(self) -> list[Proposal]:
        """Proposals of the next ask: first those that the study enqueues; none ends the search."""
        study, asked = self.plan.study, self.plan.searched
        limit = study.search.front_tolerance
        if limit is not None and asked >= len(study.search.enqueue):
            uncertainty = self._search.front_uncertainty()
            if uncertainty is not None and uncertainty <= limit:
                return []
        count = min(ask_size(study), self.plan.searches - asked)
        enqueued = [dict(values) for values in study.search.enqueue[asked : asked + count]]
        self._search.register(enqueued)
        rest = count - len(enqueued)
        return enqueued + (self._search.ask(rest) if rest else [])

    def _tell(self, told: int) -> None:
        """Tells the search the results of the first asks, in their order."""
        for ask in self.plan.asks[self._told : told]:
            if ask.kind != "confirm":
                self._search.tell(ask_results(self.plan, self._ledger, ask))
        self._told = max(self._told, told)

    def _note_members(self, number: int, ask: AskRecord) -> None:
        for index, point_id in enumerate(ask.point_ids):
            for seed in ask.seeds[index : index + 1] or self.plan.confirming_seeds:
                if index not in ask.refusals:
                    self._ask_of.setdefault((point_id, seed), number)

    def _add_packs(self, packs: Iterable[Pack]) -> None:
        packs = list(packs)
        for pack in packs:
            self._asks_of_packs[pack.pack_id] = {self._ask_of[key] for key in pack.keys}
        super()._add_packs(packs)


def ask_results(plan: Plan, ledger: Ledger, ask: AskRecord) -> list[SearchResult]:
    """Results of the proposals of an ask.

    A proposal that was refused, that is not in the ledger or that has a raised flag failed: it
    cannot be on a front.
    """
    points = {point.point_id: point for point in ledger.read_points(only=ask.point_ids)}
    results = []
    for index, proposal in enumerate(ask.proposals):
        point_id, seed = ask.point_ids[index], ask.seeds[index]
        point = points.get(point_id, TradeoffPoint(point_id, plan.study.experiment, {}, ()))
        own = [replicate for replicate in point.replicates if replicate.seed == seed]
        reason = "" if own else ask.refusals.get(index, "its pack failed")
        trained = replace(point, replicates=tuple(own))
        if own and is_flagged(points_frame([trained], plan.study.name)).any():
            reason = "it has a raised flag"
        if reason:
            trained = replace(point, replicates=(Replicate(seed, {}, failure=reason),))
        results.append(SearchResult(proposal, trained))
    return results


def mean_front(plan: Plan, ledger: Ledger, size: int) -> list[Proposal]:
    """Proposals on the front of the means of searching replicates, at most `size` of them.

    They meet the study's constraints, and are spread along the first objective.
    """
    proposals = {
        point_id: proposal
        for ask in plan.asks
        for point_id, proposal in zip(ask.point_ids, ask.proposals, strict=True)
    }
    searched = []
    for point in ledger.read_points():
        own = tuple(r for r in point.replicates if r.seed not in plan.confirming_seeds)
        if own and point.point_id in proposals:
            searched.append(replace(point, replicates=own))
    frame = points_frame(searched, plan.study.name)
    if not set(plan.objectives) <= set(frame.columns):
        return []
    front = pareto_front(meets_constraints(frame, plan.study.constraints), plan.objectives)
    order = front.sort_values([*plan.objectives, "point_id"])["point_id"].tolist()
    chosen = np.unique(np.linspace(0, len(order) - 1, min(size, len(order))).round().astype(int))
    return [proposals[order[i]] for i in chosen]
