"""Copies a ledger to MLflow, each point once."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, Protocol

from pydantic import Field, TypeAdapter

import privnets
import tracking
from privnets.config import nest
from privnets.credentials import redact, strip_credentials
from privnets.data import DataError
from privnets.frames import SUFFIXES
from privnets.points import TradeoffPoint
from privnets.registry import is_own_experiment
from sweeps.analysis.pareto import hypervolume_history, states_problem, worst_values
from sweeps.analysis.results import CONFIRMING, PHASE, SEARCHING, Result
from sweeps.analysis.text import format_count
from sweeps.report.figures import FRONT_PICTURE
from sweeps.report.headline import headline
from sweeps.report.summary import copy_summary_files
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import PAGE_FILE, Manifest
from sweeps.store.reader import PointReader
from sweeps.store.status import Outage, read_status
from sweeps.store.transfer import ARCHIVE_FILE, pack_sweep
from tracking.errors import RejectedRecordError, TrackingError
from tracking.sweep_run import ParentRun, Status, SweepUpdate
from tracking.uris import is_server

FINISH: Final = "finish"
"""Order to publish everything that is left."""

PAUSE: Final = "pause"
"""As `FINISH`, for a sweep that ended early."""

STOP: Final = "stop"
"""Order to end after the points being sent."""

_UI_ADDRESS: Final = "http://127.0.0.1:5000"  # of `sweeps ui`
_REFERENCE_TAG: Final = "hypervolume_reference"
_REFERENCE: Final = TypeAdapter(dict[str, Annotated[float, Field(allow_inf_nan=False)]])
_BATCH_POINTS: Final = 32
_HEADLINES: Final = 40
_SINGLE_ATTACKS: Final = ("privacy/attack/", "privacy/attacker/")
_MAIN_OF_ATTACKS: Final = ("/advantage", "/balanced_accuracy")
_MAX_ROUNDS: Final = 3
_POLL_SECONDS: Final = 2.0
_MAX_POLL_SECONDS: Final = 30.0
_FINISH_SECONDS: Final = 10.0
_LIVE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class PublishOutcome:
    """Outcome of publishing.

    Attributes:
        points: Number of points that MLflow is known to hold.
        left: Number of complete points that it is not known to hold; 0 if `error` kept the
            publisher from counting them.
        error: Why publishing failed; None if it did not.
        page: Path of the page with the sweep's runs on a server; None without a server.
    """

    points: int
    left: int
    error: str | None
    page: str | None = None

    @property
    def whole(self) -> bool:
        """Whether MLflow holds everything that is in the ledger."""
        return self.left == 0 and self.error is None


class PointStore(Protocol):
    """Store of a sweep's points, as the publisher uses it; see `tracking.Recorder`."""

    def record(self, points: Iterable[TradeoffPoint]) -> int:
        """Records a batch of points; of those that it holds it records nothing."""

    def confirm(self) -> set[str]:
        """Returns the ids of recorded points that are missing now."""

    def update_sweep(self, update: SweepUpdate) -> ParentRun:
        """Updates what the store holds of the sweep itself."""


