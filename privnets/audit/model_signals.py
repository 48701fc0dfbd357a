"""Signals of audited models and their references, in the form that attacks use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, xlogy

from privnets.attacks.view import Array, AttackerView, BoolArray, References, SavedOutputs
from privnets.audit.inputs import AuditError

_TINY = 1e-30
_CLIP_QUANTILE = 0.99


@dataclass(frozen=True, eq=False)
class ModelSignals:
    """Signals of M models at R records; T of the models are audited, each by all the others.

    Attributes:
        values: Signals by name, shape [M, R], larger for more likely members.
        signal: Nearly Gaussian signal of attacks with references, shape [M, R].
        confidence: Probability of the true class after clipping, shape [M, R]; None if unknown.
        member: Whether the record was in the training set, shape [M, R].
        targets: Numbers of the audited models, shape [T].
        records: Label of each record.
        limit: Largest size of log-odds, to which `signal` was clipped; infinite if it was not.
        notes: Sentences about the input that the numbers rest on.
        labels: True class of each record, from 0; None if unknown.
        probabilities: Shape [M, R, C], with `labels`; None if unknown.
        groups: Group of each record, for leakage by group; None if not given.
        classes: Name of each class, in the order of `labels`; empty if unknown.
    """

    values: Mapping[str, Array]
    signal: Array
    confidence: Array | None
    member: BoolArray
    targets: NDArray[np.int64]
    records: NDArray[np.object_]
    limit: float
    notes: tuple[str, ...] = ()
    labels: NDArray[np.int64] | None = None
    probabilities: Array | None = None
    groups: NDArray[np.object_] | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises AuditError if a signal is NaN."""
        for name, values in {**self.values, "of references": self.signal}.items():
            if np.isnan(values).any():
                raise AuditError(f"the signal {name!r} must be numbers; got nan")

    @property
    def references(self) -> int:
        """Number of reference models of each audited model."""
        return len(self.member) - 1

    @property
    def target_member(self) -> BoolArray:
        """Membership in the training sets of the audited models, shape [T, R]."""
        return self.member[self.targets]

    @cached_property
    def view(self) -> AttackerView:
        """Audited models beside all others; the records of the audit are the population.

        Each audited model is left out of its own references; see `References.leave_one_out`.
        Log-probabilities are exact where `confidence` rounds.
        """
        signal, targets, probabilities = self.signal, self.targets, self.probabilities
        logs = None if self.confidence is None else log_expit(signal)
        view = AttackerView(
            signal[targets],
            signal,
            None if logs is None else logs[targets],
            logs,
            References.leave_one_out(self.member, targets),
        )
        outputs = SavedOutputs(
            {name: values[targets] for name, values in self.values.items()},
            self.target_member,
            self.labels,
            None if probabilities is None else probabilities[targets],
            np.ones(signal.shape[1], dtype=bool),
        )
        return replace(view, population=view, outputs=outputs)


def derive_from_probabilities(probabilities: Array, labels: NDArray[np.int64]) -> dict[str, Array]:
    """Signals of class probabilities, each larger for more likely members.

    Entropies are in nats. The modified entropy is that of Song and Mittal (USENIX Security 2021,
    eq. 8): -(1 - p_y) log p_y - sum over other classes of p_k log(1 - p_k).

    Args:
        probabilities: Shape [M, R, C].
        labels: True classes, shape [R].

    Returns:
        `loss`, `confidence`, `entropy`, `modified_entropy`, `logit` and `correctness` (1 where the
        true class has the largest probability, the first one if several have), shape [M, R] each.
    """
    index = labels[None, :, None]
    true = np.take_along_axis(probabilities, index, axis=2)[..., 0]
    others = probabilities.copy()
    np.put_along_axis(others, index, 0.0, axis=2)
    rest = others.sum(2)
    log_true = np.log(np.maximum(true, _TINY))
    wrong = (others * np.log(np.maximum(1 - others, _TINY))).sum(2)
    with np.errstate(divide="ignore"):
        log_odds = np.log(true) - np.log(rest)
    return {
        "loss": log_true,
        "confidence": true,
        "entropy": xlogy(probabilities, probabilities).sum(2),
        "modified_entropy": (1 - true) * log_true + wrong,
        "logit": log_odds,
        "correctness": (probabilities.argmax(2) == labels).astype(float),
    }


def logit_of_loss(loss: Array) -> Array:
    """Log-odds of the true class, -log(exp(loss) - 1), from a cross-entropy loss >= 0."""
    with np.errstate(divide="ignore", over="ignore"):
        small = -np.log(np.expm1(np.minimum(loss, 30.0)))
    return np.where(loss > 30.0, -loss, small)


def choose_limit(log_odds: Array) -> float:
    """Log-odds at half the distance of the most extreme probabilities from 0 or 1, but 0 and 1.

    A forest of 50 trees votes in steps of 0.02 and gets log-odds of the probability 0.01, or 0.99:
    a continuity correction. The most extreme one is the 99% quantile of |log-odds| over finite
    values. No membership is used.
    """
    sizes = np.abs(log_odds[np.isfinite(log_odds)])
    if not len(sizes):
        return float(np.log(3.0))
    extreme = float(np.quantile(sizes, _CLIP_QUANTILE))
    return extreme + float(np.log(2 + np.exp(-extreme)))
