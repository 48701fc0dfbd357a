"""Input of a report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import pandas as pd

from privnets.points import TradeoffPoint
from sweeps.analysis.pareto import Objectives
from sweeps.store.columns import Note
from sweeps.study.spec import Study


class ReportSource(Protocol):
    """Input of a report; `Result` implements it."""

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
        """Reasons of undefined metrics and raised flags."""

    @property
    def files(self) -> Collection[str]:
        """Names of the files that finished points stored."""

    def select_points(self, point_ids: Collection[str]) -> Mapping[str, TradeoffPoint]:
        """The points with the given ids, with curves and files."""

    @property
    def log_fields(self) -> frozenset[str]:
        """Swept fields on a logarithmic scale."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """Content of `spec.yaml`."""

    @property
    def pending(self) -> int:
        """Number of unfinished points."""

    @property
    def failures(self) -> Mapping[str, str]:
        """Failed pack to its reason."""

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Damaged file of the ledger to the reason that it was skipped."""