class Publisher:
    """Publishes the points of a sweep as they become complete.

    Attributes:
        error: Why the last attempt failed; None if it did not.
    """

    def __init__(self, ledger: Ledger, manifest: Manifest, tracking_uri: str) -> None:
        """Starts at the beginning of the ledger; points that MLflow holds already are skipped."""
        self.error: str | None = None
        self._ledger = ledger
        self._manifest = manifest
        self._uri = tracking_uri
        self._started = manifest.created_at.timestamp()
        plan = manifest.plan

        def labels(point: TradeoffPoint) -> dict[str, str]:
            """Tags of a point's run: whether an adaptive search found or confirmed it."""
            is_confirmed = point.replicates[0].seed in plan.confirming_seeds
            phase = CONFIRMING if is_confirmed else SEARCHING
            return {PHASE: phase} if plan.is_adaptive else {}

        self._store: PointStore = tracking.Recorder(
            manifest.sweep,
            study=manifest.study.name,
            tracking_uri=tracking_uri,
            log_scaled=frozenset(plan.log_fields),
            name_fields=tuple(manifest.study.space),
            labels=labels,
            unused=unused_fields,
            headline=headline_metrics(manifest),
            objectives=_objective_metrics(manifest),
            started=self._started,
        )
        self._parent: ParentRun | None = None
        self._is_announced = self._has_page = False
        self._live_at = -_LIVE_SECONDS
        self._last_heartbeat: datetime | None = None
        self._restart()

    def announce(self) -> bool:
        """Records in MLflow, once, that the sweep runs (again); returns whether it succeeded."""
        if not self._is_announced:
            self._is_announced = self._update_sweep(status="RUNNING")
        if self._is_announced:
            self._write_page()
        return self._is_announced

    def close(self) -> None:
        """Records that the sweep ended early, without publishing the rest."""
        if self.error is None and (self._is_announced or self._sent):
            self._update_sweep(status="KILLED")

    def publish(
        self,
        should_stop: Callable[[], bool] = lambda: False,
        on_batch: Callable[[int], object] = lambda sent: None,
    ) -> bool:
        """Publishes the points that are complete by now; returns whether nothing is left.

        After each batch `on_batch` is called with the number of points sent so far.
        """
        self.error = None
        while not should_stop():
            if not self._waiting:
                self._read(min_points=_BATCH_POINTS)
            batch = self._waiting[:_BATCH_POINTS]
            if not batch:
                return self.error is None
            if not self._record(batch, should_stop):
                return False
            del self._waiting[: len(batch)]
            self._sent += len(batch)
            on_batch(self._sent)
        return False

    def publish_live(self) -> None:
        """Publishes the progress and live values of the last heartbeat, at most every ten seconds.

        A failure loses these values alone.
        """
        now = time.monotonic()
        if now - self._live_at < _LIVE_SECONDS:
            return
        self._live_at = now
        beat = read_status(self._ledger.directory)
        if beat is None or beat.phase != "training" or beat.updated_at == self._last_heartbeat:
            return
        self._last_heartbeat = beat.updated_at
        values = {"share": beat.share, **beat.live}
        if beat.trainings is not None:
            values["trainings"] = float(beat.trainings[0])
        now, step = time.time(), round(beat.updated_at.timestamp() - self._started)
        live = [(f"live/{key}", value, now, step) for key, value in values.items()]
        with suppress(TrackingError):
            self._store.update_sweep(SweepUpdate(values=live))

    def publish_and_confirm(
        self,
        should_stop: Callable[[], bool] = lambda: False,
        on_batch: Callable[[int], object] = lambda sent: None,
    ) -> bool:
        """Publishes until MLflow confirms it; returns whether it holds what is complete by now."""
        for _ in range(_MAX_ROUNDS):
            if not self.publish(should_stop, on_batch):
                return False
            try:
                missing = self._store.confirm()
            except TrackingError as error:
                self.error = str(error)
                return False
            if not missing:
                if self._parent is None and not self._update_sweep():
                    return False
                self._write_page()
                return True
            self._restart()
        self.error = "points disappear from MLflow while they are published"
        return False

    def publish_summary(self, *, is_final: bool = False) -> bool:
        """Updates the tables, figures and report of the sweep's run; returns whether it succeeded.

        Once training has ended (`is_final`), a sweep that lacks points has failed.
        """
        try:
            result = Result.read(self._ledger)
            # None leaves the status of the sweep's run unchanged.
            status: Status | None = "FAILED" if is_final else None
            reference = self._reference(result)
            history = []
            if not any(map(states_problem, result.study.space)):
                history = hypervolume_history(result.points, result.objectives, reference)
            times = result.points["finished_at"]
            with TemporaryDirectory(prefix="sweeps-publisher-") as folder:
                with Path(folder, ARCHIVE_FILE).open("wb") as file:
                    pack_sweep(self._ledger, file)
                files = copy_summary_files(self._ledger, Path(folder))
                return self._update_sweep(
                    files=Path(folder),
                    values=[("hypervolume", value, when, step) for step, value, when in history],
                    tags={_REFERENCE_TAG: json.dumps(reference)} if reference else {},
                    headline="" if result.points.empty else headline(result),
                    picture=FRONT_PICTURE if FRONT_PICTURE in files else "",
                    status=status if result.pending else "FINISHED",
                    ended=None if times.empty else times.max().timestamp(),
                )
        except (TrackingError, OSError, ValueError) as error:
            self.error = str(error)
            return False

    def outcome(self) -> PublishOutcome:
        """Outcome so far; points that became complete meanwhile count as left."""
        self._read()
        left = len(self._waiting) + len(self._rejected)
        error = self.error
        if self._rejected:
            point_id, reason = next(iter(self._rejected.items()))
            count = format_count(len(self._rejected), "point")
            text = f"{count} cannot be recorded; {point_id}: {reason}"
            error = f"{error}; {text}" if error else text
        is_shown = is_server(self._uri) and not error
        page = self._parent.page if self._parent and is_shown else None
        return PublishOutcome(self._sent - len(self._rejected), left, error, page)

    def _restart(self) -> None:
        self._reader = PointReader(self._ledger, self._manifest.plan.seed_rule)
        self._waiting: list[TradeoffPoint] = []
        self._rejected: dict[str, str] = {}
        self._sent = 0

    def _read(self, min_points: int | None = None) -> None:
        try:
            self._waiting += self._reader.read_new(min_points)
        except OSError as error:
            storage = redact(self._ledger.storage)
            self.error = self.error or f"storage {storage} cannot be read: {error}"

    def _record(self, batch: list[TradeoffPoint], should_stop: Callable[[], bool]) -> bool:
        """Records points except those that cannot be recorded; returns whether all were tried."""
        try:
            self._store.record(batch)
            for point in batch:
                self._rejected.pop(point.point_id, None)  # by an earlier, failed attempt
        except (RejectedRecordError, OSError, ValueError, OverflowError) as error:
            if len(batch) > 1:
                return all(not should_stop() and self._record([p], should_stop) for p in batch)
            self._rejected[batch[0].point_id] = str(error)
        except TrackingError as error:
            self.error = str(error)
            return False
        return True

    def _reference(self, result: Result) -> dict[str, float]:
        """Reference of the hypervolume: the first published one, so that all steps compare."""
        parent = self._parent or self._store.update_sweep(SweepUpdate())
        with suppress(ValueError):  # none was published
            reference = _REFERENCE.validate_json(parent.tags.get(_REFERENCE_TAG, ""))
            if reference.keys() == result.objectives.keys():
                return reference
        return worst_values(result.points, result.objectives)

    def _update_sweep(self, **changes: Any) -> bool:
        plan, study = self._manifest.plan, self._manifest.study
        objectives = (f"{direction} {metric}" for metric, direction in plan.objectives.items())
        params = {
            "study": study.name,
            "experiment": study.experiment,
            "objectives": ", ".join(objectives),
            "command": self._manifest.command,
        }
        # An extension changes these, and parameters of a run cannot change.
        sizes = {"points": str(plan.points), "replicates": str(study.replicates)}
        tags = sizes | changes.pop("tags", {})
        try:
            self._parent = self._store.update_sweep(
                SweepUpdate(params=params, tags=tags, data=self._manifest.data, **changes)
            )
        except (TrackingError, OSError, ValueError) as error:
            self.error = str(error)
            return False
        return True

    def _write_page(self) -> None:
        """Keeps the address of the sweep's runs in its folder, for the links of its report.

        Points reach MLflow without it, so a failure is ignored, and the next call tries again.
        """
        if self._has_page or self._parent is None:
            return
        server = strip_credentials(self._uri).rstrip("/") if is_server(self._uri) else _UI_ADDRESS
        with suppress(OSError):
            self._ledger.directory.write(PAGE_FILE, f"{server}/{self._parent.page}\n".encode())
            self._has_page = True


