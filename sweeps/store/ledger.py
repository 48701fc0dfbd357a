"""The ledger: what a sweep has finished, in one atomic parquet file per pack.

The ledger is the truth about a sweep. Compute may happen twice; whatever crashes leave behind,
readers see each point and replicate once, and never a part of a file.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privnets.points import TradeoffPoint, merge_replicates
from sweeps.errors import InputError
from sweeps.store.artifacts import write_artifacts
from sweeps.store.codec import (
    ColumnFilter,
    PackFileError,
    decode_table,
    encode_points,
    is_any_column,
    is_fixed_column,
    points_from_tables,
    replicate_keys,
)
from sweeps.store.filesystem import Directory, open_directory
from sweeps.store.lease import check_lease
from sweeps.study.yaml_reader import dump_yaml, parse_yaml

_SPEC = "spec.yaml"
_MOST_BYTES = 1024**2
_MOST_VALUES = 200_000
_MOST_LISTED = 20
_READERS = 8
_ALLOWED = f"it must be at most {_MOST_BYTES // 1024**2} MiB"
_SWEEP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class Ledger:
    """One sweep's directory.

    Attributes:
        sweep: The sweep's name.
        directory: Where it is.
        unreadable: Files that the last reads of them passed over, each with the reason.
    """

    def __init__(self, storage: str, sweep: str, run: str | None = None) -> None:
        """Name a sweep's directory; nothing is made or read.

        Args:
            storage: Local path or URI under which sweeps live.
            sweep: The sweep's name.
            run: The run of it whose packs are to be written; see `sweeps.store.lease`.

        Raises:
            InputError: If the name could not be a directory's, or the URI cannot be opened.
        """
        if not _SWEEP_NAME.fullmatch(sweep):
            raise InputError(
                "a sweep's name must be at most 200 letters, digits, '.', '_' or '-' and begin "
                f"with a letter or digit; got {sweep!r}"
            )
        self.sweep = sweep
        self.directory: Directory = open_directory(storage) / sweep
        self.unreadable: dict[str, str] = {}
        self.run_id = run

    @property
    def run_id(self) -> str | None:
        """The run of the sweep whose packs are written here; None outside of any."""
        return self.directory.run_id

    @run_id.setter
    def run_id(self, run_id: str | None) -> None:
        self.directory = replace(self.directory, run_id=run_id)

    @property
    def _packs(self) -> Directory:
        return self.directory / "ledger"

    def write_pack(self, pack_id: str, points: Iterable[TradeoffPoint]) -> None:
        """Commit a finished pack: its artifacts, then its one file, which appears whole.

        A pack that is in the ledger stays as it is: two workers may train one, as the one which was
        cut off does not know that it was given up.

        Raises:
            OSError: If it cannot be written; the ledger is then as it was.
            RunSupersededError: If the run that it is for is over; the ledger is then as it was.
        """
        kept = list(points)
        self.check_lease()
        write_artifacts(self.directory / "artifacts", kept)
        name, content = f"{pack_id}.parquet", encode_points(kept)
        self.check_lease()  # again, as artifacts may take their time
        if (
            not self._packs.create_exclusive(name, content)
            and self._table(pack_id, is_fixed_column) is None
        ):
            self._packs.write(name, content)  # in the place of one that is damaged

    def check_lease(self) -> None:
        """Make sure that what is to be written is still wanted.

        Raises:
            RunSupersededError: If the run that it is for is over.
            OSError: If that cannot be told.
        """
        if self.run_id is not None:
            check_lease(self.directory, self.run_id)

    def pack_ids(self) -> list[str]:
        """Ids of the packs in the ledger, readable or not."""
        return [name.removesuffix(".parquet") for name in self._packs.files(".parquet")]

    def read_points(
        self, packs: Iterable[str] | None = None, only: Collection[str] | None = None
    ) -> list[TradeoffPoint]:
        """What has been finished: one point per `point_id`, one replicate per seed.

        Files that are damaged are passed over and noted in `unreadable`.

        Args:
            packs: Read these alone; all by default.
            only: Ids of the points to read; all by default.
        """
        tables = self.read_tables(packs) if only is None else self._tables_of(only, packs)
        return merge_replicates(points_from_tables(tables, self.directory / "artifacts"))

    def finished_replicates(self) -> set[tuple[str, int]]:
        """Every (point_id, seed) that never has to be trained again: just those `points` reads."""
        return {
            member
            for table in self.read_tables(wanted=is_fixed_column)
            for member in replicate_keys(table)
        }

    def read_tables(
        self, packs: Iterable[str] | None = None, wanted: ColumnFilter = is_any_column
    ) -> list[pa.Table]:
        """A table of each pack, a row per point and replicate, repeats included; see `records`.

        Files that are damaged are passed over and noted in `unreadable`.

        Args:
            packs: Read these alone; all by default.
            wanted: Which columns to read.
        """
        names = list(self.pack_ids() if packs is None else packs)
        if self.directory.local_path is not None:  # where threads would only wait for each other
            found = [self._table(name, wanted) for name in names]
        else:
            with ThreadPoolExecutor(_READERS) as pool:
                found = list(pool.map(self._table, names, repeat(wanted)))
        return [table for table in found if table is not None]

    def write_spec(self, spec: Mapping[str, Any]) -> None:
        """Put down what the sweep is.

        Raises:
            OSError: If it cannot be written.
            InputError: If it is longer than `spec` reads.
        """
        content = dump_yaml(spec).encode()
        if len(content) > _MOST_BYTES:
            raise InputError(f"{_SPEC} would be {len(content):,} bytes; {_ALLOWED}")
        self.directory.write(_SPEC, content)

    def has_spec(self) -> bool:
        """Whether a sweep of this name has been started.

        Raises:
            InputError: If its directory cannot be looked into.
        """
        try:
            return _SPEC in self.directory.files()
        except OSError as error:
            raise InputError(f"{self.directory.path} cannot be read: {error}") from error

    def read_spec(self) -> dict[str, Any]:
        """What the sweep is, as written when it started.

        Raises:
            InputError: If there is no such sweep, or its `spec.yaml` is damaged.
        """
        where = f"{self.directory.path}/{_SPEC}"
        if not self.has_spec():
            raise InputError(
                f"there is no sweep {self.sweep!r}: {where} does not exist{self._others()}"
            )
        try:
            text = self.directory.read(_SPEC, _MOST_BYTES).decode()
            found = parse_yaml(text, _MOST_BYTES, _MOST_VALUES)
        except (OSError, ValueError) as error:
            raise InputError(f"{where} cannot be read: {error}") from error
        if not isinstance(found.value, dict):
            raise InputError(f"{where} must be a mapping; got {type(found.value).__name__}")
        if found.repeated:
            raise InputError(f"{where} has the key {found.repeated[0].key} twice")
        return found.value

    def _others(self) -> str:
        try:
            names = self.directory.parent.directories()
        except OSError:  # the message is about another thing
            return ""
        if not names:
            return ""
        near = difflib.get_close_matches(self.sweep, names, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"; there are {', '.join(sorted(names)[:_MOST_LISTED])}{hint}"

    def write_failure(self, pack_id: str, failure: Mapping[str, Any]) -> None:
        """Put down why a pack came to nothing.

        Raises:
            OSError: If it cannot be written.
        """
        content = json.dumps(failure, indent=1).encode()
        (self.directory / "failures").write(f"{pack_id}.json", content)

    def _tables_of(self, points: Collection[str], packs: Iterable[str] | None) -> list[pa.Table]:
        """The rows of some points; just the packs that hold any are read whole."""
        names = pa.array(list(points), pa.string())
        found = []
        for pack_id in self.pack_ids() if packs is None else packs:
            told = self._table(pack_id, lambda name: name == "point_id")
            if told is None or not pc.any(pc.is_in(told["point_id"], names)).as_py():
                continue
            whole = self._table(pack_id, is_any_column)
            if whole is not None:
                found.append(whole.filter(pc.is_in(whole["point_id"], names)))
        return found

    def _table(self, pack_id: str, wanted: ColumnFilter) -> pa.Table | None:
        name = f"{pack_id}.parquet"
        try:
            table = decode_table(self._packs.read(name), wanted)
        except (OSError, PackFileError) as error:
            self.unreadable[name] = str(error).splitlines()[0] if str(error) else repr(error)
            return None
        self.unreadable.pop(name, None)
        return table
