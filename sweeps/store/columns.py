"""A ledger's replicates as columns: tables of many points without an object for each replicate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.analysis.sums import SUFFIXES, Floats, Places, Sums
from sweeps.store.codec import (
    FIXED_COLUMNS,
    family_columns,
    is_fixed_column,
    parse_config,
    parse_notes,
)

if TYPE_CHECKING:
    import pandas as pd

FINISHED, STOPPED, FAILED = range(3)
STATUS: Final = np.array(["finished", "stopped", "failed"], dtype=object)

_UNREAD: Final = ("notes", "artifacts")
_NONE: Final = pa.schema(FIXED_COLUMNS).empty_table()


def is_table_column(name: str) -> bool:
    """Wants the columns that tables of points are made from."""
    if is_fixed_column(name):
        return name not in _UNREAD
    return name.startswith(("metric/", "standard_error/"))


class Note(NamedTuple):
    """Why a metric of a point is undefined, or a flag raised.

    Attributes:
        point_id: The point.
        key: The metric or flag.
        reason: The first replicate's words, with a count.
    """

    point_id: str
    key: str
    reason: str


@dataclass(frozen=True, eq=False)
class Replicates:
    """Replicates, each once: point by point in order of first appearance, then by seed.

    Attributes:
        table: As in the ledger, repeats included.
        rows: The replicates' rows in the table.
        points: Each replicate's point, as its place among the points.
        point_ids: Of each point.
        firsts: Each point's first row in the table.
    """

    table: pa.Table
    rows: Places
    points: Places
    point_ids: Sequence[str]
    firsts: Places

    def __len__(self) -> int:
        """How many points there are."""
        return len(self.point_ids)

    @cached_property
    def seeds(self) -> Places:
        """Each replicate's seed."""
        return np.asarray(self._of_rows("seed"), dtype=np.int64)

    @cached_property
    def finished_at(self) -> Floats:
        """When each replicate finished, Unix seconds."""
        return np.asarray(self._of_rows("finished_at"), dtype=np.float64)

    @cached_property
    def endings(self) -> Places:
        """How each replicate ended: `FINISHED`, `STOPPED` or `FAILED`."""
        failed, stopped = (
            pc.is_valid(self.table[name]).to_numpy()[self.rows] for name in ("failure", "stopped")
        )
        return np.where(failed, FAILED, np.where(stopped, STOPPED, FINISHED))

    @cached_property
    def status(self) -> Places:
        """How each point ended: as its worst replicate did, since survivors alone would mislead."""
        return np.asarray(self._largest(self.endings))

    def counts(self) -> dict[str, int]:
        """How many points are `finished`, `stopped` and `failed`."""
        found = np.bincount(self.status, minlength=len(STATUS))
        return dict(zip(STATUS.tolist(), found.tolist(), strict=True))

    def complete(self, seeds: Collection[int]) -> Replicates:
        """Those of points that have a replicate of every seed."""
        wanted = self.points[np.isin(self.seeds, list(seeds))]
        whole = np.bincount(wanted, minlength=len(self)) == len(set(seeds))
        kept = whole[self.points]
        return Replicates(
            self.table,
            self.rows[kept],
            (np.cumsum(whole) - 1)[self.points[kept]],
            np.array(self.point_ids, dtype=object)[whole].tolist(),
            self.firsts[whole],
        )

    @cached_property
    def members(self) -> frozenset[tuple[str, int]]:
        """Every (point_id, seed)."""
        names = np.array(self.point_ids, dtype=object)[self.points]
        return frozenset(zip(names.tolist(), self.seeds.tolist(), strict=True))

    def points_frame(self, sweep: str) -> pd.DataFrame:
        """As `tracking.points_frame` makes it of the same points."""
        from tracking.frame import POINT_COLUMNS

        finished = self.points[self.endings == FINISHED]
        return self._frame(
            sweep,
            POINT_COLUMNS,
            points=np.arange(len(self)),
            status=STATUS[self.status],
            finished_at=self._largest(self.finished_at),
            own={"replicates": np.bincount(finished, minlength=len(self))},
            metrics=self._sums(),
        )

    def replicates_frame(self, sweep: str) -> pd.DataFrame:
        """As `tracking.replicates_frame` makes it of the same points."""
        from tracking.frame import REPLICATE_COLUMNS

        return self._frame(
            sweep,
            REPLICATE_COLUMNS,
            points=self.points,
            status=STATUS[self.endings],
            finished_at=self.finished_at,
            own={name: self._of_rows(name) for name in REPLICATE_COLUMNS},
            metrics=self._known("metric", self.rows),
        )

    def notes(self) -> list[Note]:
        """What `TradeoffPoint.notes` says of each point."""
        finished = self.endings == FINISHED
        totals = np.bincount(self.points[finished], minlength=len(self)).tolist()
        texts = self.table["notes"].take(self.rows[finished]).to_pylist()
        words: dict[tuple[int, str], list[str]] = {}
        for point, text in zip(self.points[finished].tolist(), texts, strict=True):
            for key, reason in parse_notes(text).items() if text else ():
                words.setdefault((point, key), []).append(reason)
        return [
            Note(
                self.point_ids[point], key, f"{said[0]} ({len(said)} of {totals[point]} replicates)"
            )
            for (point, key), said in sorted(words.items())
        ]

    def files(self) -> frozenset[str]:
        """Names of the files that replicates of finished points came with."""
        rows = self.rows[self.status[self.points] == FINISHED]
        names = pc.list_flatten(self.table["artifacts"].take(rows))
        return frozenset(names.unique().to_pylist())

    def _frame(self, sweep: str, own_columns: Mapping[str, str], **columns: Any) -> pd.DataFrame:
        from tracking.frame import TableColumns, table_from_columns

        experiments, configs = (
            self.table[name].take(self.firsts).to_pylist() for name in ("experiment", "config")
        )
        named = TableColumns(
            point_ids=self.point_ids,
            experiments=experiments,
            configs=[parse_config(config) for config in configs],
            **columns,
        )
        return table_from_columns(named, own_columns, sweep)

    def _sums(self) -> dict[str, Floats]:
        """Every metric's mean over the finished replicates of a point, and its spread."""
        finished = self.endings == FINISHED
        rows = self.rows[finished]
        sums = Sums(self.points[finished], len(self))
        errors = self._known("standard_error", rows)
        found: dict[str, Floats] = {}
        for key, values in sorted(self._known("metric", rows).items()):
            summary = sums.summary(values, errors.get(key))
            found.update({key + end: part for end, part in zip(SUFFIXES, summary, strict=True)})
        return found

    def _known(self, family: str, rows: Places) -> dict[str, Floats]:
        """Values of each key that some of the rows have, NaN where others lack it."""
        return {
            key: column.to_numpy()[rows]
            for key, column in family_columns(self.table, family).items()
            if len(rows) and _some(column, rows)
        }

    def _of_rows(self, name: str) -> Any:
        """A column's values, or None, of each replicate."""
        column = self.table[name]
        if pa.types.is_string(column.type):
            return column.take(self.rows).to_pylist()
        return column.to_numpy()[self.rows]

    def _largest(self, values: Any) -> Any:
        """Each point's largest value."""
        starts = np.searchsorted(self.points, np.arange(len(self)))
        return np.maximum.reduceat(values, starts) if len(starts) else values


def replicates(tables: Iterable[pa.Table]) -> Replicates:
    """What tables of a ledger hold, of repeats the one that finished first.

    Args:
        tables: From `Ledger.tables`, with the columns that `in_tables` wants.
    """
    table = pa.concat_tables([_NONE, *tables], promote_options="default")
    names = table["point_id"].combine_chunks().dictionary_encode()
    codes = np.asarray(names.indices, dtype=np.int64)
    seeds, times = table["seed"].to_numpy(), table["finished_at"].to_numpy()
    order = np.lexsort([times, seeds, codes])
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(codes[order]) != 0) | (np.diff(seeds[order]) != 0)
    rows = order[new]
    _, firsts = np.unique(codes, return_index=True)
    return Replicates(table, rows, codes[rows], names.dictionary.to_pylist(), firsts)


def _some(column: pa.ChunkedArray, rows: Places) -> bool:
    """Whether any of the rows holds a value."""
    if not column.null_count:
        return True
    return bool(column.is_valid().to_numpy()[rows].any())
