"""Ledger: finished packs of a sweep, one atomic parquet file each.

The ledger is the only source of truth about a sweep. Compute may happen twice and processes may be
killed at any moment; readers see each replicate once, and never a part of a file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from privnets.points import TradeoffPoint, merge_replicates
from sweeps.errors import InputError, describe_choices
from sweeps.store.artifacts import write_artifacts
from sweeps.store.codec import (
    ColumnFilter,
    PackFileError,
    ReplicateKey,
    decode_table,
    encode_points,
    points_from_tables,
    replicate_keys,
)
from sweeps.store.filesystem import Directory, absolute_storage, open_directory
from sweeps.store.lease import check_lease
from sweeps.study.yaml_reader import dump_yaml, parse_yaml

_LOG_FILE: Final = "log.txt"
_SPEC_FILE: Final = "spec.yaml"
_MAX_SPEC_BYTES: Final = 1024**2
_MAX_SPEC_VALUES: Final = 200_000
_PARALLEL_READS: Final = 8
_SWEEP_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class Ledger:
    """Directory of one sweep.

    Attributes:
        storage: Absolute path or URI that contains sweeps, with credentials if it was given any.
        directory: Directory of the sweep, for the run that packs are written for.
        unreadable: Files that the last reads skipped, with the reason.
    """

    def __init__(self, storage: str, sweep: str, run_id: str | None = None) -> None:
        """Names the directory of a sweep; nothing is created or read.

        Args:
            storage: Local path or URI that contains sweeps.
            sweep: Name of the sweep.
            run_id: Run that packs are written for; None for a process without a run.

        Raises:
            InputError: If the name cannot be that of a directory, or the URI cannot be opened.
        """
        if not _SWEEP_NAME.fullmatch(sweep):
            raise InputError(
                "a sweep's name must be at most 200 letters, digits, '.', '_' or '-' and begin "
                f"with a letter or digit; got {sweep!r}"
            )
        self.sweep = sweep
        self.storage = absolute_storage(storage)
        self.directory: Directory = replace(open_directory(storage) / sweep, run_id=run_id)
        self.unreadable: dict[str, str] = {}

    @property
    def _packs(self) -> Directory:
        return self.directory / "ledger"

    @property
    def log_path(self) -> Path | None:
        """Log of the sweep's runs; None where the storage is not a local directory."""
        folder = self.directory.local_path
        return None if folder is None else folder / _LOG_FILE

    def log(self, text: str) -> None:
        """Appends lines with the local time to the log; a failure to do so is harmless."""
        if self.log_path is not None:
            with (
                suppress(OSError),
                # A symbolic link would lead out of the sweep's directory.
                open(
                    self.log_path, "a", encoding="utf-8",
                    opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o666),
                ) as file,
            ):  # fmt: skip
                file.writelines(f"{datetime.now():%F %T} {line}\n" for line in text.splitlines())

    def write_pack(self, pack_id: str, points: Iterable[TradeoffPoint]) -> None:
        """Commits a finished pack: its artifacts, then its file, which appears whole.

        A pack that is in the ledger stays as it is: a worker that was cut off may train a pack that
        another worker was given meanwhile.

        Raises:
            OSError: If it cannot be written; the ledger is unchanged.
            RunSupersededError: If the run has ended or was taken over; the ledger is unchanged.
        """
        points = list(points)
        check_lease(self.directory)
        write_artifacts(self.directory / "artifacts", points)
        name, content = f"{pack_id}.parquet", encode_points(points)
        check_lease(self.directory)  # again, as writing artifacts may take long
        if not self._packs.create_exclusive(name, content) and self._read_table(pack_id) is None:
            self._packs.write(name, content)  # replaces a damaged file

    def pack_ids(self) -> list[str]:
        """Ids of the packs in the ledger, readable or not."""
        return [name.removesuffix(".parquet") for name in self._packs.files(".parquet")]

    def finished_replicates(self) -> set[ReplicateKey]:
        """The (point_id, seed) of every replicate in the ledger, which is never trained again.

        Whole files are read: a replicate whose curves are damaged is trained again.
        """
        return {key for table in self.read_tables() for key in replicate_keys(table)}

    def read_points(
        self, pack_ids: Iterable[str] | None = None, only: Collection[str] | None = None
    ) -> list[TradeoffPoint]:
        """Reads points: one per `point_id`, with one replicate per seed.

        Damaged files are skipped and noted in `unreadable`.

        Args:
            pack_ids: Packs to read; all if None.
            only: Ids of the points to return; all if None.
        """
        if only is None:
            return self.merge_points(self.read_tables(pack_ids))
        names, tables = pa.array(list(only), pa.string()), []
        for pack_id in self.pack_ids() if pack_ids is None else pack_ids:
            ids = self._read_table(pack_id, lambda name: name == "point_id")
            if ids is not None and pc.any(pc.is_in(ids["point_id"], names)).as_py():
                tables += self.read_tables([pack_id])
        selected = [table.filter(pc.is_in(table["point_id"], names)) for table in tables]
        return self.merge_points(selected)

    def merge_points(self, tables: Sequence[pa.Table]) -> list[TradeoffPoint]:
        """Points in tables of this ledger: one per `point_id`, with one replicate per seed."""
        return merge_replicates(points_from_tables(tables, self.directory / "artifacts"))

    def read_tables(
        self, pack_ids: Iterable[str] | None = None, columns: ColumnFilter | None = None
    ) -> list[pa.Table]:
        """Reads packs as tables: one row per point and replicate, see `sweeps.store.codec`.

        Damaged files are skipped and noted in `unreadable`.

        Args:
            pack_ids: Packs to read; all if None.
            columns: Columns to read; all if None. Damage in the others is not noticed.
        """
        names = list(self.pack_ids() if pack_ids is None else pack_ids)
        read = partial(self._read_table, columns=columns)
        if self.directory.local_path is not None:  # threads gain nothing on a local disk
            tables = [read(name) for name in names]
        else:
            with ThreadPoolExecutor(_PARALLEL_READS) as pool:
                tables = list(pool.map(read, names))
        return [table for table in tables if table is not None]

    def write_failure(
        self, pack_id: str, members: Iterable[ReplicateKey], reason: str, details: str = ""
    ) -> None:
        """Records why a pack failed permanently.

        Args:
            pack_id: Id of the pack.
            members: Its replicates, by point_id and seed.
            reason: The reason in a line.
            details: Text such as a traceback.

        Raises:
            OSError: If it cannot be written.
            RunSupersededError: If the run has ended or was taken over.
        """
        check_lease(self.directory)
        failure = {"reason": reason, "members": [*map(list, members)], "details": details}
        content = json.dumps(failure, indent=1).encode()
        (self.directory / "failures").write(f"{pack_id}.json", content)

    def write_spec(self, spec: Mapping[str, Any]) -> None:
        """Writes `spec.yaml`.

        Raises:
            InputError: If it is larger than 1 MiB.
        """
        content = dump_yaml(spec).encode()
        if len(content) > _MAX_SPEC_BYTES:
            raise InputError(
                f"{_SPEC_FILE} would be {len(content):,} bytes; it must be at most 1 MiB"
            )
        self.directory.write(_SPEC_FILE, content)

    def has_spec(self) -> bool:
        """Returns whether a sweep of this name was started."""
        try:
            return _SPEC_FILE in self.directory.files()
        except OSError as error:
            raise InputError(f"{self.directory.path} cannot be read: {error}") from error

    def read_spec(self) -> dict[str, Any]:
        """Reads `spec.yaml`.

        Raises:
            InputError: If the sweep does not exist, or its `spec.yaml` is damaged.
        """
        path = f"{self.directory.path}/{_SPEC_FILE}"
        if not self.has_spec():
            names: list[str] = []
            with suppress(OSError):
                names = open_directory(self.storage).directories()
            names = [name for name in names if name != self.sweep]
            hint = f"; choose {describe_choices(names, self.sweep)}" if names else ""
            raise InputError(f"sweep {self.sweep!r} does not exist: {path} is missing{hint}")
        try:
            text = self.directory.read(_SPEC_FILE, _MAX_SPEC_BYTES).decode()
            document = parse_yaml(text, _MAX_SPEC_BYTES, _MAX_SPEC_VALUES)
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error
        if not isinstance(document.value, dict):
            raise InputError(f"{path} must be a mapping; got {type(document.value).__name__}")
        if document.repeated:
            raise InputError(f"{path} has the key {document.repeated[0].key} twice")
        return document.value

    def _read_table(self, pack_id: str, columns: ColumnFilter | None = None) -> pa.Table | None:
        """Table of a pack; None if its file is damaged."""
        name = f"{pack_id}.parquet"
        try:
            table = decode_table(self._packs.read(name), columns)
        except (OSError, PackFileError) as error:
            self.unreadable[name] = str(error).partition("\n")[0] or repr(error)
            return None
        self.unreadable.pop(name, None)
        return table


def list_sweeps(storage: str) -> list[str]:
    """Names of the sweeps that were started in a storage, sorted.

    Raises:
        InputError: If the storage cannot be read.
    """
    try:
        names = open_directory(storage).directories()
    except OSError as error:
        raise InputError(f"storage {storage} cannot be read: {error}") from error
    named = [name for name in names if _SWEEP_NAME.fullmatch(name)]
    return [name for name in named if Ledger(storage, name).has_spec()]
