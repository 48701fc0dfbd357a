"""Checkpoints of packs in training, kept until the pack is in the ledger."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, Field, Json
from safetensors import SafetensorError

from privnets.contract import Experiment, State
from privnets.points import TradeoffPoint
from privnets.registry import package_version
from sweeps.store.artifacts import write_artifacts
from sweeps.store.codec import (
    PackFileError,
    ReplicateKey,
    decode_table,
    encode_points,
    points_from_tables,
)
from sweeps.store.filesystem import Directory
from sweeps.store.lease import check_lease
from sweeps.store.ledger import Ledger

_POINTS_FILE: Final = "points.parquet"
_STATE_FILE: Final = "state.safetensors"
_MAX_HEADER_BYTES: Final = 64 * 2**20
_NO_FILE: Final = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EFBIG}
# A damaged header makes safetensors, numpy or torch raise any of these.
_DAMAGED: Final = (ValueError, TypeError, KeyError, RuntimeError, SafetensorError)


class _Metadata(BaseModel):
    """Metadata of a state; see `CheckpointContent` and `Checkpoint`."""

    label: str
    remaining: Json[tuple[ReplicateKey, ...]]


class _SafetensorsHeader(BaseModel):
    metadata: _Metadata = Field(alias="__metadata__")


@dataclass(frozen=True)
class CheckpointContent:
    """Content of a checkpoint; empty if there is none.

    Attributes:
        points: Finished points, with one replicate each.
        remaining: Replicates of the stack that `state` continues, in the stack's order.
        state: Tensors on the CPU; None without a usable state.
    """

    points: tuple[TradeoffPoint, ...] = ()
    remaining: tuple[ReplicateKey, ...] = ()
    state: State | None = None


@dataclass
class Checkpoint:
    """Checkpoint of a pack.

    Finished points are written before the state without them, each file atomically. After a crash
    between the two, the old state still contains those points, and their second result is dropped.

    Attributes:
        label: Experiment and versions; a state with another label is not continued.
    """

    ledger: Ledger
    pack_id: str
    label: str
    _saved_points: int = field(default=0, init=False)

    def save(
        self,
        points: Sequence[TradeoffPoint],
        remaining: Iterable[ReplicateKey],
        state: State,
    ) -> None:
        """Saves the state of a stack.

        Args:
            points: All points finished so far, the ones saved before first.
            remaining: Replicates that `state` continues, in the stack's order.
            state: Tensors of the stack.

        Raises:
            OSError: If it cannot be written; the last checkpoint is kept.
            RunSupersededError: If the run has ended or was taken over; likewise.
        """
        from safetensors.torch import save

        check_lease(self.ledger.directory)
        if len(points) > self._saved_points:
            write_artifacts(self.ledger.directory / "artifacts", points[self._saved_points :])
            self._directory.write(_POINTS_FILE, encode_points(points))
            self._saved_points = len(points)
        tensors = {name: t.detach().cpu().clone().contiguous() for name, t in state.items()}
        metadata = {"label": self.label, "remaining": json.dumps([list(key) for key in remaining])}
        self._directory.write(_STATE_FILE, save(tensors, metadata))

    def load(self) -> CheckpointContent:
        """Loads the checkpoint; damaged files and states with another label count as absent.

        Raises:
            OSError: If the storage cannot be read now.
        """
        from safetensors.torch import load

        points = self._load_points()
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2  # of the memory
        content = self._read(lambda: self._directory.read(_STATE_FILE, limit))
        try:
            remaining = self._remaining(content)
            return CheckpointContent(points, remaining, load(content) if remaining else None)
        except _DAMAGED:
            return CheckpointContent(points)

    def replicate_keys(self) -> tuple[ReplicateKey, ...]:
        """All replicates of the checkpoint, finished and remaining; reads no tensors.

        Raises:
            OSError: If the storage cannot be read now.
        """
        finished = ((p.point_id, r.seed) for p in self._load_points() for r in p.replicates)
        start = self._read(lambda: self._directory.read_start(_STATE_FILE, _MAX_HEADER_BYTES))
        try:
            remaining = self._remaining(start)
        except _DAMAGED:
            remaining = ()
        return tuple(dict.fromkeys((*finished, *remaining)))

    def remove(self) -> None:
        """Deletes the checkpoint."""
        self._directory.remove()

    @property
    def _directory(self) -> Directory:
        return self.ledger.directory / "checkpoints" / self.pack_id

    # Files are opened without listing the directory first: NFS may show an old listing.
    def _load_points(self) -> tuple[TradeoffPoint, ...]:
        content = self._read(lambda: self._directory.read(_POINTS_FILE))
        try:
            table = decode_table(content)
        except PackFileError:
            return ()
        return tuple(points_from_tables([table], self.ledger.directory / "artifacts"))

    def _read(self, read: Callable[[], bytes]) -> bytes:
        """Reads a file; returns no bytes if it is absent, too large or not a plain file."""
        try:
            return read()
        except OSError as error:
            if error.errno in _NO_FILE:
                return b""
            raise

    def _remaining(self, content: bytes) -> tuple[ReplicateKey, ...]:
        """Replicates that a state continues, from the start of its file; none of other labels."""
        # The package can read metadata from local files only.
        length = int.from_bytes(content[:8], "little")
        metadata = _SafetensorsHeader.model_validate_json(content[8 : 8 + length]).metadata
        return metadata.remaining if metadata.label == self.label else ()


def checkpointed_packs(ledger: Ledger) -> list[str]:
    """Ids of the packs that have a checkpoint."""
    return (ledger.directory / "checkpoints").directories()


def checkpoint_label(experiment: Experiment[Any]) -> str:
    """Label that a checkpoint and the code that continues it must share: names and versions."""
    return f"{experiment.name} {experiment.version} {package_version('privnets-sweeps')}"
