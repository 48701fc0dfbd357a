"""Reader of a ledger: rows of new packs as they appear, replicates as columns, complete points.

Progress, publisher and results all read through this module, so they agree on which replicate
counts when one was trained twice, and on when a point is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel

from privnets.points import TradeoffPoint, merge_replicates
from privnets.statistics.replicates import ScoredColumns
from sweeps.store.codec import (
    FIXED_COLUMNS,
    ColumnFilter,
    ReplicateKey,
    family_columns,
    parse_object,
)
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import SeedRule

FINISHED, STOPPED, FAILED = range(3)
STATUS_NAMES: Final = np.array(["finished", "stopped", "failed"], dtype=object)

_PACKS_AT_ONCE: Final = 8
_MAX_FAILURE_BYTES: Final = 16 * 2**20


class FailedPack(BaseModel):
    """Pack that failed permanently: its replicates, by point_id and seed, and the reason."""

    members: tuple[ReplicateKey, ...]
    reason: str


class Note(NamedTuple):
    """Reason why a metric of a point is undefined, or a flag was raised: the key.

    The reason is that of the first replicate, with the number of replicates.
    """

    point_id: str
    key: str
    reason: str


def is_metric_column(name: str) -> bool:
    """Selects the columns that tables of points and replicates are made from."""
    if name in FIXED_COLUMNS:
        return name not in ("notes", "artifacts")
    return name.startswith(("metric/", "standard_error/"))


class LedgerReader:
    """Reads each pack of a ledger once, as it appears."""

    def __init__(self, ledger: Ledger, columns: ColumnFilter | None = None) -> None:
        """Starts before the first pack; reads the selected columns, or all."""
        self._ledger = ledger
        self._columns = columns
        self._read: set[str] = set()

    def new_packs(self) -> list[str]:
        """Ids of the packs that were not read yet, or were damaged when they were."""
        return [pack_id for pack_id in self._ledger.pack_ids() if pack_id not in self._read]

    def read_new(self, pack_ids: Sequence[str] | None = None) -> list[pa.Table]:
        """Reads some of `new_packs()`, or all of them; one table each."""
        new = self.new_packs() if pack_ids is None else pack_ids
        tables = self._ledger.read_tables(new, self._columns)
        # A damaged file may still be replaced by a whole one of the same name.
        self._read.update(p for p in new if f"{p}.parquet" not in self._ledger.unreadable)
        return tables


class PointReader:
    """Reads the points of a ledger as soon as all of their replicates are there.

    A point of an adaptive search comes again when it has more replicates that count. Of other
    sweeps, only the replicates of incomplete points are kept in memory.
    """

    def __init__(self, ledger: Ledger, rule: SeedRule) -> None:
        """Starts before the first pack; `rule` tells which points are complete."""
        self._ledger = ledger
        self._reader = LedgerReader(ledger)
        self._rule = rule
        self._partial: dict[str, TradeoffPoint] = {}
        self._complete: set[str] = set()

    def read_new(self, min_points: int | None = None) -> list[TradeoffPoint]:
        """Points that became complete since the last call; packs are read up to `min_points`."""
        pack_ids = self._reader.new_packs()
        points: list[TradeoffPoint] = []
        for start in range(0, len(pack_ids), _PACKS_AT_ONCE):
            if min_points is not None and len(points) >= min_points:
                break
            tables = self._reader.read_new(pack_ids[start : start + _PACKS_AT_ONCE])
            for point in self._ledger.merge_points(tables):
                if point.point_id in self._complete and not self._rule.is_adaptive:
                    continue
                partial = self._partial.pop(point.point_id, None)
                (merged,) = merge_replicates([point] if partial is None else [partial, point])
                complete = counted_replicates(merged, self._rule)
                if complete is None or self._rule.is_adaptive:
                    self._partial[point.point_id] = merged
                if complete is not None:
                    self._complete.add(point.point_id)
                    points.append(complete)
        return points


@dataclass(frozen=True, eq=False)
class ReplicateTable:
    """Replicates as columns: ordered by point, in order of first appearance, then by seed.

    Attributes:
        table: Rows of the ledger, repeated replicates included.
        rows: Row of each replicate in `table`, shape [replicates].
        points: Position of each replicate's point, shape [replicates].
        point_ids: Id of each point.
        first_rows: First row of each point in `table`, shape [points].
    """

    table: pa.Table
    rows: NDArray[np.int64]
    points: NDArray[np.int64]
    point_ids: Sequence[str]
    first_rows: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of points."""
        return len(self.point_ids)

    @property
    def seeds(self) -> NDArray[np.int64]:
        """Seed of each replicate."""
        return np.asarray(self.table["seed"].to_numpy()[self.rows])

    @cached_property
    def status(self) -> NDArray[np.int64]:
        """Status of each replicate: `FINISHED`, `STOPPED` or `FAILED`."""
        has_failed, was_stopped = (
            self.table[name].is_valid().to_numpy()[self.rows] for name in ("failure", "stopped")
        )
        return np.where(has_failed, FAILED, np.where(was_stopped, STOPPED, FINISHED))

    @cached_property
    def point_status(self) -> NDArray[np.int64]:
        """Status of each point: that of its worst replicate, as survivors would mislead."""
        return np.asarray(self.largest_of_point(self.status))

    @property
    def counts(self) -> dict[str, int]:
        """Number of points that are `finished`, `stopped` and `failed`."""
        counts = np.bincount(self.point_status, minlength=len(STATUS_NAMES))
        return dict(zip(STATUS_NAMES.tolist(), counts.tolist(), strict=True))

    @cached_property
    def keys(self) -> frozenset[ReplicateKey]:
        """The (point_id, seed) of every replicate."""
        point_ids = np.array(self.point_ids, dtype=object)[self.points]
        return frozenset(zip(point_ids.tolist(), self.seeds.tolist(), strict=True))

    def points_with_seeds(self, seeds: Collection[int]) -> NDArray[np.int64]:
        """Numbers of the points that have a replicate with one of some seeds."""
        return np.unique(self.points[np.isin(self.seeds, [*seeds])])

    @cached_property
    def scored(self) -> ScoredColumns:
        """Test set of each replicate."""
        names = self.table["test_set"].combine_chunks().dictionary_encode()
        sets = names.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        sizes, overlaps = (self.table[name].to_numpy() for name in ("test_size", "test_overlap"))
        overlaps = np.where(np.isnan(overlaps.astype(np.float64)), 1.0, overlaps)
        return ScoredColumns(
            sets.astype(np.int64)[self.rows],
            sizes.astype(np.float64)[self.rows],
            overlaps.astype(np.float64)[self.rows],
        )

    def complete(self, rule: SeedRule) -> ReplicateTable:
        """Replicates that count, of the points that are complete."""
        is_confirming = np.isin(self.seeds, list(rule.confirming))
        is_required = np.isin(self.seeds, list(rule.required))
        is_confirmed = np.bincount(self.points[is_confirming], minlength=len(self)) > 0
        needed = np.where(is_confirmed, len(rule.confirming), len(rule.required))
        needs = np.where(is_confirmed[self.points], is_confirming, is_required)
        is_whole = np.bincount(self.points[needs], minlength=len(self)) == needed
        kept = is_whole[self.points] & (is_confirming | ~is_confirmed[self.points])
        return ReplicateTable(
            self.table,
            self.rows[kept],
            (np.cumsum(is_whole) - 1)[self.points[kept]],
            np.array(self.point_ids, dtype=object)[is_whole].tolist(),
            self.first_rows[is_whole],
        )

    def select_finished(self) -> ReplicateTable:
        """Finished replicates, of the same points."""
        kept = self.status == FINISHED
        rows, points = self.rows[kept], self.points[kept]
        return ReplicateTable(self.table, rows, points, self.point_ids, self.first_rows)

    def column(self, name: str) -> pd.Series:
        """A column of the ledger, one value per replicate."""
        return pd.Series(self.table[name].take(self.rows).to_pandas())

    def family(self, name: str, keys: Collection[str] | None = None) -> pd.DataFrame:
        """Columns of a family, `metric` or `standard_error`, one row per replicate.

        Keys that no replicate has, or that are not among `keys`, are left out; values that are
        missing are NaN.
        """
        columns = family_columns(self.table, name)
        return pd.DataFrame(
            {
                key: column.to_numpy()[self.rows]
                for key, column in sorted(columns.items())
                if (keys is None or key in keys)
                and (not column.null_count or column.is_valid().to_numpy()[self.rows].any())
                and len(self.rows)
            },
            index=pd.RangeIndex(len(self.rows)),
        )

    def largest_of_point(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """Largest value of each point, of one value per replicate; each point needs one."""
        starts = np.searchsorted(self.points, np.arange(len(self)))
        return np.maximum.reduceat(values, starts) if len(starts) else values

    def notes(self) -> list[Note]:
        """Notes of the finished replicates, one per point and key."""
        finished = self.select_finished()
        totals = np.bincount(finished.points, minlength=len(self)).tolist()
        reasons: dict[tuple[int, str], list[str]] = {}
        for point, text in zip(finished.points.tolist(), finished.column("notes"), strict=True):
            for key, reason in parse_object(text).items() if isinstance(text, str) else ():
                reasons.setdefault((point, key), []).append(reason)
        return [
            Note(self.point_ids[point], key, f"{own[0]} ({len(own)} of {totals[point]} replicates)")
            for (point, key), own in sorted(reasons.items())
        ]

    def artifact_names(self) -> frozenset[str]:
        """Names of the artifacts that finished points stored."""
        rows = self.rows[self.point_status[self.points] == FINISHED]
        names = pc.list_flatten(self.table["artifacts"].take(rows))
        return frozenset(names.unique().to_pylist())


def replicate_table(tables: Iterable[pa.Table]) -> ReplicateTable:
    """Replicates in tables of a ledger; of those trained twice, the one that finished first."""
    empty = pa.schema(list(FIXED_COLUMNS.items())).empty_table()
    table = pa.concat_tables([empty, *tables], promote_options="default")
    ids = table["point_id"].combine_chunks().dictionary_encode()
    codes = np.asarray(ids.indices, dtype=np.int64)
    seeds, times = table["seed"].to_numpy(), table["finished_at"].to_numpy()
    order = np.lexsort([times, seeds, codes])
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (np.diff(codes[order]) != 0) | (np.diff(seeds[order]) != 0)
    rows = order[is_first]
    _, first_rows = np.unique(codes, return_index=True)
    return ReplicateTable(table, rows, codes[rows], ids.dictionary.to_pylist(), first_rows)


def counted_replicates(point: TradeoffPoint, rule: SeedRule) -> TradeoffPoint | None:
    """Returns a point with the replicates that count; None if it is not complete."""
    seeds = {replicate.seed for replicate in point.replicates}
    is_confirmed = bool(seeds & rule.confirming)
    if not (rule.confirming if is_confirmed else rule.required) <= seeds:
        return None
    if not is_confirmed or seeds == rule.confirming:
        return point
    counted = tuple(r for r in point.replicates if r.seed in rule.confirming)
    return replace(point, replicates=counted)


def read_failures(
    ledger: Ledger, finished: Callable[[], Set[ReplicateKey]]
) -> dict[str, FailedPack]:
    """Reads the failed packs, except packs that a later attempt finished.

    `finished` returns every (point_id, seed) in the ledger; only a failure calls it.
    """
    directory = ledger.directory / "failures"
    failed: dict[str, FailedPack] = {}
    for name in directory.files(".json"):
        try:
            content = directory.read(name, _MAX_FAILURE_BYTES)
            pack = FailedPack.model_validate_json(content)
        except (OSError, ValueError):
            ledger.unreadable[f"failures/{name}"] = "not a valid failure record"
            continue
        if missing := set(pack.members) - finished():
            members = tuple(member for member in pack.members if member in missing)
            failed[name.removesuffix(".json")] = FailedPack(members=members, reason=pack.reason)
    return failed
