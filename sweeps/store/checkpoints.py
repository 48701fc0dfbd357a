"""Packs in training: what is kept of them until they are in the ledger."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, TypeAdapter

from privnets.points import TradeoffPoint
from sweeps.store.artifacts import write_artifacts
from sweeps.store.codec import PackFileError, decode_table, encode_points, points_from_tables
from sweeps.store.filesystem import Directory
from sweeps.store.ledger import Ledger

if TYPE_CHECKING:
    import torch

ReplicateKey = tuple[str, int]
_POINTS = "points.parquet"
_STATE = "state.safetensors"
_MEMBERS = TypeAdapter(tuple[ReplicateKey, ...])


class _Header(BaseModel):
    """Of a safetensors file, as far as it is read here."""

    metadata: dict[str, str] = Field(alias="__metadata__")


@dataclass(frozen=True)
class CheckpointContent:
    """What a checkpoint holds; empty where there is none.

    Attributes:
        points: Points of one replicate each that are finished.
        remaining: The (point_id, seed) of the stack that `state` continues, in the stack's order.
        state: Tensors on the CPU; None when there is no usable state.
    """

    points: tuple[TradeoffPoint, ...] = ()
    remaining: tuple[ReplicateKey, ...] = ()
    state: Mapping[str, torch.Tensor] | None = None

    def members(self) -> tuple[ReplicateKey, ...]:
        """Every (point_id, seed) that the checkpoint speaks of."""
        done = ((p.point_id, r.seed) for p in self.points for r in p.replicates)
        return tuple(dict.fromkeys((*done, *self.remaining)))


@dataclass
class Checkpoint:
    """A pack's checkpoint.

    Points are written before the state that leaves them out, each atomically: between the two
    writes a finished point is merely also part of the state, and is dropped when it comes again.

    Attributes:
        ledger: Of the pack's sweep.
        pack_id: The pack.
        label: What must be equal for a state to be continued: experiment and versions.
    """

    ledger: Ledger
    pack_id: str
    label: str
    _kept: int = field(default=0, init=False)

    def save(
        self,
        points: Sequence[TradeoffPoint],
        rest: Iterable[ReplicateKey],
        state: Mapping[str, torch.Tensor],
    ) -> None:
        """Keep a stack as it stands.

        Args:
            points: Finished so far; only ever grows from call to call.
            rest: Members that `state` continues, in the stack's order.
            state: A stage's tensors.

        Raises:
            OSError: If it cannot be written; what was kept before still is.
            RunSupersededError: If the run that it is for is over; likewise.
        """
        from safetensors.torch import save

        self.ledger.check_lease()
        if len(points) > self._kept:
            write_artifacts(self.ledger.directory / "artifacts", points[self._kept :])
            self._directory.write(_POINTS, encode_points(points))
            self._kept = len(points)
        tensors = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
        metadata = {"label": self.label, "rest": json.dumps([list(member) for member in rest])}
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        self._directory.write(_STATE, save(contiguous, metadata))

    def load(self) -> CheckpointContent:
        """What is kept; whatever is damaged or of another version counts as absent."""
        points = self._points()
        rest, state = self._state()
        return CheckpointContent(points, rest, state)

    def remove(self) -> None:
        """Drop it."""
        self._directory.remove()

    @property
    def _directory(self) -> Directory:
        return self.ledger.directory / "checkpoints" / self.pack_id

    def _points(self) -> tuple[TradeoffPoint, ...]:
        try:
            table = decode_table(self._directory.read(_POINTS))
        except (OSError, PackFileError):
            return ()
        return tuple(points_from_tables([table], self.ledger.directory / "artifacts"))

    def _state(self) -> tuple[tuple[ReplicateKey, ...], Mapping[str, torch.Tensor] | None]:
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            content = self._directory.read(_STATE, _half_of_memory())
            metadata = _metadata(content)
            if metadata.get("label") != self.label:
                return (), None
            return _MEMBERS.validate_json(metadata["rest"]), load(content)
        # Sizes and types that cannot be are for safetensors, numpy and torch to complain of.
        except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError):
            return (), None


def checkpointed_packs(ledger: Ledger) -> list[str]:
    """Ids of the packs that have a checkpoint."""
    return (ledger.directory / "checkpoints").directories()


def _metadata(content: bytes) -> Mapping[str, str]:
    """The texts in a safetensors file's header; the package reads them from local files alone.

    Raises:
        ValueError: If that is no such header.
    """
    length = int.from_bytes(content[:8], "little")
    return _Header.model_validate_json(content[8 : 8 + length]).metadata


def _half_of_memory() -> int:
    """Bytes of a state that is worth reading at all."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
