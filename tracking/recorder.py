"""Recording of points in MLflow. Repeated and concurrent calls add nothing."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path
from threading import Thread
from typing import NamedTuple, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag
from mlflow.exceptions import MlflowException

from privnets.points import TradeoffPoint, merge_replicates
from tracking import runs
from tracking.client import artifacts, connect, translate_errors
from tracking.errors import TrackingError
from tracking.run_record import TEXT_TAGS, RunRecord, build_run_record, milliseconds
from tracking.store import create
from tracking.sweep_run import ParentRun, SweepUpdate, get_or_create_parent, update_parent
from tracking.uris import is_server, resolve_uri

T = TypeVar("T")

_MAX_ROUNDS = 5
_SERVER_THREADS = 4  # SQLite and a local database have one writer


def record(
    points: Iterable[TradeoffPoint],
    *,
    sweep: str,
    study: str | None = None,
    tracking_uri: str | None = None,
    log_scaled: frozenset[str] = frozenset(),
    name_fields: Sequence[str] = (),
) -> int:
    """Records points as child runs of their sweep's parent run.

    Idempotent. A run is identified by its point id, and its values have the timestamps of the
    point. Its status is set last: only FINISHED, KILLED (stopped early) and FAILED runs count as
    recorded. So the next call completes what a killed call began, and a repeated call adds
    nothing. A run whose point has later replicates is updated, and MLflow shows the latest values.
    A run whose point has other values, but no later ones, is replaced. When two processes record
    the same point at once, the run created first stays; if their values differ, the point that
    finished last stays.

    Every run has the same metrics: those that any point of the sweep defines, NaN where its own
    point does not.

    Args:
        points: Points with all their replicates.
        sweep: Name of the sweep.
        study: Name of the experiment; by default the one that holds the sweep, or else `sweep`.
        tracking_uri: See `resolve_uri`.
        log_scaled: Configuration fields that get a `log10_<field>` parameter (`LOG10_OF_ZERO` for
            zero, `LOG10_OF_INFINITY` for infinity).
        name_fields: Configuration fields that form the run's name, as in `train_size=100`; by
            default the point id.

    Returns:
        Number of points that were new or completed.

    Raises:
        TrackingError: If the store fails or does not respond; a later call continues.
        ValueError: If a `log_scaled` field is negative, or a configuration is too long for a tag.
    """
    recorder = Recorder(
        sweep,
        study=study,
        tracking_uri=tracking_uri,
        log_scaled=log_scaled,
        name_fields=name_fields,
    )
    points, number = list(points), 0
    for _ in range(_MAX_ROUNDS):
        number = max(number, recorder.record(points))
        # Another process may have deleted a run of this one in favour of its own.
        if not number or not recorder.confirm():
            return number
    raise TrackingError(f"runs of the sweep {sweep!r} disappear while they are recorded.")


class _Target(NamedTuple):
    client: MlflowClient
    parent: ParentRun


@dataclass
class Recorder:
    """Records the points of one sweep in batches, like `record` but with fewer reads.

    Its fields are the arguments of `record`; `labels`, which returns more tags for a point;
    `unused`, which returns its configuration fields without effect (they are no parameters);
    `headline`, the metrics that runs show (others are in an artifact; None shows all);
    `objectives`, those with the prefix `OBJECTIVE`; and `started`, Unix seconds at which the sweep
    began.

    It reads MLflow's runs before the first batch, after a failed call, and in `confirm`. Between
    these it relies on its own writes. Runs that another process adds meanwhile under the same sweep
    are resolved at the next read.
    """

    sweep: str
    study: str | None = None
    tracking_uri: str | None = field(default=None, repr=False)  # may hold a password
    log_scaled: frozenset[str] = frozenset()
    name_fields: Sequence[str] = ()
    labels: Callable[[TradeoffPoint], Mapping[str, str]] = lambda point: {}
    unused: Callable[[TradeoffPoint], Collection[str]] = lambda point: ()
    headline: Collection[str] | None = None
    objectives: Collection[str] = ()
    started: float | None = None
    _target: _Target | None = field(default=None, init=False)
    _children: dict[str, runs.ChildRun] = field(default_factory=dict, init=False)
    _contents: dict[str, str] = field(default_factory=dict, init=False)
    _columns: frozenset[str] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        """Resolves the URI; reads and writes nothing yet.

        Raises:
            TrackingError: If the URI names neither a server nor a database.
        """
        self._uri = resolve_uri(self.tracking_uri)

    def record(self, points: Iterable[TradeoffPoint]) -> int:
        """Records a batch of points with all their replicates.

        Returns:
            Number of points that were new or completed.

        Raises:
            RejectedRecordError: If the store rejects a point of the batch as invalid.
            TrackingError: If the store fails or does not respond; a later call continues.
            ValueError: See `record`; nothing was written.
        """
        records = [
            build_run_record(
                point,
                self.log_scaled,
                self.name_fields,
                self.labels(point),
                self.headline,
                self.objectives,
                self.unused(point),
            )
            for point in merge_replicates(points)
        ]
        if not records:
            return 0
        target = self._target or self._read()
        missing = [record for record in records if not self._is_recorded(record)]
        columns = self._columns.union(*(record.keys for record in missing))
        try:
            with translate_errors(self._uri):
                self._for_each(lambda record: self._write_run(record, columns, target), missing)
                if columns != self._columns:
                    # Last, so that no other run gets a name that the store rejects.
                    self._add_undefined(columns, target.client)
        except TrackingError:
            self._target = None  # a call may have succeeded although it reported a failure
            raise
        return len(missing)

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

    def update_sweep(self, update: SweepUpdate) -> ParentRun:
        """Updates the parent run of the sweep, which is created where it is absent; returns it.

        Raises:
            TrackingError: If the store fails or does not respond; a later call continues.
        """
        target = self._target or self._read()
        try:
            with translate_errors(self._uri):
                return update_parent(target.client, target.parent.run_id, self.sweep, update)
        except TrackingError:
            self._target = None  # the run may have been deleted
            raise

    def _read(self) -> _Target:
        """Reads the runs of all points."""
        self._target = None
        create(self._uri)
        client = connect(self._uri)
        with translate_errors(self._uri):
            parent = get_or_create_parent(client, self.sweep, self.study, self._uri, self.started)
            # Two processes may each delete the other's run: the one that deletes last finds that.
            for _ in range(_MAX_ROUNDS):
                children = list(runs.children(client, parent.experiment_id, self.sweep))
                self._children = runs.resolve_duplicates(client, parent.run_id, children)
                if len(self._children) == len(children):
                    break
            keys = {child.keys for child in self._children.values()}
            self._add_undefined(frozenset().union(*keys), client)
        self._target = _Target(client, parent)
        return self._target

    def _add_undefined(self, columns: frozenset[str], client: MlflowClient) -> None:
        """Logs NaN in runs that lack a metric of other runs, so that all have the same ones."""

        def log(child: runs.ChildRun) -> None:
            when = milliseconds(child.finished_at)
            metrics = [Metric(key, math.nan, when, 0) for key in sorted(columns - child.keys)]
            try:
                client.log_batch(child.run_id, metrics)
            except MlflowException:  # another process may have deleted the run
                if not runs.is_deleted(client, child.run_id):
                    raise
            self._children[child.point_id] = replaced(child, keys=columns)

        complete = [child for child in self._children.values() if child.complete]
        self._for_each(log, [child for child in complete if child.keys != columns])
        self._columns = columns

    def _for_each(self, write: Callable[[T], None], items: Iterable[T]) -> None:
        """Calls a function for each item: in a few threads where the store is a server."""
        rest, errors = iter([*items]), list[Exception]()

        def work() -> None:
            try:
                for item in rest:
                    write(item)
            except Exception as error:
                errors.append(error)
                list(rest)  # leaves nothing to the other threads

        # Threads of an executor would keep Python from ending while a server does not answer.
        number = _SERVER_THREADS if is_server(self._uri) else 1
        threads = [Thread(target=work, daemon=True) for _ in range(number)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            list(rest)  # after an interruption
        if errors:
            raise errors[0]

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

    def _write_run(self, record: RunRecord, columns: frozenset[str], target: _Target) -> None:
        point_id = record.point.point_id
        client, old = target.client, self._children.get(point_id)
        tags = record.tags(self.sweep, target.parent.run_id)
        # A run of the same content, or of an earlier state of the point, is completed.
        is_kept = old is not None and (
            old.content == record.content or old.finished_at < record.point.finished_at
        )
        if old is not None and is_kept:
            run_id = old.run_id
        else:
            run = client.create_run(
                target.parent.experiment_id, record.started, tags, record.run_name
            )
            run_id = str(run.info.run_id)
        if not _fill_run(client, run_id, record, columns):
            self._children.pop(point_id, None)
            return
        if is_kept:  # last, so that a killed update is repeated
            # A run that got later values loses the tags that no longer hold.
            current = client.get_run(run_id).data.tags
            for key in (*TEXT_TAGS, runs.NOTE):
                if key in current and key not in tags:
                    client.delete_tag(run_id, key)
            new = [RunTag(key, text) for key, text in tags.items() if key != runs.RECORDED_AT]
            client.log_batch(run_id, tags=new)
        elif old is not None:
            runs.delete_run(client, old.run_id)
        self._contents[point_id] = record.content
        self._children[point_id] = runs.ChildRun.from_tags(run_id, record.status, tags, columns)


def _fill_run(
    client: MlflowClient, run_id: str, record: RunRecord, columns: frozenset[str]
) -> bool:
    """Writes the content of a run; returns whether the run still exists."""
    for is_last in (False, False, True):
        try:
            client.log_batch(run_id, record.metrics(sorted(columns)), record.params)
            if record.files:
                with tempfile.TemporaryDirectory() as folder:
                    for name, content in record.files.items():
                        path = Path(folder, name)
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(content)
                    artifacts(client, run_id).log_artifacts(folder)
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
