"""Sweeps written to a storage without training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from privnets.points import Replicate, TradeoffPoint
from sweeps.planning.plan import create_manifest, make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest
from sweeps.study.spec import Study


def write_sweep(
    storage: Path,
    sweep: str,
    objectives: dict[str, str],
    metrics: Sequence[tuple[float, ...] | None],
    *,
    replicates: int = 2,
    dataset: str = "digits",
    experiment: str = "membership",
    fixed: Mapping[str, object] | None = None,
    space: Mapping[str, object] | None = None,
    noise: Callable[[int], Sequence[float]] | None = None,
    flags: Sequence[float] = (),
    search: Mapping[str, object] | None = None,
) -> None:
    """Writes a sweep with one point per pair of metrics; None writes a failed point.

    `fixed` and `space` are those of the study, logistic regression on `dataset` by default.
    `noise` gives the numbers to add to the metrics of the replicates with a seed, and `flags` the
    value of `flag/attack_beats_bound` at each point.
    """
    study = Study.model_validate(
        {
            "name": f"study-{sweep}",
            "experiment": experiment,
            "fixed": fixed or {"dataset": dataset, "model": "logistic"},
            "space": space or {"train_size": {"grid": [50, 100]}},
            "replicates": replicates,
            "objectives": objectives,
            "search": search or {},
        }
    )
    planned, ledger = make_plan(study), Ledger(str(storage), sweep)
    points = []
    for place, (point, values) in enumerate(zip(planned.points, metrics, strict=True)):
        flagged = {"flag/attack_beats_bound": flags[place]} if flags else {}

        def metrics_of(seed: int, means: tuple[float, ...] | None = values) -> dict[str, float]:
            if means is None:
                return {}
            added = noise(seed) if noise else (0.0,) * len(means)
            noisy = (mean + one for mean, one in zip(means, added, strict=True))
            return dict(zip(objectives, noisy, strict=True))

        failure = "diverged" if values is None else None
        each = (
            Replicate(s, metrics_of(s) | flagged, failure=failure, finished_at=1.7e9)
            for s in planned.seeds
        )
        config = point.config.resolved()
        points.append(TradeoffPoint(point.point_id, experiment, config, tuple(each)))
    write_manifest(ledger, create_manifest(planned, sweep, command="", tracking_uri=""))
    ledger.write_pack("pack", points)
