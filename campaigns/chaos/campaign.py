"""Short sweeps with injected faults, until the requested number of faults has happened.

`python -m campaigns.chaos` runs it in namespaces of its own.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from campaigns.chaos.episode import Episode
from campaigns.chaos.faults import FAULTS
from campaigns.chaos.lab import Lab
from campaigns.chaos.options import Options, parse_options
from campaigns.chaos.table import Row, publish
from campaigns.chaos.verdict import Reference, Verdict, judge
from campaigns.chaos.world import enter_namespace

_FEWEST, _MOST = 15, 30
# Recovery from these takes longer than the rest of a sweep. So they have a limit per sweep, and are
# half as many in all as the others.
_COSTLY: Mapping[str, int] = {"head": 1, "driver": 2, "stop": 1, "tracking": 1}
_MOST_ALIKE = 6


@dataclass
class Campaign:
    """Runs sweeps with faults and judges each.

    Attributes:
        options: Command line.
        lab: Cluster and servers.
        draw: Random generator.
        pool: Faults still to inject.
        verdicts: Verdict on every sweep, with the faults that it had.
    """

    options: Options
    lab: Lab
    draw: random.Random
    pool: list[str] = field(default_factory=list)
    verdicts: list[tuple[Sequence[str], Verdict]] = field(default_factory=list)

    def run(self) -> None:
        """Runs one sweep without faults, then others until the pool is empty."""
        self.pool = _pool(self.options, self.draw, self.lab.clocks)
        reference = self._reference()
        while self.pool:
            episode = self._episode(self._next_faults())
            episode.run()
            self.pool += list((Counter(episode.planned) - Counter(episode.injected)).elements())
            verdict = judge(episode, reference)
            self.lab.kill_lost_clusters()
            self.verdicts.append((episode.injected, verdict))
            self._log_verdict(episode, verdict)

    def rows(self) -> list[Row]:
        """Returns a row per kind of fault."""
        return [_row(kind, self.verdicts) for kind in FAULTS if self._has_happened(kind)]

    def _has_happened(self, kind: str) -> bool:
        return any(kind in kinds for kinds, _ in self.verdicts)

    def _reference(self) -> Reference:
        episode = self._episode(())
        episode.run()
        reference = Reference.of(episode.storage, episode.name)
        self._log_verdict(episode, judge(episode, reference))
        return reference

    def _episode(self, kinds: Sequence[str]) -> Episode:
        name = f"s{len(self.verdicts) + bool(kinds)}"
        return Episode(self.lab, name, kinds, self.draw, _log)

    def _next_faults(self) -> list[str]:
        """Takes the faults of the next sweep from the pool."""
        size = self.draw.randint(_FEWEST, _MOST)
        chosen: list[str] = []
        for kind in list(self.pool):
            if len(chosen) < size and chosen.count(kind) < _COSTLY.get(kind, _MOST_ALIKE):
                chosen.append(kind)
                self.pool.remove(kind)
        self.draw.shuffle(chosen)
        return chosen

    def _log_verdict(self, episode: Episode, verdict: Verdict) -> None:
        wrong = "nothing wrong" if verdict.clean else repr(verdict)
        _log(
            f"{episode.name}: {verdict.trainings} trainings, {wrong}; {len(self.pool)} faults left"
        )
        if not verdict.clean:
            _log(episode.driver_log.read_text(errors="replace")[-6000:])


def main() -> int:
    """Runs a campaign; returns 1 if a sweep had a defect."""
    options = parse_options(sys.argv[1:])
    lab = Lab(enter_namespace())
    campaign = Campaign(options, lab, random.Random(options.seed))
    try:
        campaign.run()
    finally:
        if campaign.verdicts:
            publish(campaign.rows(), options, len(campaign.verdicts))
        lab.close()
    return 0 if all(verdict.clean for _, verdict in campaign.verdicts) else 1


def _pool(options: Options, draw: random.Random, clocks: bool) -> list[str]:
    kinds = [k for k in options.only or FAULTS if clocks or k != "clock"]
    round_ = [*kinds, *(kind for kind in kinds if kind not in _COSTLY)]
    pool = [round_[i % len(round_)] for i in range(options.faults)]
    draw.shuffle(pool)
    return pool


def _row(kind: str, verdicts: Sequence[tuple[Sequence[str], Verdict]]) -> Row:
    """A defect of a sweep counts for each kind of fault in that sweep."""
    seen = [verdict for kinds, verdict in verdicts if kind in kinds]
    return Row(
        fault=kind,
        count=sum(list(kinds).count(kind) for kinds, _ in verdicts),
        lost=sum(verdict.lost for verdict in seen),
        doubled=sum(verdict.doubled for verdict in seen),
        retrained=sum(verdict.retrained for verdict in seen),
        other=sum(len(verdict.other_problems) for verdict in seen),
    )


def _log(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
