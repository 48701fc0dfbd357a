"""Trade-off points: the results of one configuration, as immutable values without torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from privnets.statistics.replicates import ScoredColumns, summarize_columns

Scalar = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Curve:
    """Values at integer steps: a training curve, or a TPR against FPR in thousandths."""

    steps: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        """Checks that every step has a value."""
        if len(self.steps) != len(self.values):
            raise ValueError(
                f"a curve needs one value for each step; got {len(self.steps)} steps and "
                f"{len(self.values)} values."
            )


@dataclass(frozen=True, slots=True)
class ScoredRecords:
    """Test set on which a replicate is scored.

    Attributes:
        name: Equal for replicates that are scored on the same records; None if no other replicate
            is scored on these.
        size: Number of independent records, at least 1; records of one origin count as one.
        overlap: Share of a test set that another seed's test set of this name also has, in (0, 1].
    """

    name: str | None
    size: int
    overlap: float = 1.0


@dataclass(frozen=True)
class Replicate:
    """One training of a configuration with one seed.

    Attributes:
        metrics: Value of every metric key of the experiment; NaN where undefined.
        standard_errors: Standard error within this replicate, for the metrics that have one.
        notes: Metric or flag key to the reason why it is undefined, or raised.
        curves: Key (without the `curve/` prefix) to curve.
        artifacts: File name to content.
        failure: Reason if the replicate failed, such as divergence.
        stopped: Reason if it was stopped before the end, such as domination.
        finished_at: Unix time in seconds.
        scored_on: Test set; None if the replicate has records of its own, of unknown number.
    """

    seed: int
    metrics: Mapping[str, float]
    standard_errors: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict, repr=False)
    artifacts: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    failure: str | None = None
    stopped: str | None = None
    finished_at: float = 0.0
    scored_on: ScoredRecords | None = None

    @property
    def succeeded(self) -> bool:
        """Whether training finished, so that the metrics are valid."""
        return self.failure is None and self.stopped is None


@dataclass(frozen=True, repr=False)
class TradeoffPoint:
    """One configuration of an experiment with all its replicates.

    Attributes:
        point_id: Hash of experiment, version, configuration (without its seed) and data.
        replicates: One for each seed, in order of seed.
    """

    point_id: str
    experiment: str
    config: Mapping[str, Scalar]
    replicates: tuple[Replicate, ...]

    def __repr__(self) -> str:
        """Short text: configuration, and number of finished replicates."""
        fields = ", ".join(f"{name}={value!r}" for name, value in self.config.items())
        count = f"{len(self.succeeded)} of {len(self.replicates)} replicates"
        return f"TradeoffPoint({self.point_id}, {self.experiment}({fields}), {count})"

    @property
    def succeeded(self) -> tuple[Replicate, ...]:
        """Replicates that finished."""
        return tuple(r for r in self.replicates if r.succeeded)

    @property
    def status(self) -> str:
        """`failed` if any replicate failed, else `stopped` if any was stopped, else `finished`.

        The remaining replicates alone would be a biased sample.
        """
        if not self.replicates or self.failure is not None:
            return "failed"
        return "finished" if len(self.succeeded) == len(self.replicates) else "stopped"

    @property
    def failure(self) -> str | None:
        """Reason of the first failure, with the number of failed replicates; None without."""
        reasons = [r.failure for r in self.replicates if r.failure is not None]
        return self._summarise(reasons, "failed")

    @property
    def stopped(self) -> str | None:
        """Reason of the first stop, with the number of stopped replicates; None without."""
        reasons = [r.stopped for r in self.replicates if r.stopped is not None]
        return self._summarise(reasons, "were stopped")

    def _summarise(self, reasons: list[str], verb: str) -> str | None:
        if not reasons:
            return None
        return f"{reasons[0]} ({len(reasons)} of {len(self.replicates)} replicates {verb})"

    @property
    def finished_at(self) -> float:
        """Unix time in seconds at which the last replicate finished; 0 without any."""
        return max((r.finished_at for r in self.replicates), default=0.0)

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """Mean of each metric over replicates, with `.std`, `.ci_low` and `.ci_high` (95%).

        Intervals hold the spread between replicates and the error of the test set that they share;
        see `privnets.statistics.replicates`. A metric that is undefined in any replicate is NaN.
        """
        replicates = self.succeeded
        keys = sorted({key for r in replicates for key in r.metrics})
        scored = [r.scored_on for r in replicates]
        names = [None if one is None else one.name for one in scored]
        summary = summarize_columns(
            keys,
            _columns([r.metrics for r in replicates], keys),
            _columns([r.standard_errors for r in replicates], keys),
            np.zeros(len(replicates), dtype=np.int64),
            1,
            ScoredColumns(
                np.array([-1 if n is None else names.index(n) for n in names], dtype=np.int64),
                np.array([math.nan if one is None else one.size for one in scored]),
                np.array([1.0 if one is None else one.overlap for one in scored]),
            ),
        )
        columns = (summary.mean, summary.std, *summary.interval())
        rows = zip(keys, *(column[0].tolist() for column in columns), strict=True)
        out: dict[str, float] = {}
        for key, mean, std, low, high in rows:
            out |= {key: mean, f"{key}.std": std, f"{key}.ci_low": low, f"{key}.ci_high": high}
        return MappingProxyType(out)

    @cached_property
    def notes(self) -> Mapping[str, str]:
        """Notes of the first replicate that has one, with the number of replicates that do."""
        reasons: dict[str, list[str]] = {}
        for replicate in self.succeeded:
            for key, reason in replicate.notes.items():
                reasons.setdefault(key, []).append(reason)
        total = len(self.succeeded)
        return {k: f"{v[0]} ({len(v)} of {total} replicates)" for k, v in sorted(reasons.items())}

    @cached_property
    def curves(self) -> Mapping[str, Curve]:
        """Mean curves over the replicates with the same steps."""
        means = {}
        for key in sorted({key for r in self.succeeded for key in r.curves}):
            curves = [r.curves[key] for r in self.succeeded if key in r.curves]
            steps = curves[0].steps
            with np.errstate(invalid="ignore", over="ignore"):
                mean = np.mean([c.values for c in curves if c.steps == steps], axis=0)
            means[key] = Curve(steps, tuple(mean.tolist()))
        return means

    @property
    def artifacts(self) -> Mapping[str, bytes]:
        """Files of the first replicate, by name."""
        return self.replicates[0].artifacts if self.replicates else {}


def merge_replicates(points: Iterable[TradeoffPoint]) -> list[TradeoffPoint]:
    """Merges points of equal `point_id`, with the earliest finished replicate of each seed."""
    groups: dict[str, list[TradeoffPoint]] = {}
    for point in points:
        groups.setdefault(point.point_id, []).append(point)
    merged = []
    for first, *others in groups.values():
        every = [r for point in (first, *others) for r in point.replicates]
        by_seed: dict[int, Replicate] = {}
        for replicate in sorted(every, key=lambda r: r.finished_at):
            by_seed.setdefault(replicate.seed, replicate)
        ordered = tuple(by_seed[seed] for seed in sorted(by_seed))
        merged.append(TradeoffPoint(first.point_id, first.experiment, first.config, ordered))
    return merged


def _columns(mappings: Sequence[Mapping[str, float]], keys: Sequence[str]) -> NDArray[np.float64]:
    """Values of each mapping, NaN for a key that it lacks, shape [mappings, keys]."""
    rows = [[float(mapping.get(key, math.nan)) for key in keys] for mapping in mappings]
    return np.array(rows, dtype=np.float64).reshape(len(mappings), len(keys))
