"""Sweeps that train in seconds, and what their tests compare."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privnets.points import Replicate, TradeoffPoint
from sweeps.planning.plan import Plan, PlannedPoint, create_manifest, make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest
from sweeps.study.loader import load

# With these seeds no score is near a tie, which a stack of other members may round otherwise.
STUDY = """
name: small
experiment: membership
fixed: {dataset: digits, model: logistic, features: 6, draws: 32, records: 30,
        train_size: 40, seed: 2}
space:
  weight_decay: {grid: [0.001, 0.01, 0.1, 1.0]}
replicates: 2
resources: {pack: 1}
"""


def study_file(folder: Path, text: str = STUDY) -> Path:
    path = folder / "small.yaml"
    path.write_text(text)
    return path


def small_plan(folder: Path, *overrides: str) -> Plan:
    return make_plan(load(study_file(folder), overrides))


def made_point(
    plan: Plan, planned: PlannedPoint, replicate_of: Callable[[Any, int], Replicate]
) -> TradeoffPoint:
    """A planned point with a replicate of its configuration for each seed of the plan."""
    replicates = tuple(replicate_of(planned.config, seed) for seed in plan.seeds)
    config = planned.config.resolved()
    return TradeoffPoint(planned.point_id, plan.study.experiment, config, replicates)


def write_sweep(
    storage: Path | str,
    sweep: str,
    plan: Plan,
    replicate_of: Callable[[Any, int], Replicate],
    finished: int | None = None,
) -> Ledger:
    """Writes a sweep without training, the first points of which are finished, or all."""
    ledger = Ledger(str(storage), sweep)
    manifest = create_manifest(plan, sweep, command="sweeps run it", tracking_uri="")
    write_manifest(ledger, manifest)
    ledger.write_pack("pack", [made_point(plan, p, replicate_of) for p in plan.points[:finished]])
    return ledger


def numbers(ledger: Ledger) -> dict[tuple[str, int], dict[str, float]]:
    """Every replicate's metrics."""
    return {
        (p.point_id, r.seed): dict(r.metrics) for p in ledger.read_points() for r in p.replicates
    }


def rows(ledger: Ledger) -> list[tuple[str, int]]:
    """The (point_id, seed) of every row in every file, repeats included."""
    found: list[tuple[str, int]] = []
    for pack in ledger.pack_ids():
        found += [(p.point_id, r.seed) for p in ledger.read_points([pack]) for r in p.replicates]
    return found


def assert_same_numbers(
    ours: dict[tuple[str, int], dict[str, float]], theirs: dict[tuple[str, int], dict[str, float]]
) -> None:
    """Stacks of other members round differently; anything more would be another result."""
    assert ours.keys() == theirs.keys()
    for member, metrics in ours.items():
        assert metrics.keys() == theirs[member].keys()
        for key, value in metrics.items():
            assert same(value, theirs[member][key]), (member, key)


def same(ours: float, theirs: float) -> bool:
    both_undefined = math.isnan(ours) and math.isnan(theirs)
    return both_undefined or math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-9)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file right in a folder: when it was last written, and what it holds."""
    files = [path for path in folder.glob("*") if path.is_file()]
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def plain(point: TradeoffPoint) -> dict[str, Any]:
    """A point as values that compare, NaN to NaN included."""
    return {
        "id": (point.point_id, point.experiment, dict(point.config)),
        "replicates": [
            {
                "seed": r.seed,
                "metrics": {k: repr(v) for k, v in sorted(r.metrics.items())},
                "standard_errors": {k: repr(v) for k, v in sorted(r.standard_errors.items())},
                "notes": dict(r.notes),
                "curves": {k: (c.steps, tuple(map(repr, c.values))) for k, c in r.curves.items()},
                "artifacts": dict(r.artifacts),
                "failure": r.failure,
                "finished_at": r.finished_at,
            }
            for r in point.replicates
        ],
    }
