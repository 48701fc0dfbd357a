"""A made-up sweep of the membership experiment: its shapes and oddities, not its numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from privnets.contract import Direction
from privnets.frames import points_frame, replicates_frame
from privnets.points import Curve, Replicate, TradeoffPoint
from privnets.statistics.bootstrap import PointSamples, build_samples
from sweeps.analysis.pareto import pareto_front
from sweeps.analysis.results import CONFIRMING, PHASE, SEARCHING, is_only_searched
from sweeps.analysis.tables import varying_fields
from sweeps.store.reader import Note
from sweeps.study.spec import Study

HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
)
OBJECTIVES: Mapping[str, Direction] = {
    "privacy/membership_advantage": "min",
    "utility/test_mse": "min",
}


@dataclass(frozen=True)
class SyntheticSweep:
    """Input of a report made from points."""

    study: Study
    tradeoff_points: Sequence[TradeoffPoint]
    sweep: str = "adult-train-size-synthetic"
    objectives: Mapping[str, Direction] = field(default_factory=lambda: dict(OBJECTIVES))
    log_fields: frozenset[str] = frozenset({"train_size", "weight_decay"})
    spec: Mapping[str, Any] = field(default_factory=dict)
    pending: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    storage: str = ""
    confirmed: frozenset[str] = frozenset()
    reported_seeds: frozenset[int] = frozenset(range(5))

    @property
    def swept_fields(self) -> list[str]:
        """See `Result.swept_fields`."""
        return list(dict.fromkeys([*self.study.space, *varying_fields(self.points)]))

    @property
    def points(self) -> pd.DataFrame:
        """See `privnets.points_frame`."""
        frame = points_frame(self.tradeoff_points, self.sweep)
        if self.confirmed:
            is_confirmed = frame["point_id"].isin(self.confirmed)
            frame.insert(1, PHASE, np.where(is_confirmed, CONFIRMING, SEARCHING))
        return frame

    @property
    def candidates(self) -> pd.DataFrame:
        """See `Result.candidates`."""
        return self.points

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of points of each status."""
        return {"finished": 0, "stopped": 0, "failed": 0, **Counter(self.points["status"])}

    def front(self, *, all: bool) -> pd.DataFrame:
        """The front with all columns; see `Result.front`."""
        if not set(self.objectives) <= set(self.points.columns):
            return self.points.iloc[:0]
        points = self.points
        return pareto_front(points.loc[~is_only_searched(points)], self.objectives)

    @property
    def replicates(self) -> pd.DataFrame:
        """See `privnets.replicates_frame`."""
        return replicates_frame(self.tradeoff_points, self.sweep)

    def samples(self, metrics: Sequence[str], point_ids: Collection[str]) -> PointSamples:
        """See `Result.samples`."""
        rows = self.replicates
        return build_samples(rows.loc[rows["point_id"].isin(point_ids)], metrics)

    @property
    def notes(self) -> Sequence[Note]:
        """Notes of the points."""
        return [Note(p.point_id, *note) for p in self.tradeoff_points for note in p.notes.items()]

    @property
    def files(self) -> Collection[str]:
        """Names of the files that finished points stored."""
        return {n for p in self.tradeoff_points if p.status == "finished" for n in p.artifacts}

    def select_points(self, point_ids: Collection[str]) -> Mapping[str, TradeoffPoint]:
        """The points with the given ids."""
        return {p.point_id: p for p in self.tradeoff_points if p.point_id in point_ids}


def membership_study(**changes: Any) -> Study:
    content = {
        "name": "adult-train-size",
        "experiment": "membership",
        "description": "Leakage of ridge regression on Adult against training-set size.",
        "reproduces": {"paper": "arXiv:2001.10648", "figure": 1},
        "claims": [
            {
                "statement": "Membership advantage falls as the training set grows.",
                "metric": "privacy/membership_advantage",
                "axis": "train_size",
                "trend": "decreasing",
                "caveat": "Theorem 2 is a limit: it promises no monotone fall.",
            },
            {
                "statement": "KL leakage rises with the training set.",
                "metric": "privacy/rho_kl",
                "axis": "train_size",
                "trend": "increasing",
            },
        ],
        "fixed": {"dataset": "adult", "model": "linear"},
        "space": {
            "train_size": {"grid": [10, 30, 100, 300, 1000]},
            "weight_decay": {"grid": [0.0, 1e-4, 1e-2, 1.0]},
        },
        "replicates": 6,
    }
    return Study.model_validate({**content, **changes})


