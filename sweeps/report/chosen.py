"""The points whose releases a report shows, with what they stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from privnets.points import TradeoffPoint
from sweeps.report.figures.curves import CurveSet, Sample, placed, samples, spread_curves
from sweeps.report.sources import ReportSource
from sweeps.report.stored import UnusableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Chosen(Generic[T]):
    """A point to look at.

    Attributes:
        name: Its swept settings in words.
        sample: Why it was chosen.
        content: What its first replicate stored.
    """

    name: str
    sample: Sample
    content: T

    @property
    def words(self) -> str:
        """The point and why it was chosen."""
        return f"{self.name}\n{self.sample.words}" if self.name else self.sample.words


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Generic[T]):
    """Points to look at, curve by curve, and why others could not be looked at."""

    points: tuple[Chosen[T], ...]
    missing: tuple[str, ...]


def choose(
    data: ReportSource,
    curves: CurveSet,
    file: str,
    read: Callable[[TradeoffPoint], T],
    most: int,
) -> Choice[T] | None:
    """The middle and the private end of a few curves, with what those points stored.

    Args:
        data: The sweep.
        curves: Its points by curve.
        file: The artifact that they are to have.
        read: Reads it; raises `UnusableError` where it is not what it should be.
        most: How many curves, evenly spread.

    Returns:
        The points; None where no finished point has the file, or none can be told private.
    """
    metric = privacy_metric(data)
    if metric is None or file not in data.files:
        return None
    chosen = [s for curve in spread_curves(curves.curves, most) for s in samples(curve, metric)]
    by_id = data.select_points([sample.point_id for sample in chosen])
    points, missing = [], []
    for sample in chosen:
        name = placed(sample.row, curves.fields)
        try:
            points.append(Chosen(name, sample, read(_found(by_id, sample))))
        except UnusableError as error:
            missing.append(f"{name or 'the only point'} is not shown: {error}.")
    return Choice(tuple(points), tuple(missing)) if points or missing else None


def _found(points: Mapping[str, TradeoffPoint], sample: Sample) -> TradeoffPoint:
    try:
        return points[sample.point_id]
    except KeyError:
        raise UnusableError("the ledger holds it no more") from None


def privacy_metric(data: ReportSource) -> str | None:
    """The first privacy metric among the objectives."""
    return next((m for m in data.objectives if m.startswith("privacy/")), None)
