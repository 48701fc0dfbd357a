"""Mirrors a ledger to MLflow."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter

from privnets.points import TradeoffPoint
from sweeps.analysis.pareto import hypervolume_history, worst_values
from sweeps.analysis.results import Result, read_result
from sweeps.publishing.process import PublishOutcome
from sweeps.report.summary import copy_summary_files
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import Manifest
from sweeps.store.reader import PointReader
from tracking.errors import RejectedRecordError, TrackingError

if TYPE_CHECKING:
    from tracking.recorder import Status

_REFERENCE = "hypervolume_reference"
_NUMBERS = TypeAdapter(dict[str, Annotated[float, Field(allow_inf_nan=False)]])
_BATCH = 32
_ROUNDS = 3


class Publisher:
    """Publishes a sweep's points as they become complete.

    Attributes:
        error: Why the last attempt failed; None if it went through.
    """

    def __init__(self, ledger: Ledger, manifest: Manifest, tracking_uri: str) -> None:
        """Begin at the beginning of the ledger; what MLflow holds already is passed over."""
        from tracking import Recorder

        self.error: str | None = None
        self._ledger = ledger
        self._manifest = manifest
        self._uri = tracking_uri
        self._recorder = Recorder(
            manifest.sweep,
            study=manifest.study.name,
            tracking_uri=tracking_uri,
            log_scaled=frozenset(manifest.plan.log_fields),
            name_fields=tuple(manifest.study.space),
            keys=manifest.plan.metrics,
        )
        self._reader = PointReader(ledger, manifest.plan.seeds)
        self._waiting: deque[TradeoffPoint] = deque()
        self._aside: dict[str, str] = {}
        self._at_once = _BATCH
        self._published = 0
        self._announced = False

    def announce(self) -> bool:
        """Say in MLflow, once, that the sweep runs (again).

        Returns:
            Whether it went through.
        """
        if not self._announced:
            self._announced = self._record_sweep(status="RUNNING")
        return self._announced

    def close(self) -> None:
        """End without publishing the rest: say that the sweep ended early."""
        if self.error is None and (self._announced or self._published):
            self._record_sweep(status="KILLED")

    def publish(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Publish what is complete by now.

        Args:
            stopped: Asked between batches; true ends the work early.

        Returns:
            Whether nothing is left.
        """
        self.error = None
        while not stopped():
            if not self._more():
                return self.error is None
            if not self._publish_batch():
                return False
        return False

    def publish_whole(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Publish what is complete by now, and make sure that MLflow holds it.

        Args:
            stopped: Asked between batches; true ends the work early.

        Returns:
            Whether it does.
        """
        for _ in range(_ROUNDS):
            if not self.publish(stopped):
                return False
            try:
                lacking = self._recorder.confirm()
            except TrackingError as error:
                self.error = str(error)
                return False
            if not lacking:
                return True
            self._start_over()
        self.error = "points disappear from MLflow while they are published"
        return False

    def _more(self) -> bool:
        """Whether there is something to publish."""
        if not self._waiting:
            self._read(min_points=_BATCH)
        return bool(self._waiting)

    def _read(self, min_points: int | None = None) -> None:
        try:
            self._waiting.extend(self._reader.read_new(min_points))
        except OSError as error:
            self.error = self.error or f"the ledger cannot be read: {error}"

    def _publish_batch(self) -> bool:
        batch = list(islice(self._waiting, self._at_once))
        try:
            self._recorder.record(batch)
        except (RejectedRecordError, OSError, ValueError, OverflowError) as error:
            self._narrow(batch, error)
            return True
        except TrackingError as error:
            self.error = str(error)
            return False
        for _ in batch:
            self._waiting.popleft()
        self._published += len(batch)
        return True

    def _narrow(self, batch: list[TradeoffPoint], error: Exception) -> None:
        """Find the point that cannot be recorded and set it aside, so that the others can be."""
        if len(batch) > 1:
            self._at_once = 1
        else:
            self._aside[self._waiting.popleft().point_id] = str(error)
            self._at_once = _BATCH

    def _start_over(self) -> None:
        self._reader = PointReader(self._ledger, self._manifest.plan.seeds)
        self._published = 0
        self._aside.clear()

    def publish_summary(self, *, ended: bool = False) -> bool:
        """Bring the sweep's parent run up to date with its tables, figures and report.

        Args:
            ended: Whether nobody trains the sweep any more; if so, and it lacks points, it
                has failed.

        Returns:
            Whether it went through.
        """
        try:
            result = read_result(self._ledger, "")
            reference = self._reference(result)
            with TemporaryDirectory(prefix="sweeps-publisher-") as folder:
                return self._record_sweep(
                    files=copy_summary_files(self._ledger, Path(folder)),
                    hypervolume=hypervolume_history(result.points, result.objectives, reference),
                    tags={_REFERENCE: json.dumps(reference)} if reference else {},
                    status=_status(result, ended=ended),
                )
        except (TrackingError, OSError, ValueError) as error:
            self.error = str(error)
            return False

    def _reference(self, result: Result) -> dict[str, float]:
        """The hypervolume's reference: as first published, for all steps to compare."""
        import tracking

        manifest = self._manifest
        tags = tracking.sweep_tags(manifest.sweep, self._uri, manifest.study.name)
        return _parsed(tags.get(_REFERENCE, ""), result.objectives) or worst_values(
            result.points, result.objectives
        )

    def _record_sweep(self, **said: Any) -> bool:
        import tracking

        try:
            tracking.record_sweep(
                self._manifest.sweep,
                study=self._manifest.study.name,
                tracking_uri=self._uri,
                params=_params(self._manifest),
                **said,
            )
        except (TrackingError, OSError, ValueError) as error:
            self.error = str(error)
            return False
        return True

    def outcome(self) -> PublishOutcome:
        """How it went so far; what is complete by now counts."""
        self._read()
        error = self.error
        if self._aside:
            point_id, reason = next(iter(self._aside.items()))
            words = f"{len(self._aside)} points cannot be recorded; {point_id}: {reason}"
            error = f"{error}; {words}" if error else words
        left = len(self._waiting) + len(self._aside)
        return PublishOutcome(self._published, left, error, None if error else self._page())

    def _page(self) -> str | None:
        """Where a server shows the study's runs; None if there is no server, or it does not say."""
        if not self._uri.startswith(("http://", "https://")):
            return None
        from tracking.runs import study_page

        try:
            return study_page(self._uri, self._manifest.study.name)
        except TrackingError:  # points matter, this does not
            return None


def publish_all(ledger: Ledger, manifest: Manifest, tracking_uri: str) -> PublishOutcome:
    """Publish everything that MLflow lacks, trying once."""
    publisher = Publisher(ledger, manifest, tracking_uri)
    if publisher.publish_whole():
        publisher.publish_summary()
    return publisher.outcome()


def _status(result: Result, *, ended: bool) -> Status | None:
    """How a sweep stands; None where that is for whoever trains it to say."""
    if not result.pending:
        return "FINISHED"
    return "FAILED" if ended else None


def _parsed(text: str, objectives: Mapping[str, str]) -> dict[str, float] | None:
    """A reference as it was written down; None for anything else."""
    try:
        found = _NUMBERS.validate_json(text)
    except ValueError:
        return None
    return found if found.keys() == objectives.keys() else None


def _params(manifest: Manifest) -> dict[str, str]:
    objectives = (f"{direction} {metric}" for metric, direction in manifest.plan.objectives.items())
    return {
        "study": manifest.study.name,
        "experiment": manifest.study.experiment,
        "points": str(manifest.plan.points),
        "replicates": str(len(manifest.plan.seeds)),
        "objectives": ", ".join(objectives),
        "command": manifest.command,
    }
