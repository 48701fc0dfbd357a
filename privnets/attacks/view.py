"""What membership attacks see: signals of judged models, beside those of reference models.

Arrays have a row for each model and a column for each record. The membership experiment judges the
models of one fold with those of the other fold. An audit judges each model with all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privnets.randomness import generator

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

_TINY_VARIANCE = 1e-30
_OWN_VARIANCE_REFERENCES = 64


@dataclass(frozen=True, eq=False)
class ReferenceMoments:
    """Moments of each record's signal over the reference models of one side, shape [T, R] each.

    Attributes:
        count: Number of reference models.
        mean: Mean signal; NaN without a model.
        scatter: Sum of squared deviations from the mean.
    """

    count: Array
    mean: Array
    scatter: Array

    @cached_property
    def pooled_variance(self) -> Array:
        """Variance within records, pooled over records; shape [T, 1]."""
        freedom = np.maximum(self.count - 1, 0).sum(1, keepdims=True)
        total = self.scatter.sum(1, keepdims=True)
        variance = np.divide(total, freedom, out=np.full_like(total, np.nan), where=freedom > 0)
        bounded: Array = np.maximum(variance, _TINY_VARIANCE)
        return bounded

    def variance(self, references: int) -> Array:
        """Variance that LiRA uses: a record's own from 64 references on, else the pooled one."""
        if references < _OWN_VARIANCE_REFERENCES:
            return self.pooled_variance
        own = self.scatter / np.maximum(self.count - 1, 1)
        return np.maximum(np.where(self.count > 1, own, self.pooled_variance), _TINY_VARIANCE)


@dataclass(frozen=True, eq=False)
class References:
    """Memberships of M reference models, and those that each of T judged models leaves out.

    Attributes:
        member: Whether the record was in the training set, shape [M, R].
        left_out: Reference model that a judged model leaves out among those without the record, and
            among those with it, shape [T, R] each; a model of the other side is no loss. None if
            the judged models are not among the references.
    """

    member: BoolArray
    left_out: tuple[IntArray, IntArray] | None = None

    @classmethod
    def leave_one_out(
        cls, member: BoolArray, judged: IntArray, companions: IntArray | None = None
    ) -> References:
        """Leaves each judged model out of its own references, with a companion of the other side.

        Args:
            member: As above, with the judged models among the M.
            judged: Numbers of the judged models, shape [T].
            companions: Models that are left out with them, shape [T, R]; see `_companions`.
        """
        if companions is None:
            companions = _companions(member, judged)
        own, rows = member[judged], judged[:, None]
        return cls(member, (np.where(own, companions, rows), np.where(own, rows, companions)))

    @property
    def count(self) -> int:
        """Number of reference models of each judged model, of both sides."""
        return len(self.member) - (self.left_out is not None)

    def moments(self, values: Array, *, member: bool) -> ReferenceMoments:
        """Moments of values [M, R] over the references of one side of each record."""
        side = self.member == member
        count = side.sum(0, keepdims=True).astype(float)
        # Centred at one of the values, moments of equal values are free of rounding.
        first = np.take_along_axis(values, side.argmax(0)[None], 0)
        total = np.where(side, values - first, 0.0).sum(0, keepdims=True)
        centre = first + total / np.maximum(count, 1)
        deviation = np.where(side, values - centre, 0.0)
        total, squares = (sums.sum(0, keepdims=True) for sums in (deviation, deviation**2))
        if self.left_out is not None:
            removed = self.left_out[member]
            lost = np.take_along_axis(deviation, removed, 0)
            count = count - np.take_along_axis(side, removed, 0)
            total, squares = total - lost, squares - lost**2
        mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        scatter = np.where(count > 1, np.maximum(squares - total * np.nan_to_num(mean), 0.0), 0.0)
        return ReferenceMoments(count, centre + mean, scatter)

    def log_mean(self, logs: Array, *, member: bool) -> Array:
        """Logarithm of the mean of exp(logs) over the references of one side; NaN without one.

        Args:
            logs: Logarithms of the reference models, shape [M, R].

        Returns:
            Shape [T, R], or [1, R] if none is left out.
        """
        side = self.member == member
        count = side.sum(0, keepdims=True)
        chosen = np.where(side, logs, -np.inf)
        largest = chosen.argmax(0)[None]
        top = np.take_along_axis(chosen, largest, 0)
        with np.errstate(invalid="ignore"):  # without a model, all are minus infinity
            chosen -= top
        parts = np.exp(chosen, out=chosen)
        parts[:, count[0] == 0] = 0.0
        first = np.take_along_axis(parts, largest, 0)
        np.put_along_axis(parts, largest, 0.0, 0)
        rest = parts.sum(0, keepdims=True)
        total = rest + first
        if self.left_out is not None:
            removed = self.left_out[member]
            # A difference of sums would cancel where the removed model is the largest.
            total = np.where(
                removed == largest, rest, total - np.take_along_axis(parts, removed, 0)
            )
            count = count - np.take_along_axis(side, removed, 0)
        mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            answer: Array = top + np.log(mean)
        return answer


