"""What a sweep has found, as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from privnets.points import TradeoffPoint
from sweeps.following import complete
from sweeps.ledger import Ledger
from sweeps.manifest import Manifest, read_manifest
from sweeps.spec import Study
from sweeps.storage import absolute
from tracking.errors import redacted

if TYPE_CHECKING:
    import pandas as pd

    from privnets.contract import Direction

DEFAULT_STORAGE = "./sweep-results"


@dataclass(frozen=True, repr=False)
class Result:
    """A sweep's complete points, and what it was.

    Attributes:
        manifest: What the sweep is.
        storage: Where it is kept; absolute, with credentials if it was given any.
        tradeoff_points: The points that have all their replicates.
        failures: Pack to why it came to nothing.
        unreadable: Files of the ledger that were passed over, each with the reason.
    """

    manifest: Manifest
    storage: str
    tradeoff_points: Sequence[TradeoffPoint]
    failures: Mapping[str, str]
    unreadable: Mapping[str, str]

    def __repr__(self) -> str:
        """The sweep's name and size; its tables are long."""
        plan, done = self.manifest.plan, len(self.tradeoff_points)
        size = f"{done} of {plan.points} points, {len(plan.seeds)} replicates each"
        return f"Result({self.sweep!r}: {size}, in {redacted(self.storage)})"

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
        from sweeps.frames import varying

        return list(dict.fromkeys([*self.study.space, *varying(self.points)]))

    @property
    def spec(self) -> Mapping[str, Any]:
        """What `spec.yaml` holds."""
        return self.manifest.model_dump(mode="json")

    @property
    def pending(self) -> int:
        """How many points still lack replicates."""
        return self.manifest.plan.points - len(self.tradeoff_points)

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row per complete point; see `tracking.points_frame`."""
        from tracking.frame import points_frame

        return points_frame(self.tradeoff_points, self.sweep)

    @cached_property
    def replicates(self) -> pd.DataFrame:
        """One row per complete point and replicate; see `tracking.replicates_frame`."""
        from tracking.frame import replicates_frame

        return replicates_frame(self.tradeoff_points, self.sweep)

    def front(self) -> pd.DataFrame:
        """The Pareto front on the study's objectives; empty while no point is finished."""
        from sweeps.pareto import pareto_front

        if not any(point.status == "finished" for point in self.tradeoff_points):
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
    where = absolute(storage or DEFAULT_STORAGE)
    return read_result(Ledger(where, sweep), where)


def read_result(ledger: Ledger, storage: str) -> Result:
    """Read a sweep from its ledger.

    Raises:
        InputError: If there is no such sweep, or its `spec.yaml` is damaged.
    """
    manifest = read_manifest(ledger)
    seeds = frozenset(manifest.plan.seeds)
    kept = ledger.points()
    whole = [point for point in kept if complete(point, seeds)]
    done = {(p.point_id, r.seed) for p in kept for r in p.replicates}
    return Result(manifest, storage, whole, read_failures(ledger, done), dict(ledger.unreadable))


def read_failures(ledger: Ledger, done: Set[tuple[str, int]]) -> dict[str, str]:
    """Why packs came to nothing, those that a later attempt finished left out.

    Args:
        ledger: Of the sweep.
        done: Every (point_id, seed) in it.
    """
    directory = ledger.directory / "failures"
    found: dict[str, str] = {}
    for name in directory.files(".json"):
        try:
            failure = json.loads(directory.read(name))
            members = {(str(point_id), int(seed)) for point_id, seed in failure["members"]}
            reason = str(failure["reason"])
        except (OSError, ValueError, KeyError, TypeError):
            ledger.unreadable[f"failures/{name}"] = "no record of a failure"
            continue
        if not members <= done:
            found[name.removesuffix(".json")] = reason
    return found
