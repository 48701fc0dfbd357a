"""Reuse of trainings: finished replicates of other sweeps are copied instead of trained again."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import pyarrow.compute as pc

from privnets.credentials import redact
from privnets.points import TradeoffPoint
from sweeps.errors import InputError
from sweeps.store.codec import ReplicateKey, replicate_keys
from sweeps.store.ledger import Ledger, list_sweeps
from sweeps.store.manifest import Manifest, ReusedSweep, read_manifest, write_manifest
from sweeps.store.recorded import PREFIX, open_ledger

AUTO: Final = "auto"
_KEY_COLUMNS: Final = ("point_id", "seed", "failure", "stopped")


def find_sources(names: Sequence[str], ledger: Ledger) -> list[Ledger]:
    """Ledgers of the sweeps to reuse.

    Args:
        names: `SWEEP` of the ledger's storage, `STORAGE/SWEEP`, `recorded:SWEEP`, or `auto` for
            all of its storage.
        ledger: Ledger that the trainings are copied to.

    Raises:
        InputError: If a sweep does not exist.
    """
    sources = []
    for name in names:
        if name.startswith(PREFIX):
            sources.append(open_ledger(name))
            continue
        storage, _, sweep = name.rpartition("/")
        own = list_sweeps(ledger.storage) if name == AUTO else [sweep]
        sources += [Ledger(storage or ledger.storage, each) for each in own]
    for source in sources:
        try:
            source.read_spec()
        except InputError as error:
            if source.storage != ledger.storage or source.has_spec():
                raise
            hint = f"a sweep of another storage is named STORAGE/{source.sweep}"
            raise InputError(f"{error}; {hint}") from error
    place = (ledger.storage, ledger.sweep)
    return [source for source in sources if (source.storage, source.sweep) != place]


def finished_points(source: Ledger) -> Iterator[TradeoffPoint]:
    """Points of a sweep with their replicates that finished, if there are any."""
    for point in source.read_points():
        if point.succeeded:
            yield replace(point, replicates=point.succeeded)


def recorded_sources(manifest: Manifest, ledger: Ledger) -> list[Ledger]:
    """Ledgers of the origins of a sweep that still exist.

    Credentials never go to a server that only `spec.yaml` names: of object storages, only the
    sweep's own is read.
    """
    sources = []
    for origin in manifest.reused:
        is_own = origin.storage == redact(ledger.storage)
        try:
            if is_own or "://" not in origin.storage:
                source = Ledger(ledger.storage if is_own else origin.storage, origin.sweep)
                sources += [source] if source.has_spec() else []
        except InputError:  # it cannot be read any more
            continue
    return sources


def record_sources(manifest: Manifest, sources: Iterable[Ledger]) -> Manifest:
    """Returns the manifest with the sources as origins, so that a later run finds them."""
    origins = {(origin.storage, origin.sweep): origin for origin in manifest.reused}
    for source in sources:
        place = (redact(source.storage), source.sweep)
        origins.setdefault(place, ReusedSweep(storage=place[0], sweep=place[1]))
    return manifest.model_copy(update={"reused": tuple(origins.values())})


@dataclass
class ReusedSweeps:
    """Finished replicates of other sweeps, copied to a sweep that needs them.

    Attributes:
        ledger: Ledger that they are copied to.
        sources: Ledgers of the other sweeps, recorded in the manifest.
        copied: Number of replicates that were copied.
    """

    ledger: Ledger
    sources: Sequence[Ledger] = ()
    copied: int = 0

    @property
    def available(self) -> int:
        """Number of finished replicates of the other sweeps."""
        return len({key for _, _, keys in self._packs for key in keys})

    def copy(self, wanted: Iterable[ReplicateKey]) -> set[ReplicateKey]:
        """Copies those of the wanted replicates that other sweeps have, with their files.

        Args:
            wanted: Replicates that the ledger lacks.

        Returns:
            The copied ones.

        Raises:
            InputError: If the manifest cannot be read.
            OSError: If the ledger cannot be written.
            RunSupersededError: If the run has ended or was taken over.
        """
        missing, chosen = set(wanted), []
        for source, pack_id, keys in self._packs if missing else ():
            if taken := keys & missing:
                chosen.append((source, pack_id, taken))
                missing -= taken
        if chosen:
            # The manifest first, so that no copy is without its origin.
            packs: dict[tuple[str, str], set[str]] = {}
            for source, pack_id, _ in chosen:
                packs.setdefault((redact(source.storage), source.sweep), set()).add(pack_id)
            manifest = record_sources(read_manifest(self.ledger), [each[0] for each in chosen])
            origins = []
            for origin in manifest.reused:
                own_packs = packs.get((origin.storage, origin.sweep), set())
                names = tuple(sorted({*origin.packs, *own_packs}))
                origins.append(origin.model_copy(update={"packs": names}))
            write_manifest(self.ledger, manifest.model_copy(update={"reused": tuple(origins)}))
        copied: set[ReplicateKey] = set()
        for source, pack_id, keys in chosen:
            if points := _select(source, pack_id, keys):
                own = sorted((p.point_id, r.seed) for p in points for r in p.replicates)
                digest = hashlib.sha256(repr(own).encode()).hexdigest()[:8]
                self.ledger.write_pack(f"reused-{pack_id}-{digest}", points)
                copied.update(own)
        self.copied += len(copied)
        return copied

    @cached_property
    def _packs(self) -> list[tuple[Ledger, str, set[ReplicateKey]]]:
        """Packs of the other sweeps, with the replicates that finished."""
        packs = []
        for source in self.sources:
            for pack_id in source.pack_ids():
                for table in source.read_tables([pack_id], lambda name: name in _KEY_COLUMNS):
                    has_finished = pc.and_(
                        pc.is_null(table["failure"]), pc.is_null(table["stopped"])
                    )
                    keys = set(replicate_keys(table.filter(has_finished)))
                    packs.append((source, pack_id, keys))
        return packs


def _select(source: Ledger, pack_id: str, wanted: Collection[ReplicateKey]) -> list[TradeoffPoint]:
    """Points of a pack with their wanted replicates that finished and whose files are there."""
    points = []
    for point in source.read_points([pack_id], {point_id for point_id, _ in wanted}):
        kept = []
        for replicate in point.succeeded:
            if (point.point_id, replicate.seed) in wanted:
                with suppress(OSError):
                    kept.append(replace(replicate, artifacts=dict(replicate.artifacts)))
        if kept:
            points.append(replace(point, replicates=tuple(kept)))
    return points