@dataclass(frozen=True, eq=False)
class SavedOutputs:
    """Saved outputs of the judged models, which audits have.

    Attributes:
        values: Signals by name, shape [T, R], larger for more likely members.
        member: Whether the record was in the training set, shape [T, R].
        labels: True class of each record, from 0; None if unknown.
        probabilities: Shape [T, R, C], with `labels`; None if unknown.
        known: Records whose memberships learned attacks are fitted to, shape [R].
    """

    values: Mapping[str, Array]
    member: BoolArray
    labels: IntArray | None
    probabilities: Array | None
    known: BoolArray


@dataclass(frozen=True, eq=False)
class Training:
    """Observations beside signals and losses that sweeps have; tensors are on the models' device.

    Attributes:
        error: Residual, or one minus the probability of the true class, shape [T, R].
        error_of_references: The same of the reference models, shape [M, R].
        loss: Loss without the penalty, shape [T, R].
        mean_loss: Mean training loss of the model, shape [T, R].
        parameters: Of the judged models, shape [R, T, p] or [T, p]; None if they are not observed.
        parameters_of_references: The same of the reference models.
        partners: Reference model that shares all other members with each one, shape [M]; None if
            no two do.
        trajectory: Losses in the course of training, shape [E, T, R]; None if not observed.
        trajectory_of_references: The same of the reference models, shape [E, M, R].
    """

    error: Array
    error_of_references: Array
    loss: Array
    mean_loss: Array
    parameters: Any = None
    parameters_of_references: Any = None
    partners: IntArray | None = None
    trajectory: Array | None = None
    trajectory_of_references: Array | None = None


