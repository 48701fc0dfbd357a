"""What a report is made from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pandas as pd

from privnets.points import TradeoffPoint
from sweeps.analysis.pareto import Objectives
from sweeps.store.columns import Note
from sweeps.study.spec import Study
from tracking.frame import points_frame, replicates_frame


class ReportSource(Protocol):
    """What a report is made from; a `Result` is one."""

    @property
    def sweep(self) -> str:
        """The sweep's name."""

    @property
    def study(self) -> Study:
        """Its study."""

    @property
    def objectives(self) -> Objectives:
        """Metric to `min` or `max`."""

    @property
    def points(self) -> pd.DataFrame:
        """One row per complete point."""

    @property
    def replicates(self) -> pd.DataFrame:
        """One row per point and replicate."""

    @property
    def notes(self) -> Sequence[Note]:
        """What is said of points' undefined metrics and flags."""

    @property
    def files(self) -> Collection[str]:
        """Names of the files that some finished point came with."""

    def select_points(self, point_ids: Collection[str]) -> Mapping[str, TradeoffPoint]:
        """These points with their curves and files, by id; for a few of them."""

    @property
    def log_fields(self) -> frozenset[str]:
        """Swept fields on a logarithmic scale."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """What `spec.yaml` holds."""

    @property
    def pending(self) -> int:
        """How many points are not finished."""

    @property
    def failures(self) -> Mapping[str, str]:
        """Pack to why it came to nothing."""

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Damaged files of the ledger, each with the reason it was passed over."""


@dataclass(frozen=True)
class ReportInput:
    """A report's source made of points; see `ReportSource`."""

    study: Study
    tradeoff_points: Sequence[TradeoffPoint]
    sweep: str
    objectives: Objectives
    log_fields: frozenset[str] = frozenset()
    spec: Mapping[str, Any] = field(default_factory=dict)
    pending: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def points(self) -> pd.DataFrame:
        """See `tracking.points_frame`."""
        return points_frame(self.tradeoff_points, self.sweep)

    @property
    def replicates(self) -> pd.DataFrame:
        """See `tracking.replicates_frame`."""
        return replicates_frame(self.tradeoff_points, self.sweep)

    @property
    def notes(self) -> Sequence[Note]:
        """The points' own."""
        return [Note(p.point_id, *note) for p in self.tradeoff_points for note in p.notes.items()]

    @property
    def files(self) -> Collection[str]:
        """The finished points' own."""
        return {n for p in self.tradeoff_points if p.status == "finished" for n in p.artifacts}

    def select_points(self, point_ids: Collection[str]) -> Mapping[str, TradeoffPoint]:
        """Those of the points."""
        return {p.point_id: p for p in self.tradeoff_points if p.point_id in point_ids}
