"""Record points in MLflow so that doing it again, or twice at once, adds nothing."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from privnets.points import TradeoffPoint, merge_replicates
from tracking import runs, sqlite
from tracking.errors import TrackingError
from tracking.frame import SUFFIXES
from tracking.redaction import redact
from tracking.run_record import RunRecord, build_run_record
from tracking.store import connect, create, in_flight, resolve_uri, sqlite_path, translate_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ROUNDS = 5


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
    """Record points under their sweep's parent run, one child run each.

    Idempotent: a run is found again by its point's id, what it holds carries the record's own
    timestamps, and it counts as recorded only once it is FINISHED, KILLED (stopped early) or
    FAILED, which is set last.
    So a call that was killed is completed by the next, a repeated call adds nothing, and when two
    processes record the same point at once the earliest run stays. A point that has gained
    replicates since replaces its run, and so does one that was computed again and has other
    values or times. Of processes that record different values at once, the point that finished
    last stays.

    Args:
        points: Points with all their replicates.
        sweep: The sweep's name.
        study: The experiment's name; by default the one that holds the sweep, or else `sweep`.
        tracking_uri: As `resolve_uri` takes it.
        log_scaled: Configuration fields that get a `log10_<field>` parameter (`LOG10_OF_ZERO` for
            zero, `LOG10_OF_INFINITY` for infinity).
        name_fields: Configuration fields that name the run, as in `train_size=100`; by default
            the point's id does.
        keys: Metrics that every run is to have, NaN where its point lacks them; their `.std`,
            `.ci_low` and `.ci_high` need not be named. Those of the given points always count.

    Returns:
        How many points were new, or completed.

    Raises:
        TrackingError: If the store fails or does not answer; a later call takes up from there.
        ValueError: If a `log_scaled` field is negative, or a configuration is too long for a tag.
        OSError: If a point's files cannot be read.
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


@dataclass(frozen=True)
class _Place:
    """Where to record."""

    client: MlflowClient
    home: runs.Home


