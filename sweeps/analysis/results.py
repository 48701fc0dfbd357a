"""What a sweep has found, as tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from privnets.points import TradeoffPoint
from sweeps.store.codec import is_fixed_column
from sweeps.store.columns import Note, Replicates, is_table_column, replicates
from sweeps.store.filesystem import absolute_storage
from sweeps.store.following import is_complete
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import Manifest, read_manifest
from sweeps.study.spec import Study
from tracking.errors import redact

if TYPE_CHECKING:
    import pandas as pd

    from privnets.contract import Direction

DEFAULT_STORAGE = "./sweep-results"
_MOST_BYTES = 16 * 2**20


class _Failure(BaseModel):
    """What is written of a pack that came to nothing, as far as it is read here."""

    members: tuple[tuple[str, int], ...]
    reason: str


@dataclass(frozen=True, repr=False)
class Result:
    """A sweep's complete points, and what it was.

    Attributes:
        manifest: What the sweep is.
        storage: Where it is kept; absolute, with credentials if it was given any.
        failures: Pack to why it came to nothing.
        unreadable: Files of the ledger that were passed over, each with the reason.
    """

    manifest: Manifest
    storage: str
    failures: Mapping[str, str]
    unreadable: Mapping[str, str]
    _ledger: Ledger
    _packs: Sequence[str]
    _columns: Replicates

    def __repr__(self) -> str:
        """The sweep's name and size; its tables are long."""
        plan, done = self.manifest.plan, len(self._columns)
        size = f"{done} of {plan.points} points, {len(plan.seeds)} replicates each"
        return f"Result({self.sweep!r}: {size}, in {redact(self.storage)})"

    @property
    def sweep(self) -> str:
        """The sweep's name."""
        return self.manifest.sweep

    @property
    def study(self) -> Study:
        """Its study."""
        return self.manifest.study

    @property
    def objectives(self) -> Mapping[str, Direction]:
        """Metric to `min` or `max`."""
        return self.manifest.plan.objectives

    @property
    def log_fields(self) -> frozenset[str]:
        """Swept fields on a logarithmic scale."""
        return frozenset(self.manifest.plan.log_fields)

    @property
    def swept(self) -> list[str]:
        """Fields to tell points apart by: those the study sweeps, and any other that differs."""
        from sweeps.analysis.frames import varying

        return list(dict.fromkeys([*self.study.space, *varying(self.points)]))

    @property
    def spec(self) -> Mapping[str, Any]:
        """What `spec.yaml` holds."""
        return self.manifest.model_dump(mode="json")

    @property
    def counts(self) -> Mapping[str, int]:
        """How many complete points are `finished`, `stopped` and `failed`."""
        return self._columns.counts()

    @property
    def pending(self) -> int:
        """How many points still lack replicates."""
        return self.manifest.plan.points - len(self._columns)

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row per complete point; see `tracking.points_frame`."""
        return self._columns.points_frame(self.sweep)

    @cached_property
    def replicates(self) -> pd.DataFrame:
        """One row per complete point and replicate; see `tracking.replicates_frame`."""
        return self._columns.replicates_frame(self.sweep)

    @cached_property
    def tradeoff_points(self) -> Sequence[TradeoffPoint]:
        """The complete points as objects, with curves, notes and files: slow where they are many.

        Read from the ledger when first asked for.
        """
        seeds = frozenset(self.manifest.plan.seeds)
        return [
            point for point in self._ledger.read_points(self._packs) if is_complete(point, seeds)
        ]

    def whole(self, point_ids: Collection[str]) -> Mapping[str, TradeoffPoint]:
        """Some of `tradeoff_points` by id, without reading the others."""
        seeds = frozenset(self.manifest.plan.seeds)
        found = self._ledger.read_points(self._packs, point_ids) if point_ids else ()
        return {point.point_id: point for point in found if is_complete(point, seeds)}

    @property
    def notes(self) -> Sequence[Note]:
        """Why metrics of complete points are undefined, and flags raised."""
        return self._details.notes()

    @cached_property
    def files(self) -> Collection[str]:
        """Names of the files that some finished point came with."""
        return self._details.files()

    @cached_property
    def _details(self) -> Replicates:
        tables = self._ledger.read_tables(self._packs, is_fixed_column)
        return replicates(tables).complete(self.manifest.plan.seeds)

    def front(self) -> pd.DataFrame:
        """The Pareto front on the study's objectives; empty while no point is finished."""
        from sweeps.analysis.pareto import pareto_front

        if not self.counts["finished"]:
            return self.points.iloc[:0]
        return pareto_front(self.points, self.objectives)


def open_result(sweep: str, storage: str | None = None) -> Result:
    """Read a sweep, running or ended.

    Args:
        sweep: Its name.
        storage: Where sweeps are kept; `./sweep-results` if None.

    Raises:
        InputError: If there is no such sweep, or its `spec.yaml` is damaged.
    """
    where = absolute_storage(storage or DEFAULT_STORAGE)
    return read_result(Ledger(where, sweep), where)


def read_result(ledger: Ledger, storage: str) -> Result:
    """Read a sweep from its ledger.

    Raises:
        InputError: If there is no such sweep, or its `spec.yaml` is damaged.
    """
    manifest = read_manifest(ledger)
    packs = ledger.pack_ids()
    kept = replicates(ledger.read_tables(packs, is_table_column))
    failures = read_failures(ledger, lambda: kept.members)
    return Result(
        manifest,
        storage,
        failures,
        dict(sorted(ledger.unreadable.items())),
        ledger,
        packs,
        kept.complete(manifest.plan.seeds),
    )


def read_failures(ledger: Ledger, done: Callable[[], Set[tuple[str, int]]]) -> dict[str, str]:
    """Why packs came to nothing, those that a later attempt finished left out.

    Args:
        ledger: Of the sweep.
        done: Gives every (point_id, seed) in it; asked where there is a failure.
    """
    directory = ledger.directory / "failures"
    found: dict[str, str] = {}
    for name in directory.files(".json"):
        try:
            failure = _Failure.model_validate_json(directory.read(name, _MOST_BYTES))
        except (OSError, ValueError):
            ledger.unreadable[f"failures/{name}"] = "no record of a failure"
            continue
        members, reason = set(failure.members), failure.reason
        if not members <= done():
            found[name.removesuffix(".json")] = reason
    return found
