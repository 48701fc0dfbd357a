"""Signals with known leakage, and slow versions of published attacks."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
from scipy import stats


def gaussian_scores(distance: float, records: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of one model [1, records]: unit Gaussians, `distance` apart; and membership."""
    random = np.random.default_rng(seed)
    member = np.arange(records)[None] < records // 2
    return random.standard_normal((1, records)) + distance * member, member


def many_models(
    shift: float, models: int = 9, records: int = 120, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds [models, records] that are larger by `shift` for members; and membership."""
    random = np.random.default_rng(seed)
    member = random.random((models, records)) < 0.5
    level = 1 + random.standard_normal(records)
    return level + 0.7 * random.standard_normal(member.shape) + shift * member, member


def sides(values: np.ndarray, member: np.ndarray, target: int, record: int):
    """Values of the other models trained with the record, and without it."""
    others = [model for model in range(len(values)) if model != target]
    inside = [values[model, record] for model in others if member[model, record]]
    outside = [values[model, record] for model in others if not member[model, record]]
    return inside, outside


def slow_pooled_variance(values: np.ndarray, member: np.ndarray, target: int, side: int) -> float:
    """Variance within records over the references of one side."""
    total, freedom = 0.0, 0
    for record in range(values.shape[1]):
        known = sides(values, member, target, record)[side]
        if known:
            total += sum((value - fmean(known)) ** 2 for value in known)
            freedom += len(known) - 1
    return total / freedom


def slow_lira(signal: np.ndarray, member: np.ndarray, *, online: bool) -> np.ndarray:
    """Algorithm 1 of Carlini et al. (2022), with the variance shared by all records."""
    scores = np.full(signal.shape, math.nan)
    for target in range(len(signal)):
        within, without = (
            math.sqrt(slow_pooled_variance(signal, member, target, side)) for side in (0, 1)
        )
        for record in range(signal.shape[1]):
            inside, outside = sides(signal, member, target, record)
            value = signal[target, record]
            if online and inside and outside:
                scores[target, record] = stats.norm.logpdf(
                    value, fmean(inside), within
                ) - stats.norm.logpdf(value, fmean(outside), without)
            elif not online and outside:
                # 1 - Pr[Z > value] grows with its argument.
                scores[target, record] = (value - fmean(outside)) / without
    return scores


def slow_rmia(confidence: np.ndarray, member: np.ndarray, *, online: bool) -> np.ndarray:
    """Definition 1 of Zarifzadeh et al. (2024) with gamma = 1; the population is all records."""
    scores = np.full(confidence.shape, math.nan)
    for target in range(len(confidence)):
        ratios = {}
        for record in range(confidence.shape[1]):
            inside, outside = sides(confidence, member, target, record)
            if not outside or (online and not inside):
                continue
            mean = fmean(outside)
            prior = (fmean(inside) + mean) / 2 if online else (1.3 * mean + 0.7) / 2
            ratios[record] = confidence[target, record] / prior
        for record, ratio in ratios.items():
            below = [ratio / other >= 1 for other in ratios.values()]
            scores[target, record] = sum(below) / len(below)
    return scores


def slow_bavaria(signal: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Log-ratio of the predictive densities of two normal-inverse-gamma models, by quadrature-free
    textbook updates (Murphy 2007, section 6): kappa counts prior models, nu prior freedom."""
    scores = np.full(signal.shape, math.nan)
    for target in range(len(signal)):
        pooled = [slow_pooled_variance(signal, member, target, side) for side in (0, 1)]
        known = [sides(signal, member, target, record) for record in range(signal.shape[1])]
        shift = fmean(fmean(ins) - fmean(outs) for ins, outs in known if ins and outs)
        for record, (inside, outside) in enumerate(known):
            if not outside:
                continue
            value, n = signal[target, record], len(inside)
            prior = fmean(outside) + shift
            mean = (prior + sum(inside)) / (1 + n)
            squares = sum((x - fmean(inside)) ** 2 for x in inside) if inside else 0.0
            squares += n / (1 + n) * (fmean(inside) - prior) ** 2 if inside else 0.0
            freedom = 4 + n
            scale = (4 * pooled[0] + squares) / freedom * (1 + 1 / (1 + n))
            with_record = stats.t.logpdf(value, freedom, mean, math.sqrt(scale))
            n = len(outside)
            freedom = 4 + n - 1
            squares = sum((x - fmean(outside)) ** 2 for x in outside)
            scale = (4 * pooled[1] + squares) / freedom * (1 + 1 / n)
            without = stats.t.logpdf(value, freedom, fmean(outside), math.sqrt(scale))
            scores[target, record] = with_record - without
    return scores
