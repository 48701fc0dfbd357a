"""Evidence of a sweep: commit times of its packs and start times of its trainings."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.store.ledger import Ledger

Member = tuple[str, int]

_TEMPORARY_FILE = re.compile(r"\..+\.[0-9a-f]{32}")


@dataclass
class Evidence:
    """Observes a sweep's directory while it runs.

    Attributes:
        sweep: Directory of the sweep.
        trace: File of the trainings that started.
        changed_packs: Files of the ledger that changed or vanished after their first observation.
    """

    sweep: Path
    trace: Path
    changed_packs: set[str] = field(default_factory=set)
    _seen: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    _began: int = field(default_factory=time.monotonic_ns)

    def record_packs(self) -> None:
        """Records the packs in the ledger, and which earlier ones changed."""
        there = {}
        for path in (self.sweep / "ledger").glob("[!.]*.parquet"):
            facts = path.stat()
            there[path.name] = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        self.changed_packs |= {
            name for name, facts in self._seen.items() if there.get(name) != facts
        }
        self._seen |= there

    def rows(self) -> Counter[Member]:
        """Counts the rows of each point and seed over all files."""
        ledger = Ledger(str(self.sweep.parent), self.sweep.name)
        return Counter(member for pack in ledger.pack_ids() for member in _members(ledger, pack))

    def retrained_members(self) -> list[Member]:
        """Returns members of stacks that started although the ledger had them."""
        committed = self._commit_times()
        return [
            member
            for at, members in self._stack_starts()
            for member in members
            if committed.get(member, at) < at
        ]

    def trainings(self) -> int:
        """Counts the trainings that started, including failed ones."""
        return sum(len(members) for _, members in self._stack_starts())

    def leftovers(self) -> list[str]:
        """Returns files that a complete sweep must not have."""
        found = [path for path in self.sweep.rglob("*") if _TEMPORARY_FILE.fullmatch(path.name)]
        found += (self.sweep / "checkpoints").glob("*")
        return [str(path.relative_to(self.sweep)) for path in found]

    def _commit_times(self) -> dict[Member, int]:
        """Returns the first commit of each member, in nanoseconds of the monotonic clock."""
        offset = time.time_ns() - time.monotonic_ns()
        ledger = Ledger(str(self.sweep.parent), self.sweep.name)
        found: dict[Member, int] = {}
        for pack in ledger.pack_ids():
            path = self.sweep / "ledger" / f"{pack}.parquet"
            at = os.stat(path).st_ctime_ns - offset
            for member in _members(ledger, pack):
                found[member] = min(at, found.get(member, at))
        return found

    def _stack_starts(self) -> Iterator[tuple[int, list[Member]]]:
        """Yields start and members of each stack since the observation began."""
        if not self.trace.exists():
            return
        for line in self.trace.read_text().splitlines():
            note = json.loads(line)
            if note["at"] >= self._began:
                yield note["at"], [(point_id, seed) for point_id, seed in note["members"]]


def _members(ledger: Ledger, pack: str) -> list[Member]:
    return [(p.point_id, r.seed) for p in ledger.read_points([pack]) for r in p.replicates]
