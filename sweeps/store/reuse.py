"""Reuse of trainings: finished replicates of other sweeps are copied instead of trained again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from privnets.points import TradeoffPoint
from sweeps.store.ledger import Ledger, list_sweeps
from sweeps.store.manifest import Origin

AUTO: Final = "auto"
_PREFIX: Final = "reused-"


def find_sources(names: Sequence[str], ledger: Ledger) -> list[Ledger]:
    """Ledgers of the sweeps to reuse.

    Args:
        names: `SWEEP` of the ledger's storage, `STORAGE/SWEEP`, or `auto` for all of its storage.
        ledger: Ledger that the trainings are copied to.

    Raises:
        InputError: If a sweep does not exist.
    """
    sources = []
    for name in names:
        storage, _, sweep = name.rpartition("/")
        own = list_sweeps(ledger.storage) if name == AUTO else [sweep]
        sources += [Ledger(storage or ledger.storage, each) for each in own]
    for source in sources:
        source.read_spec()
    place = (ledger.storage, ledger.sweep)
    return [source for source in sources if (source.storage, source.sweep) != place]


def finished_points(source: Ledger) -> Iterator[TradeoffPoint]:
    """Points of a sweep with their replicates that finished, if there are any."""
    for point in source.read_points():
        if point.succeeded:
            yield replace(point, replicates=point.succeeded)


def find_origins(sources: Sequence[Ledger], wanted: Collection[tuple[str, int]]) -> list[Origin]:
    """Packs of other sweeps that hold wanted replicates; each replicate is taken once."""
    missing, origins = set(wanted), []
    for source in sources:
        packs = []
        for pack_id in source.pack_ids():
            points = _select(source, pack_id, missing)
            keys = {(point.point_id, r.seed) for point in points for r in point.replicates}
            if keys:
                packs.append(pack_id)
                missing -= keys
        if packs:
            origins.append(Origin(storage=source.storage, sweep=source.sweep, packs=tuple(packs)))
    return origins


def copy_replicates(
    origins: Sequence[Origin], ledger: Ledger, wanted: Collection[tuple[str, int]]
) -> None:
    """Copies the wanted replicates of other sweeps, with their files; repeating it adds nothing.

    Raises:
        InputError: If a sweep cannot be read.
        OSError: If the ledger cannot be written.
        RunSupersededError: If the run has ended or was taken over.
    """
    missing = set(wanted) - ledger.finished_replicates()
    for origin in origins:
        source = Ledger(origin.storage, origin.sweep)
        for pack_id in origin.packs:
            points = _select(source, pack_id, missing)
            missing -= {(point.point_id, r.seed) for point in points for r in point.replicates}
            if points:
                ledger.write_pack(f"{_PREFIX}{pack_id}", points)


def _select(
    source: Ledger, pack_id: str, wanted: Collection[tuple[str, int]]
) -> list[TradeoffPoint]:
    """Points of a pack with their wanted replicates that finished."""
    points = []
    for point in source.read_points([pack_id], {point_id for point_id, _ in wanted}):
        kept = tuple(r for r in point.succeeded if (point.point_id, r.seed) in wanted)
        if kept:
            points.append(replace(point, replicates=kept))
    return points
