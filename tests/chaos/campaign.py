"""Many short sweeps under fire, until as many faults have happened as were asked for.

Run by `python -m tests.chaos`, in a world of its own.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.episode import Episode
from tests.chaos.faults import FAULTS
from tests.chaos.lab import Lab
from tests.chaos.options import Options, parse_options
from tests.chaos.table import Row, publish
from tests.chaos.verdict import Reference, Verdict, judge
from tests.chaos.world import settle

_FEWEST, _MOST = 15, 30
# Restarting after one of these takes longer than the rest of a sweep. The numbers are their
# maxima in one sweep; in all they happen half as often as others.
_COSTLY: Mapping[str, int] = {"head": 1, "driver": 2, "stop": 1, "tracking": 1}
_MOST_ALIKE = 6


@dataclass
class Campaign:
    """Sweeps, and what came of each.

    Attributes:
        options: What was asked for.
        lab: Where.
        draw: Source of every choice.
        pool: Faults that are yet to happen.
        verdicts: Of every sweep, with the faults that it saw.
    """

    options: Options
    lab: Lab
    draw: random.Random
    pool: list[str] = field(default_factory=list)
    verdicts: list[tuple[Sequence[str], Verdict]] = field(default_factory=list)

    def run(self) -> None:
        """Leave one sweep alone, then disturb others until the pool is empty."""
        self.pool = _pool(self.options, self.draw, self.lab.clocks)
        reference = self._reference()
        while self.pool:
            episode = self._episode(self._handful())
            episode.run()
            self.pool += list((Counter(episode.wanted) - Counter(episode.done)).elements())
            verdict = judge(episode, reference)
            self.lab.bury()
            self.verdicts.append((episode.done, verdict))
            self._tell(episode, verdict)

    def rows(self) -> list[Row]:
        """The table: what each kind of fault did."""
        return [_row(kind, self.verdicts) for kind in FAULTS if self._has_happened(kind)]

    def _has_happened(self, kind: str) -> bool:
        return any(kind in kinds for kinds, _ in self.verdicts)

    def _reference(self) -> Reference:
        episode = self._episode(())
        episode.run()
        reference = Reference.of(episode.storage, episode.name)
        self._tell(episode, judge(episode, reference))
        return reference

    def _episode(self, kinds: Sequence[str]) -> Episode:
        name = f"s{len(self.verdicts) + bool(kinds)}"
        return Episode(self.lab, name, kinds, self.draw, _log)

    def _handful(self) -> list[str]:
        """Faults for the next sweep, taken from the pool."""
        size = self.draw.randint(_FEWEST, _MOST)
        chosen: list[str] = []
        for kind in list(self.pool):
            if len(chosen) < size and chosen.count(kind) < _COSTLY.get(kind, _MOST_ALIKE):
                chosen.append(kind)
                self.pool.remove(kind)
        self.draw.shuffle(chosen)
        return chosen

    def _tell(self, episode: Episode, verdict: Verdict) -> None:
        wrong = "nothing wrong" if verdict.clean else repr(verdict)
        _log(f"{episode.name}: {verdict.trainings} trainings, {wrong}; {len(self.pool)} to come")
        if not verdict.clean:
            _log(episode.driver_log.read_text(errors="replace")[-6000:])


def main() -> int:
    """Run what the command line asks for; 1 if anything was wrong."""
    options = parse_options(sys.argv[1:])
    lab = Lab(settle())
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
        other=sum(len(verdict.others) for verdict in seen),
    )


def _log(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