def membership_replicate(size: float, decay: float, seed: int) -> Replicate:
    generator = np.random.default_rng([seed, int(size), int(decay * 1e6)])
    noise = generator.normal(0, 0.01, 3)
    advantage = 1.2 / math.sqrt(size) / (1 + decay) ** 2 + noise[0]
    undefined = size <= 10 and decay == 0
    fpr = np.arange(0, 1001, 5) / 1000
    return Replicate(
        seed=seed,
        metrics={
            "privacy/membership_advantage": advantage,
            "privacy/rho_kl": math.nan if undefined else max(5 / size + noise[1] / 10, 1e-4),
            "bound/advantage": math.nan if undefined else advantage + 0.1,
            "utility/test_mse": 0.12 + 0.05 * decay + 1 / size + noise[2] / 10,
            "utility/generalization_gap": 1 / size,
        },
        notes={"privacy/rho_kl": "the covariance is singular: 10 records, 5 parameters"}
        if undefined
        else {},
        curves={
            f"roc/{attack}": Curve(
                tuple(range(0, 1001, 5)), tuple(fpr ** (1 - strength * advantage))
            )
            for attack, strength in (("threshold_gaussian", 0.5), ("lira_online", 0.9))
        },
        finished_at=1.7e9 + 60 * seed,
    )


def membership_points(
    sizes: Sequence[float] = (10, 30, 100, 300, 1000),
    decays: Sequence[float] = (0.0, 1e-4, 1e-2, 1.0),
    seeds: int = 6,
    replicate: Callable[[float, float, int], Replicate] = membership_replicate,
    **config: Any,
) -> list[TradeoffPoint]:
    return [
        TradeoffPoint(
            point_id=f"{index:020x}",
            experiment="membership",
            config={
                "dataset": "adult",
                "model": "linear",
                "train_size": size,
                "weight_decay": decay,
                **config,
            },
            replicates=tuple(replicate(size, decay, seed) for seed in range(seeds)),
        )
        for index, (size, decay) in enumerate((s, d) for s in sizes for d in decays)
    ]


def stop_point(point: TradeoffPoint, reason: str) -> TradeoffPoint:
    left = tuple(Replicate(r.seed, {}, stopped=reason) for r in point.replicates)
    return TradeoffPoint(point.point_id, point.experiment, point.config, left)


def fail_point(point: TradeoffPoint, reason: str) -> TradeoffPoint:
    lost = Replicate(seed=0, metrics={}, failure=reason, finished_at=1.7e9)
    return TradeoffPoint(
        point.point_id, point.experiment, point.config, (lost, *point.replicates[1:])
    )


def hostile_sweep() -> SyntheticSweep:
    """A sweep with a script in every name and reason."""

    def replicate(size: float, decay: float, seed: int) -> Replicate:
        made = membership_replicate(size, decay, seed)
        metrics = {**made.metrics, HOSTILE: 1.0}
        curves = {f"roc/{HOSTILE}": curve for curve in made.curves.values()}
        return replace(made, metrics=metrics, notes={HOSTILE: HOSTILE}, curves=curves)

    points = membership_points(sizes=(10, 100), replicate=replicate, model=HOSTILE)
    points += membership_points(sizes=(30, 300), replicate=replicate, model="plain")[:-1]
    points = [replace(p, point_id=f"{HOSTILE}{i}") for i, p in enumerate(points)]
    points[0] = fail_point(points[0], HOSTILE)
    claim = {"statement": HOSTILE, "metric": HOSTILE, "axis": "train_size", "trend": "constant"}
    space = {"train_size": {"grid": [10, 100, 30, 300]}, "model": {"choice": [HOSTILE, "plain"]}}
    study = membership_study(
        description=HOSTILE,
        reproduces={"paper": HOSTILE, "figure": HOSTILE},
        claims=[{**claim, "caveat": HOSTILE, "where": {}}],
        fixed={"dataset": HOSTILE},
        space={**space, "weight_decay": {"grid": [0.0, 1e-4, 1e-2, 1.0]}},
    )
    return SyntheticSweep(
        study,
        points,
        sweep=HOSTILE,
        objectives={**OBJECTIVES, HOSTILE: "max"},
        spec={HOSTILE: {HOSTILE: [HOSTILE]}, "command": HOSTILE},
        pending=1,
        failures={HOSTILE: HOSTILE},
        unreadable={HOSTILE: HOSTILE},
    )
