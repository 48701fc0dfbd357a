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

_ASIDE = re.compile(r"\..+\.[0-9a-f]{32}")


@dataclass
class Evidence:
    """Looks at a sweep's directory again and again.

    Attributes:
        sweep: Its directory.
        trace: Where trainings are noted.
        rewritten: Files of the ledger that changed, or went, after they were there.
    """

    sweep: Path
    trace: Path
    rewritten: set[str] = field(default_factory=set)
    _seen: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    _began: int = field(default_factory=time.monotonic_ns)

    def look(self) -> None:
        """See which packs are there now, and that those seen before are as they were."""
        there = {}
        for path in (self.sweep / "ledger").glob("[!.]*.parquet"):
            facts = path.stat()
            there[path.name] = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        self.rewritten |= {name for name, facts in self._seen.items() if there.get(name) != facts}
        self._seen |= there

    def rows(self) -> Counter[Member]:
        """Number of rows of each point and seed in all files."""
        ledger = Ledger(str(self.sweep.parent), self.sweep.name)
        return Counter(member for pack in ledger.pack_ids() for member in _members(ledger, pack))

    def retrained_members(self) -> list[Member]:
        """Members of stacks that were begun when the ledger held them already."""
        committed = self._commit_times()
        return [
            member
            for at, members in self._stack_starts()
            for member in members
            if committed.get(member, at) < at
        ]

    def trainings(self) -> int:
        """Number of trainings that began, including those that failed."""
        return sum(len(members) for _, members in self._stack_starts())

    def leftovers(self) -> list[str]:
        """Files that should not be there once a sweep is done."""
        found = [path for path in self.sweep.rglob("*") if _ASIDE.fullmatch(path.name)]
        found += (self.sweep / "checkpoints").glob("*")
        return [str(path.relative_to(self.sweep)) for path in found]

    def _commit_times(self) -> dict[Member, int]:
        """When each member was committed first, by the clock that only goes forward."""
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
        """When stacks began since this began to look, and their members."""
        if not self.trace.exists():
            return
        for line in self.trace.read_text().splitlines():
            note = json.loads(line)
            if note["at"] >= self._began:
                yield note["at"], [(point_id, seed) for point_id, seed in note["members"]]


def _members(ledger: Ledger, pack: str) -> list[Member]:
    return [(p.point_id, r.seed) for p in ledger.read_points([pack]) for r in p.replicates]
