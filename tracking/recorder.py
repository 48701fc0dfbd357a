"""Recording of points in MLflow. Repeated and concurrent calls add nothing."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag
from mlflow.exceptions import MlflowException

from privnets.frames import SUFFIXES
from privnets.points import TradeoffPoint, merge_replicates
from tracking import batches, runs
from tracking.client import connect, translate_errors
from tracking.database import sqlite
from tracking.errors import TrackingError
from tracking.run_record import (
    TEXT_TAGS,
    RunRecord,
    build_run_record,
    milliseconds,
)
from tracking.store import create
from tracking.uris import parallel_calls, resolve_uri, sqlite_path

_MAX_ROUNDS = 5


def record(
    points: Iterable[TradeoffPoint],
    *,
    sweep: str,
    study: str | None = None,
    tracking_uri: str | None = None,
    log_scaled: frozenset[str] = frozenset(),
    name_fields: Sequence[str] = (),
    keys: Collection[str] = (),
) -> int:
    """Records points as child runs of their sweep's parent run.

    Idempotent. A run is identified by its point id, and its values have the timestamps of the
    point. Its status is set last: only FINISHED, KILLED (stopped early) and FAILED runs count as
    recorded. So the next call completes what a killed call began, and a repeated call adds
    nothing. A run whose point has later replicates is updated, and MLflow shows the latest values.
    A run whose point has other values, but no later ones, is replaced. When two processes record
    the same point at once, the run created first stays; if their values differ, the point that
    finished last stays.

    Args:
        points: Points with all their replicates.
        sweep: Name of the sweep.
        study: Name of the experiment; by default the one that holds the sweep, or else `sweep`.
        tracking_uri: See `resolve_uri`.
        log_scaled: Configuration fields that get a `log10_<field>` parameter (`LOG10_OF_ZERO` for
            zero, `LOG10_OF_INFINITY` for infinity).
        name_fields: Configuration fields that form the run's name, as in `train_size=100`; by
            default the point id.
        keys: Metrics that every run must have, NaN where its point lacks them. Their `.std`,
            `.ci_low` and `.ci_high` are included. Metrics of the given points always count.

    Returns:
        Number of points that were new or completed.

    Raises:
        TrackingError: If the store fails or does not respond; a later call continues.
        ValueError: If a `log_scaled` field is negative, or a configuration is too long for a tag.
        OSError: If an artifact of a point cannot be read.
    """
    recorder = Recorder(
        sweep,
        study=study,
        tracking_uri=tracking_uri,
        log_scaled=log_scaled,
        name_fields=name_fields,
        keys=keys,
    )
    return recorder.record_until_settled(points)


class _Target(NamedTuple):
    client: MlflowClient
    parent: runs.ParentRun
    write_batch: batches.Writer | None


@dataclass
class Recorder:
    """Records the points of one sweep in batches, like `record` but with fewer reads.

    Its fields are the arguments of `record`; `labels`, which returns more tags for a point;
    `objectives`, metrics of which a run has a second copy that leads MLflow's sorted lists; `draw`,
    which returns more files for a point; and `started`, Unix seconds at which the sweep began.
    `headline` names the metrics to log, each once a point defines it; then runs that were recorded
    before get it as NaN. Others go to hidden tags and a table. None logs all metrics.

    It reads MLflow's runs before the first batch, after a failed call, and in `confirm`. Between
    these it relies on its own writes. Runs that another process adds meanwhile under the same sweep
    are resolved at the next read.
    """

    sweep: str
    study: str | None = None
    tracking_uri: str | None = field(default=None, repr=False)  # may hold a password
    log_scaled: frozenset[str] = frozenset()
    name_fields: Sequence[str] = ()
    keys: Collection[str] = ()
    labels: Callable[[TradeoffPoint], Mapping[str, str]] = lambda point: {}
    objectives: Sequence[str] = ()
    draw: Callable[[TradeoffPoint], Mapping[str, bytes]] = lambda point: {}
    started: float | None = None
    headline: Collection[str] | None = None
    _target: _Target | None = field(default=None, init=False)
    _children: dict[str, runs.ChildRun] = field(default_factory=dict, init=False)
    _contents: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Resolves the URI; reads and writes nothing yet.

        Raises:
            TrackingError: If the URI names neither a server nor a database.
        """
        self._uri = resolve_uri(self.tracking_uri)
        # Failed points have no metrics; NaN keeps the keys of all runs equal.
        self._declared = {f"{key}{suffix}" for key in self.keys for suffix in ("", *SUFFIXES)}
        self._columns = set[str]() if self.headline is not None else self._declared

    def record(self, points: Iterable[TradeoffPoint]) -> int:
        """Records a batch of points with all their replicates.

        Returns:
            Number of points that were new or completed.

        Raises:
            RejectedRecordError: If the store rejects a point of the batch as invalid.
            TrackingError: If the store fails or does not respond; a later call continues.
            ValueError: See `record`; nothing was written.
            OSError: See `record`; nothing was written.
        """
        records = self._build(points)
        return self._write(records, self._target or self._read()) if records else 0

    def record_live(self, values: Mapping[str, float], step: int) -> None:
        """Adds values of a running sweep to its parent run, in one call.

        Args:
            values: Key to value; the run has them as `live/<key>`.
            step: Seconds since the sweep began.

        Raises:
            TrackingError: If the store fails or does not respond.
        """
        target = self._target or self._read()
        now = milliseconds(time.time())
        metrics = [Metric(f"live/{key}", value, now, step) for key, value in values.items()]
        with translate_errors(self._uri):
            target.client.log_batch(target.parent.run_id, metrics)

    def confirm(self) -> set[str]:
        """Reads MLflow's runs again, and resolves those that other processes recorded.

        Returns:
            Ids of points that were recorded here and are missing now.

        Raises:
            TrackingError: If the store fails or does not respond.
        """
        self._read()
        complete = {child.point_id for child in self._children.values() if child.complete}
        return self._contents.keys() - complete

    def record_until_settled(self, points: Iterable[TradeoffPoint]) -> int:
        """Records a batch, and reads its runs before and after until nothing is missing.

        Raises:
            TrackingError: See `record`; also if the runs disappear repeatedly.
            ValueError: See `record`; nothing was written.
            OSError: See `record`; nothing was written.
        """
        records = self._build(points)
        for _ in range(_MAX_ROUNDS):
            if not records or not self._write(records, self._read()):
                return len(self._contents)
        raise TrackingError(
            f"{self._uri}: runs of the sweep {self.sweep!r} disappear while they are recorded."
        )

    def _build(self, points: Iterable[TradeoffPoint]) -> list[RunRecord]:
        merged = merge_replicates(points)
        return [
            build_run_record(
                point,
                self.log_scaled,
                self.name_fields,
                self.labels(point),
                self.objectives,
                self.draw(point),
                self.headline,
                self._declared,
            )
            for point in merged
        ]

    def _read(self) -> _Target:
        """Reads the runs of all points."""
        self._target = None
        create(self._uri)
        client = connect(self._uri)
        path = sqlite_path(self._uri)
        with translate_errors(self._uri):
            parent = runs.get_or_create_parent(
                client, self.sweep, self.study, self._uri, self.started
            )
            # Two processes may each delete the other's run: the one that deletes last finds that.
            for _ in range(_MAX_ROUNDS):
                children = None if path is None else sqlite.children(path, parent, self.sweep)
                if children is None:
                    children = list(map(runs.child_run, runs.children(client, parent, self.sweep)))
                self._children = runs.resolve_duplicates(client, parent, children)
                if len(self._children) == len(children):
                    break
            if self.headline is not None:
                self._columns |= _logged_keys(client, self._children.values())
            write_batch = batches.batch_writer(self._uri, parent)
        self._target = _Target(client, parent, write_batch)
        return self._target

    def _write(self, records: Sequence[RunRecord], target: _Target) -> int:
        missing = [record for record in records if not self._is_recorded(record)]
        keys = self._columns.union(*map(self._logged_metrics, records))
        columns = sorted(keys)
        try:
            with translate_errors(self._uri):
                self._add_undefined(keys - self._columns, missing, target)
                remaining = self._insert(missing, columns, target)
                self._write_with_client(remaining, columns, target)
        except TrackingError:
            self._target = None  # a call may have succeeded although it reported a failure
            raise
        self._columns = keys  # only now: a rejected key would make the store reject all points
        return len(missing)

    def _logged_metrics(self, record: RunRecord) -> Collection[str]:
        """Metrics for which a point needs columns."""
        if self.headline is None:
            return record.point.metrics
        return {key for key in record.point.metrics if key not in record.details}

    def _add_undefined(
        self, keys: Collection[str], records: Sequence[RunRecord], target: _Target
    ) -> None:
        """Logs NaN for new metrics in runs that were recorded before, so that keys stay equal."""
        own = {record.point.point_id for record in records}
        earlier = [child for child in self._children.values() if child.point_id not in own]
        if self.headline is None or not keys or not earlier:
            return

        def log(child: runs.ChildRun) -> None:
            when = milliseconds(child.finished_at)
            metrics = [Metric(key, math.nan, when, 0) for key in sorted(keys)]
            try:
                target.client.log_batch(child.run_id, metrics)
            except MlflowException:  # another process may have deleted the run
                if not runs.is_deleted(target.client, child.run_id):
                    raise

        *others, last = sorted(earlier, key=_recording_order)
        with ThreadPoolExecutor(parallel_calls(self._uri)) as pool:
            list(pool.map(log, others))
        log(last)  # so that its metrics are those of all runs even after a kill

    def _insert(
        self, records: Sequence[RunRecord], columns: Sequence[str], target: _Target
    ) -> list[RunRecord]:
        """Writes new runs in one batch where the store allows that; returns what remains."""
        if target.write_batch is None:
            return list(records)
        new = [record for record in records if self._own_run(record) is None]
        made = [batches.new_run(record, self.sweep, target.parent, columns) for record in new]
        written = target.write_batch([run for run in made if run is not None])
        recorded = set()
        for record, run in zip(new, made, strict=True):
            if run is not None and run.run_id in written:
                self._replace(record, run.run_id, target)
                recorded.add(record.point.point_id)
        return [record for record in records if record.point.point_id not in recorded]

    def _write_with_client(
        self, records: Sequence[RunRecord], columns: Sequence[str], target: _Target
    ) -> None:
        pool = ThreadPoolExecutor(parallel_calls(self._uri))
        try:
            list(pool.map(lambda record: self._write_run(record, columns, target), records))
        finally:
            pool.shutdown(cancel_futures=True)

    def _is_recorded(self, record: RunRecord) -> bool:
        child = self._children.get(record.point.point_id)
        if child is None:
            return False
        replicates = len(record.point.replicates)
        if replicates != child.attempted:
            # A run with later or more replicates is left to the process that writes it.
            own_state = (record.point.finished_at, replicates)
            return (child.finished_at, child.attempted) > own_state
        own = self._contents.get(record.point.point_id) == record.content
        return child.complete and (own or child.content == record.content)

    def _own_run(self, record: RunRecord) -> str | None:
        """Returns the run to write to: of the same content, or of an earlier state of the point."""
        child = self._children.get(record.point.point_id)
        if child is None:
            return None
        is_own = child.content == record.content or child.finished_at < record.point.finished_at
        return child.run_id if is_own else None

    def _write_run(self, record: RunRecord, columns: Sequence[str], target: _Target) -> None:
        run_id = self._own_run(record)
        if is_new := run_id is None:
            run_id = _create_run(target, self.sweep, record)
        exists = _fill_run(target.client, run_id, record, columns)
        if exists and not is_new:  # last, so that a killed update is repeated
            _update_tags(target.client, run_id, record.tags(self.sweep, target.parent.run_id))
        self._replace(record, run_id, target)
        if not exists:
            del self._children[record.point.point_id]

    def _replace(self, record: RunRecord, run_id: str, target: _Target) -> None:
        """Notes the run of a point, and deletes the run that it replaces."""
        point_id = record.point.point_id
        old = self._children.get(point_id)
        if old is not None and old.run_id != run_id:
            runs.delete_run(target.client, old.run_id)
        self._contents[point_id] = record.content
        tags = record.tags(self.sweep, target.parent.run_id)
        self._children[point_id] = runs.ChildRun.from_tags(run_id, record.status, tags)


