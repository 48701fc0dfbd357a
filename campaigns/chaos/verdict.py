"""Comparison of a sweep with faults with an undisturbed one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

import tracking
from campaigns.chaos.episode import Episode
from campaigns.chaos.evidence import Member
from campaigns.chaos.lab import is_true_within
from sweeps.analysis.results import Result, open_result

_CRASH_MESSAGES = ("Traceback (most recent call last)", "Fatal Python error", "*** SIG")
_GONE_SECONDS = 40.0

Numbers = Mapping[Member, Mapping[str, float]]


@dataclass(frozen=True)
class Reference:
    """Results of a sweep without faults.

    Attributes:
        numbers: Metrics of every point and seed.
        front: Pareto front without times.
    """

    numbers: Numbers
    front: pd.DataFrame

    @classmethod
    def of(cls, storage: Path, sweep: str) -> Reference:
        """Reads the results of a sweep."""
        result = open_result(sweep, str(storage))
        return cls(_numbers(result), _front(result))


@dataclass(frozen=True)
class Verdict:
    """Defects of a sweep; all zero for a correct one.

    Attributes:
        lost: Points and seeds missing from the ledger.
        doubled: Duplicate rows in the ledger and duplicate runs in MLflow.
        retrained: Trainings of finished replicates, and files of the ledger that changed.
        other_problems: Descriptions of other defects.
        trainings: Trainings that started.
    """

    lost: int
    doubled: int
    retrained: int
    other_problems: Sequence[str] = field(default_factory=tuple)
    trainings: int = 0

    @property
    def clean(self) -> bool:
        """Whether the sweep has no defect."""
        return not (self.lost or self.doubled or self.retrained or self.other_problems)


def judge(episode: Episode, reference: Reference) -> Verdict:
    """Compares the ledger, MLflow and leftovers of a sweep with the reference."""
    result = open_result(episode.name, str(episode.storage))
    rows = episode.evidence.rows()
    differences = tracking.compare(
        result.tradeoff_points, episode.name, episode.lab.tracking.uri, result.study.name
    )
    other_problems = [*episode.driver_problems, *_other_problems(episode, result, reference)]
    other_problems += [line for line in differences if "duplicated" not in line]
    return Verdict(
        lost=len(reference.numbers.keys() - rows.keys()),
        doubled=rows.total() - len(rows) + sum("duplicated" in line for line in differences),
        retrained=len(episode.evidence.retrained_members()) + len(episode.evidence.changed_packs),
        other_problems=other_problems,
        trainings=episode.evidence.trainings(),
    )


def _other_problems(episode: Episode, result: Result, reference: Reference) -> list[str]:
    found = []
    if result.pending or result.unreadable or result.counts["failed"]:
        found.append(f"{result.pending} pending, unreadable {dict(result.unreadable)}")
    if _numbers(result) != reference.numbers:
        found.append("numbers differ")
    if not _front(result).equals(reference.front):
        found.append("the front differs")
    found += [f"left in the sweep: {name}" for name in episode.evidence.leftovers()]
    found += _processes_left(episode)
    found += [f"left in TMPDIR: {name}" for name in os.listdir(episode.lab.temporary)]
    said = episode.driver_log.read_text(errors="replace")
    return found + [f"the output contains {trace!r}" for trace in _CRASH_MESSAGES if trace in said]


def _processes_left(episode: Episode) -> list[str]:
    lab = episode.lab
    is_true_within(_GONE_SECONDS, lambda: not lab.unowned_processes() and not lab.workers())
    left = [f"still runs: {line}" for line in lab.unowned_processes()]
    return left + [f"still trains: {process.pid}" for process in lab.workers()]


def _numbers(result: Result) -> Numbers:
    points = result.tradeoff_points
    return {(p.point_id, r.seed): dict(r.metrics) for p in points for r in p.replicates}


def _front(result: Result) -> pd.DataFrame:
    front = result.front(all=True).drop(columns=["sweep", "finished_at"])
    return front.sort_values("point_id").reset_index(drop=True)