def publish_all(
    ledger: Ledger,
    manifest: Manifest,
    tracking_uri: str,
    write_summary: Callable[[], object] = lambda: None,
    on_batch: Callable[[int], object] = lambda sent: None,
) -> PublishOutcome:
    """Publishes everything that MLflow lacks, in one attempt.

    Args:
        write_summary: Called before the summary's files are published; it can link to the runs.
        on_batch: See `Publisher.publish`.
    """
    publisher = Publisher(ledger, manifest, tracking_uri)
    if publisher.publish_and_confirm(on_batch=on_batch):
        write_summary()
        publisher.publish_summary()
    return publisher.outcome()


def publish_until_ordered(
    publisher: Publisher,
    orders: queue.Queue[str],
    report: Callable[[Outage | int | None], object] = lambda news: None,
) -> None:
    """Publishes points as they become complete, until there is an order.

    While the tracking server is away, attempts become rarer; the sweep does not notice.

    Args:
        publisher: Publisher of the sweep.
        orders: `FINISH`, `PAUSE` or `STOP`; the first one ends the publishing.
        report: Called with the number of points sent, after each batch; with an outage after each
            attempt that fails; and with None at its end.
    """

    def has_order() -> bool:
        return not orders.empty()

    failed_at: float | None = None
    batches = count()

    def should_pause() -> bool:
        """After an outage, the first batch shows that it is over."""
        return has_order() or (failed_at is not None and next(batches) > 0)

    wait_seconds = 0.0
    while (order := _next_order(orders, wait_seconds)) is None:
        if publisher.announce():
            publisher.publish_live()
            batches = count()
            publisher.publish(should_pause, report)
        if publisher.error:
            failed_at = failed_at or time.time()
            report(Outage(failed_at, publisher.error, publisher.outcome().left))
        elif failed_at is not None:
            failed_at = None
            report(None)
        wait_seconds = (
            min(max(wait_seconds, _POLL_SECONDS) * 2, _MAX_POLL_SECONDS)
            if publisher.error
            else _POLL_SECONDS
        )
    is_published = False
    deadline = time.monotonic() + _FINISH_SECONDS
    while order in (FINISH, PAUSE) and not is_published:
        # The rest and the summary; again while the server is away for a moment.
        is_published = publisher.publish_and_confirm(has_order, report) and (
            publisher.publish_summary(is_final=order == FINISH)
        )
        is_late = time.monotonic() > deadline
        if not is_published and (is_late or _next_order(orders, _POLL_SECONDS) is not None):
            break
    if is_published and failed_at is not None:
        report(None)
    if order != FINISH or not is_published:
        publisher.close()


