"""Trade-off points: what one configuration yields, as immutable values.

Nothing here needs torch, so a point can be recorded, read back and compared without it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from types import MappingProxyType

Scalar = bool | int | float | str | None
_EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Curve:
    """Values at integer steps: a training curve, or a TPR against FPR in thousandths."""

    steps: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check that every step has a value.

        Raises:
            ValueError: If the lengths differ.
        """
        if len(self.steps) != len(self.values):
            raise ValueError(f"a curve of {len(self.steps)} steps has {len(self.values)} values")


@dataclass(frozen=True)
class Replicate:
    """One training of a configuration with one seed.

    Attributes:
        seed: The seed the configuration ran with.
        metrics: Every metric key of the experiment; NaN where it is undefined.
        standard_errors: Standard error within this replicate, for the metrics that have one.
        notes: Metric or flag key to the reason it is undefined, or raised.
        curves: Key (without the `curve/` prefix) to curve.
        artifacts: File name to content.
        failure: Why the replicate failed (it diverged, say); None when it did not.
        stopped: Why it left its stack before the end (dominated, say); None when it did not.
        finished_at: Unix time in seconds.
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

    @property
    def succeeded(self) -> bool:
        """Whether it came to its end, and its metrics are the configuration's."""
        return self.failure is None and self.stopped is None


@dataclass(frozen=True, repr=False)
class TradeoffPoint:
    """One configuration of an experiment with all its replicates.

    Attributes:
        point_id: Hash of experiment, version, resolved configuration (without its seed) and data.
        experiment: The experiment's name.
        config: The resolved configuration without its seed, as plain scalars.
        replicates: One entry per seed, in order of seed.
    """

    point_id: str
    experiment: str
    config: Mapping[str, Scalar]
    replicates: tuple[Replicate, ...]

    def __repr__(self) -> str:
        """What it is and whether it is done; its numbers are many."""
        fields = ", ".join(f"{name}={value!r}" for name, value in self.config.items())
        count = f"{len(self.succeeded)} of {len(self.replicates)} replicates"
        return f"TradeoffPoint({self.point_id}, {self.experiment}({fields}), {count})"

    @property
    def succeeded(self) -> tuple[Replicate, ...]:
        """The replicates that came to their end."""
        return tuple(r for r in self.replicates if r.succeeded)

    @property
    def status(self) -> str:
        """`finished`; `failed` when any replicate failed, else `stopped` when any was stopped.

        Survivors alone would mislead.
        """
        if not self.replicates or self.failure is not None:
            return "failed"
        return "finished" if len(self.succeeded) == len(self.replicates) else "stopped"

    @property
    def failure(self) -> str | None:
        """The first failure's reason, with how many replicates failed."""
        reasons = [r.failure for r in self.replicates if r.failure is not None]
        return self._first_of(reasons, "failed")

    @property
    def stopped(self) -> str | None:
        """Why the first stopped replicate was, with how many were."""
        reasons = [r.stopped for r in self.replicates if r.stopped is not None]
        return self._first_of(reasons, "were stopped")

    def _first_of(self, reasons: list[str], what: str) -> str | None:
        if not reasons:
            return None
        return f"{reasons[0]} ({len(reasons)} of {len(self.replicates)} replicates {what})"

    @property
    def finished_at(self) -> float:
        """When the last replicate finished, Unix seconds."""
        return max((r.finished_at for r in self.replicates), default=0.0)

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """Mean over replicates of each metric, with `.std`, `.ci_low` and `.ci_high` (95%).

        With two replicates or more the interval is Student's t over replicates; with one it rests
        on the standard error within that replicate, where it has one; otherwise it is NaN. A
        metric that is undefined in any replicate is undefined (NaN).
        """
        keys = sorted({key for r in self.succeeded for key in r.metrics})
        out: dict[str, float] = {}
        for key in keys:
            out.update(_summary(key, self.succeeded))
        return MappingProxyType(out)

    @cached_property
    def notes(self) -> Mapping[str, str]:
        """Why metrics are undefined or flags raised: the first replicate's words, with a count."""
        words: dict[str, list[str]] = {}
        for replicate in self.succeeded:
            for key, reason in replicate.notes.items():
                words.setdefault(key, []).append(reason)
        total = len(self.succeeded)
        return {k: f"{v[0]} ({len(v)} of {total} replicates)" for k, v in sorted(words.items())}

    @cached_property
    def curves(self) -> Mapping[str, Curve]:
        """Mean curve over the replicates that share its steps."""
        keys = sorted({key for r in self.succeeded for key in r.curves})
        return {
            key: _mean_curve([r.curves[key] for r in self.succeeded if key in r.curves])
            for key in keys
        }

    @property
    def artifacts(self) -> Mapping[str, bytes]:
        """The first replicate's files, by name."""
        return self.replicates[0].artifacts if self.replicates else {}


def merge_replicates(points: Iterable[TradeoffPoint]) -> list[TradeoffPoint]:
    """Join points that share a `point_id`, keeping one replicate per seed (the earliest finished).

    Args:
        points: Points in any order, possibly with repeats of the same replicate.

    Returns:
        One point per `point_id`, in order of first appearance, replicates in order of seed.
    """
    groups: dict[str, list[TradeoffPoint]] = {}
    for point in points:
        groups.setdefault(point.point_id, []).append(point)
    return [_joined(group) for group in groups.values()]


def _joined(group: list[TradeoffPoint]) -> TradeoffPoint:
    by_seed: dict[int, Replicate] = {}
    for replicate in sorted((r for p in group for r in p.replicates), key=lambda r: r.finished_at):
        by_seed.setdefault(replicate.seed, replicate)
    ordered = tuple(by_seed[seed] for seed in sorted(by_seed))
    return TradeoffPoint(group[0].point_id, group[0].experiment, group[0].config, ordered)


def _summary(key: str, replicates: tuple[Replicate, ...]) -> dict[str, float]:
    values = [float(r.metrics.get(key, math.nan)) for r in replicates]
    count = len(values)
    mean = _sum(values) / count
    if count == 1:
        std, half = math.nan, 1.959963984540054 * replicates[0].standard_errors.get(key, math.nan)
    else:
        std = math.sqrt(_sum([_square(v - mean) for v in values]) / (count - 1))
        half = _student_t(count - 1) * std / math.sqrt(count)
    low, high = mean - half, mean + half
    return {key: mean, f"{key}.std": std, f"{key}.ci_low": low, f"{key}.ci_high": high}


def _sum(values: Sequence[float]) -> float:
    """Rounded once where that is finite; else what adding one after another gives."""
    plain = reduce(operator.add, values)
    if not math.isfinite(plain):
        return plain
    try:
        return math.fsum(values)
    except OverflowError:  # it is the rounding that overflows
        return math.copysign(math.inf, plain)


def _square(value: float) -> float:
    try:
        return value**2
    except OverflowError:
        return math.inf


def _student_t(degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.975))


def _mean_curve(curves: list[Curve]) -> Curve:
    same = [c.values for c in curves if c.steps == curves[0].steps]
    return Curve(curves[0].steps, tuple(_sum(v) / len(same) for v in zip(*same, strict=True)))