class Recorder:
    """Records the points of one sweep batch by batch, as `record` does, but looks less often.

    It looks at what MLflow holds before the first batch, when a call has failed, and when asked to
    `confirm`; in between it goes by what it wrote. What another process records meanwhile under
    the same sweep is settled at its next look.
    """

    def __init__(
        self,
        sweep: str,
        *,
        study: str | None = None,
        tracking_uri: str | None = None,
        log_scaled: frozenset[str] = frozenset(),
        name_fields: Sequence[str] = (),
        keys: Collection[str] = (),
    ) -> None:
        """Say where to record and how; nothing is read or written yet.

        Args:
            sweep: As `record` takes it, and so are the others.
            study: See `record`.
            tracking_uri: See `record`.
            log_scaled: See `record`.
            name_fields: See `record`.
            keys: See `record`.

        Raises:
            TrackingError: If the URI is no server's and no database's.
        """
        self._sweep = sweep
        self._study = study
        self._uri = resolve_uri(tracking_uri)
        self._log_scaled = log_scaled
        self._name_fields = tuple(name_fields)
        # A failed point has no metrics of its own; NaN keeps the columns of all runs equal.
        self._columns = {f"{key}{suffix}" for key in keys for suffix in ("", *SUFFIXES)}
        self._in_flight = in_flight(self._uri)
        self._place: _Place | None = None
        self._held: dict[str, runs.Child] = {}
        self._written: dict[str, str] = {}

    def record(self, points: Iterable[TradeoffPoint]) -> int:
        """Record a batch.

        Args:
            points: Points with all their replicates.

        Returns:
            How many were new, or completed.

        Raises:
            RejectedRecordError: If the store finds a point of the batch wrong.
            TrackingError: If the store fails or does not answer; a later call takes up from there.
            ValueError: As `record`; nothing was written.
            OSError: As `record`; nothing was written.
        """
        sheets = self._sheets(points)
        return self._write(sheets, self._place or self._look()) if sheets else 0

    def confirm(self) -> set[str]:
        """Look again, and settle what others recorded meanwhile.

        Returns:
            Ids of the points recorded here that MLflow lacks now.

        Raises:
            TrackingError: If the store fails or does not answer.
        """
        self._look()
        whole = {child.point_id for child in self._held.values() if child.complete}
        return self._written.keys() - whole

    def record_until_settled(self, points: Iterable[TradeoffPoint]) -> int:
        """Record a batch, looking at its points before and after, until nothing is left to do.

        Raises:
            TrackingError: As `record`, and if the runs disappear again and again.
            ValueError: As `record`; nothing was written.
            OSError: As `record`; nothing was written.
        """
        sheets = self._sheets(points)
        for _ in range(_ROUNDS):
            if not sheets or not self._write(sheets, self._look(sheets)):
                return len(self._written)
        raise TrackingError(
            f"{redact(self._uri)}: runs of the sweep {self._sweep!r} disappear while they are "
            "recorded."
        )

    def _sheets(self, points: Iterable[TradeoffPoint]) -> list[RunRecord]:
        merged = merge_replicates(points)
        return [build_run_record(point, self._log_scaled, self._name_fields) for point in merged]

    def _look(self, sheets: Sequence[RunRecord] = ()) -> _Place:
        """See which runs there are, of these points or of all."""
        self._place = None
        create(self._uri)
        client = connect(self._uri)
        contents = {sheet.point.point_id: sheet.content for sheet in sheets}
        # What was written here is no longer preferred, or two that differ never settle.
        wanted = {i: content for i, content in contents.items() if i not in self._written}
        with translate_errors(self._uri):
            home = runs.make_home(client, self._sweep, self._study, self._uri)
            found = self._children(client, home, contents.keys())
            self._held = runs.settle(client, home, found, wanted)
        self._place = _Place(client, home)
        return self._place

    def _children(
        self, client: MlflowClient, home: runs.Home, ids: Set[str]
    ) -> Iterable[runs.Child]:
        """The runs of these points, or of all."""
        path = sqlite_path(self._uri)
        found = None if path is None else sqlite.children(path, home, self._sweep)
        if found is not None:
            return (child for child in found if not ids or child.point_id in ids)
        if ids:
            return map(runs.child, runs.children_of(client, home, self._sweep, sorted(ids)))
        return map(runs.child, runs.children(client, home, self._sweep))

    def _write(self, sheets: Sequence[RunRecord], place: _Place) -> int:
        todo = [sheet for sheet in sheets if not self._holds(sheet)]
        known = self._columns.union(*(sheet.point.metrics for sheet in sheets))
        columns = sorted(known)
        try:
            with translate_errors(self._uri):
                left = self._insert(todo, columns, place)
                self._bring_all(left, columns, place)
        except TrackingError:
            self._place = None  # a call may have gone through although it failed
            raise
        self._columns = known  # not those that the store refuses, or it would refuse all points
        return len(todo)

    def _insert(
        self, sheets: Sequence[RunRecord], columns: Sequence[str], place: _Place
    ) -> list[RunRecord]:
        """Write what can go straight into the database; gives what is left."""
        path = sqlite_path(self._uri)
        if path is None:
            return list(sheets)
        fresh = [sheet for sheet in sheets if self._begun(sheet) is None]
        made = sqlite.insert(path, place.home, self._sweep, fresh, columns)
        for sheet in fresh:
            if sheet.point.point_id in made:
                self._note(sheet, made[sheet.point.point_id], place)
        return [sheet for sheet in sheets if sheet.point.point_id not in made]

    def _bring_all(
        self, sheets: Sequence[RunRecord], columns: Sequence[str], place: _Place
    ) -> None:
        pool = ThreadPoolExecutor(self._in_flight)
        try:
            list(pool.map(lambda sheet: self._bring(sheet, columns, place), sheets))
        finally:
            pool.shutdown(cancel_futures=True)

    def _holds(self, sheet: RunRecord) -> bool:
        held = self._held.get(sheet.point.point_id)
        if held is None:
            return False
        ours = len(sheet.point.replicates)
        if ours != held.attempted:
            # A run with more replicates is its writer's to complete.
            return held.attempted > ours
        settled = self._written.get(sheet.point.point_id) == sheet.content
        return held.complete and (settled or held.content == sheet.content)

    def _begun(self, sheet: RunRecord) -> str | None:
        """The run that was begun with what is to be written."""
        old = self._held.get(sheet.point.point_id)
        return old.run_id if old is not None and old.content == sheet.content else None

    def _bring(self, sheet: RunRecord, columns: Sequence[str], place: _Place) -> None:
        """Bring a point's run up to date, or put another in its place."""
        run_id = self._begun(sheet) or _open(place.client, place.home, self._sweep, sheet)
        stands = _fill(place.client, run_id, sheet, columns)
        self._note(sheet, run_id, place)
        if not stands:
            del self._held[sheet.point.point_id]

    def _note(self, sheet: RunRecord, run_id: str, place: _Place) -> None:
        """Take a run for the point's, in place of any other."""
        point_id = sheet.point.point_id
        old = self._held.get(point_id)
        if old is not None and old.run_id != run_id:
            runs.delete(place.client, old.run_id)
        self._written[point_id] = sheet.content
        self._held[point_id] = _child(run_id, place.home, sheet)


def _open(client: MlflowClient, home: runs.Home, sweep: str, sheet: RunRecord) -> str:
    created = client.create_run(
        home.experiment_id,
        start_time=sheet.started,
        tags=sheet.tags(sweep, home.parent_id),
        run_name=sheet.run_name,
    )
    return str(created.info.run_id)


def _fill(client: MlflowClient, run_id: str, sheet: RunRecord, columns: Sequence[str]) -> bool:
    """Write all that a run says; whether the run is still there."""
    from mlflow.exceptions import MlflowException

    try:
        client.log_batch(run_id, sheet.metrics(columns), sheet.params())
        _log_files(client, run_id, sheet.files)
        client.set_terminated(run_id, sheet.status, sheet.ended)
    except MlflowException:
        # Another process recorded the same point and kept its own run: the next look tells.
        if not runs.deleted(client, run_id):
            raise
        return False
    return True


def _child(run_id: str, home: runs.Home, sheet: RunRecord) -> runs.Child:
    return runs.Child(
        run_id=run_id,
        point_id=sheet.point.point_id,
        parent_id=home.parent_id,
        content=sheet.content,
        attempted=len(sheet.point.replicates),
        complete=True,
        finished_at=sheet.point.finished_at,
        recorded_at=time.time(),
    )


def _log_files(client: MlflowClient, run_id: str, files: Mapping[PurePosixPath, bytes]) -> None:
    if not files:
        return
    with tempfile.TemporaryDirectory() as folder:
        sqlite.write_files(Path(folder), files)
        client.log_artifacts(run_id, folder)