def headline_metrics(manifest: Manifest) -> list[str]:
    """Metrics that MLflow's pages show, at most 40: first objectives, with their intervals.

    Then those that the study names, the main one of each attack, and those of no single attack.
    """
    declared = manifest.plan.metrics
    named = [*manifest.study.constraints, *(claim.metric for claim in manifest.study.claims)]
    shared = [key for key in declared if not key.startswith(_SINGLE_ATTACKS)]
    single = [key for key in declared if key.endswith(_MAIN_OF_ATTACKS)]
    chosen = dict.fromkeys([*_objective_metrics(manifest), *named, *single, *shared])
    return list(chosen)[:_HEADLINES]


def _objective_metrics(manifest: Manifest) -> list[str]:
    """Objectives with their deviations and intervals."""
    return [f"{metric}{end}" for metric in manifest.plan.objectives for end in ("", *SUFFIXES)]


def unused_fields(point: TradeoffPoint) -> frozenset[str]:
    """Configuration fields without effect at a point; none where users' code would have to run."""
    if not is_own_experiment(point.experiment):
        # A long list was recorded as its digest; a package or a file may be absent here.
        with suppress(ValueError, ImportError, DataError):
            experiment = privnets.experiment(point.experiment)
            return experiment.unused_fields(experiment.Config(**nest(point.config)))
    return frozenset()


def _next_order(orders: queue.Queue[str], wait_seconds: float) -> str | None:
    try:
        return orders.get(timeout=wait_seconds)
    except queue.Empty:
        return None