def _recording_order(child: runs.ChildRun) -> tuple[bool, float, str]:
    """Order of runs by their creation; incomplete runs come first."""
    return (child.complete and child.recorded_at < math.inf, child.recorded_at, child.run_id)


def _logged_keys(client: MlflowClient, children: Collection[runs.ChildRun]) -> set[str]:
    """Metrics of the run that was recorded last, which gets new ones after all others."""
    last = max(children, key=_recording_order, default=None)
    if last is None or not _recording_order(last)[0]:
        return set()
    metrics = client.get_run(last.run_id).data.metrics
    return {key for key in metrics if not key.startswith((runs.CURVES, runs.FIRST))}


def _create_run(target: _Target, sweep: str, record: RunRecord) -> str:
    run = target.client.create_run(
        target.parent.experiment_id,
        start_time=record.started,
        tags=record.tags(sweep, target.parent.run_id),
        run_name=record.run_name,
    )
    return str(run.info.run_id)


def _update_tags(client: MlflowClient, run_id: str, tags: Mapping[str, str]) -> None:
    """Sets the tags of a run that got later values, and deletes those that no longer hold."""
    current = client.get_run(run_id).data.tags
    for key in (*TEXT_TAGS, runs.NOTE):
        if key in current and key not in tags:
            client.delete_tag(run_id, key)
    new = [RunTag(key, text) for key, text in tags.items() if key != runs.RECORDED_AT]
    client.log_batch(run_id, tags=new)


def _fill_run(client: MlflowClient, run_id: str, record: RunRecord, columns: Sequence[str]) -> bool:
    """Writes the content of a run; returns whether the run still exists."""
    for is_last in (False, False, True):
        try:
            client.log_batch(run_id, record.metrics(columns), record.params)
            _log_files(client, run_id, record.files)
            client.set_terminated(run_id, record.status, record.ended)
        except MlflowException:
            # Another process recorded the same point and kept its own run; the next read shows it.
            if runs.is_deleted(client, run_id):
                return False
            # Another process may write the same values to this run: then the next attempt succeeds.
            if is_last:
                raise
        else:
            break
    return True


def _log_files(client: MlflowClient, run_id: str, files: Mapping[PurePosixPath, bytes]) -> None:
    if not files:
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        client.log_artifacts(run_id, folder)