@dataclass(frozen=True, eq=False)
class AttackerView:
    """What an attacker sees of T judged models at R records, beside M reference models.

    Attributes:
        signal: Nearly Gaussian signal of the judged models, shape [T, R].
        of_references: The same of the reference models, shape [M, R].
        logs: Log-probability of the target (its true class) by the judged models, shape [T, R]. Of
            a regression, that of a Gaussian whose variance is the mean squared error of the
            references, without its constant. None if it is unknown.
        logs_of_references: The same of the reference models, shape [M, R].
        references: Memberships of the reference models.
        two_sided: Whether members have signals nearer to 0 (residuals) rather than larger ones.
        population: The same models at K records among which ratios are ranked, `logs` being NaN
            where a record is not among those of a judged model; None without such records.
        queries: `signal` and `of_references` at changed copies of the records.
        outputs: Saved outputs, in audits.
        training: Observations of training, in sweeps.
        features: Regressors of the signal, functions of a record, shape [R, q]; None if unknown.
    """

    signal: Array
    of_references: Array
    logs: Array | None
    logs_of_references: Array | None
    references: References
    two_sided: bool = False
    population: AttackerView | None = None
    queries: tuple[tuple[Array, Array], ...] = ()
    outputs: SavedOutputs | None = None
    training: Training | None = None
    features: Array | None = None

    def moments(self, *, member: bool) -> ReferenceMoments:
        """Moments of the signal over the references with a record, or without it."""
        if member not in self._moments:
            self._moments[member] = self.references.moments(self.of_references, member=member)
        return self._moments[member]

    def log_mean(self, *, member: bool) -> Array:
        """Logarithm of the mean probability by these references, shape [T, R] or [1, R]."""
        assert self.logs_of_references is not None
        if member not in self._log_means:
            self._log_means[member] = self.references.log_mean(
                self.logs_of_references, member=member
            )
        return self._log_means[member]

    @property
    def known_logs(self) -> Array:
        """Log-probabilities, for attacks that are not available without them."""
        assert self.logs is not None
        return self.logs

    @cached_property
    def is_known(self) -> BoolArray:
        """Whether the log-probability is not NaN, shape [T, R]."""
        return ~np.isnan(self.known_logs)

    def why_too_small(self, least: int) -> str | None:
        """Reason if a judged model has fewer records in this population than `least`, or None."""
        fewest = int(self.is_known.sum(1).min())
        if fewest >= least:
            return None
        return (
            f"{fewest} records are neither attacked nor in the training set, and at least {least} "
            "are needed; attack fewer records"
        )

    def by_query(self) -> Iterator[AttackerView]:
        """The same with the signals at the record, and at each of its changed copies."""
        yield self
        for signal, others in self.queries:
            yield replace(self, signal=signal, of_references=others)

    @cached_property
    def _moments(self) -> dict[bool, ReferenceMoments]:
        return {}

    @cached_property
    def _log_means(self) -> dict[bool, Array]:
        return {}


def share_below(values: Array, rivals: Array) -> Array:
    """Share of each row's rivals that are not larger; NaN stays NaN.

    Args:
        values: Shape [T, R].
        rivals: Shape [T, K]; NaN where there is none.
    """
    ordered = np.sort(rivals, axis=1)  # NaN come last
    counts = (~np.isnan(ordered)).sum(1).tolist()
    shares = np.empty_like(values)
    for share, row, known, count in zip(shares, values, ordered, counts, strict=True):
        share[:] = np.searchsorted(known[:count], row, side="right") / max(count, 1)
    return np.where(np.isnan(values), np.nan, shares)


def margins(values: Array, labels: IntArray) -> Array:
    """Value of the true class minus the largest other one, shape [R], of values [R, C]."""
    rows = np.arange(len(values))
    rivals = values.copy()
    rivals[rows, labels] = -np.inf
    distances: Array = values[rows, labels] - rivals.max(1)
    return distances


def _companions(member: BoolArray, judged: IntArray) -> IntArray:
    """Models of the other side that are left out together with a judged one, shape [T, R].

    Where each record is in the same number of models, a member has one reference less that
    trained with the record: the counts alone would tell who is one. Leaving out a random
    model of the other side equalises them. Where memberships are independent, or where there
    is no model to leave out, the judged model is its own companion.
    """
    own = member[judged]
    inside = member.sum(0) - own
    rows = np.broadcast_to(judged[:, None], own.shape)
    if own.all() or not own.any() or inside[own].mean() - inside[~own].mean() > -0.5:
        return rows
    rivals = np.where(own, (~member).sum(0), member.sum(0))
    random = generator(0, "left out references").random(member.shape)[judged]
    # Models in the order of membership: those without the record come first.
    order = np.argsort(member, axis=0, kind="stable")
    first = np.where(own, 0, (~member).sum(0))
    place = np.minimum(first + (random * rivals).astype(np.int64), len(member) - 1)
    return np.where(rivals > 0, np.take_along_axis(order, place, 0), rows)
