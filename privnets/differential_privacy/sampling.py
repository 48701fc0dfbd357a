"""Poisson samples of batches; imports no torch, for planning."""

from __future__ import annotations


def probability_of_use(sample_rate: float, steps: int) -> float:
    """Probability of a record to be in any batch; with a larger delta, no noise is needed."""
    return 1 - (1 - sample_rate) ** steps
