"""Attacks that calibrate the loss: by other records (P), or by models without the record."""

from __future__ import annotations

import numpy as np

from privnets.attacks.base import MIN_POPULATION, NO_POPULATION, NO_PROBABILITIES, Attack
from privnets.attacks.view import Array, AttackerView, share_below

_PAPER = "Ye et al., CCS 2022, arXiv 2111.09679"


class AttackP(Attack):
    """Percentile of the loss among the losses of the same model at records of the population."""

    name = "attack_p"
    family = "threshold"
    paper = _PAPER
    bounds = ("bound/advantage",)

    def why_unavailable(self, view: AttackerView) -> str | None:
        """The judged models must have losses at enough other records."""
        if view.population is None:
            return NO_POPULATION
        return view.population.why_too_small(MIN_POPULATION)

    def score(self, view: AttackerView) -> Array:
        """Share of the population's records outside the training set with a larger loss."""
        assert view.population is not None  # by `why_unavailable`
        return share_below(view.known_logs, view.population.known_logs)


class AttackR(Attack):
    """Percentile of the loss among the losses of reference models without the record."""

    name = "attack_r"
    family = "offline"
    paper = _PAPER

    def why_unavailable(self, view: AttackerView) -> str | None:
        """Losses must be known."""
        return NO_PROBABILITIES if view.logs is None else None

    def score(self, view: AttackerView) -> Array:
        """Share of reference models without the record with a larger loss at it."""
        assert view.logs_of_references is not None  # by `why_unavailable`
        references, logs = view.references, view.logs_of_references
        outside = ~references.member
        count = outside.sum(0, keepdims=True)
        below = share_below(view.known_logs.T, np.where(outside, logs, np.nan).T).T * count
        if references.left_out is not None:
            removed = references.left_out[False]
            was_outside = np.take_along_axis(outside, removed, 0)
            below -= was_outside & (np.take_along_axis(logs, removed, 0) <= view.known_logs)
            count = count - was_outside
        shares: Array = below / count
        return shares


class Difference(Attack):
    """Log-probability of the true class minus its mean over references without the record.

    Where probabilities are unknown, the signal takes their place.
    """

    name = "difference"
    family = "offline"
    paper = "Watson et al., ICLR 2022, arXiv 2111.08440"

    def score(self, view: AttackerView) -> Array:
        """Scores the difference from the mean."""
        if view.logs is None or view.logs_of_references is None:
            return view.signal - view.moments(member=False).mean
        return view.logs - view.references.moments(view.logs_of_references, member=False).mean
