"""What a report is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pandas as pd

from privnets.points import TradeoffPoint
from sweeps.pareto import Objectives
from sweeps.spec import Study


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
    def tradeoff_points(self) -> Sequence[TradeoffPoint]:
        """The points with their notes and curves."""

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
    """A report's source put together by hand; see `ReportSource`."""

    sweep: str
    study: Study
    objectives: Objectives
    points: pd.DataFrame
    replicates: pd.DataFrame
    tradeoff_points: Sequence[TradeoffPoint]
    log_fields: frozenset[str]
    spec: Mapping[str, Any]
    pending: int
    failures: Mapping[str, str]
    unreadable: Mapping[str, str] = field(default_factory=dict)
