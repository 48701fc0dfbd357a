"""Scores of membership attacks: advantage, area under the ROC curve and low false-positive rates.

Standard errors take records as the independent units, and models too where they serve several
records. That of the advantage has a closed form; those of the ROC curve are bootstrapped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privnets.membership.attacks import Guesses
from privnets.membership.config import FALSE_POSITIVE_RATES
from privnets.membership.estimates import Mean
from privnets.points import Curve

_CURVE_RATES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400, 500, 600, 700, 850)
# The relative standard error of a bootstrapped error is about 1 / sqrt(2 * resamples).
_RESAMPLES = 200
# Thresholds of a resampled ROC curve: log-spaced false-positive rates, then even ones.
_GRID = np.unique(np.concatenate([np.geomspace(1e-5, 0.1, 100), np.linspace(0.1, 1.0, 101)]))


@dataclass(frozen=True)
class AttackScore:
    """Scores of one attack.

    Attributes:
        advantage: TPR - FPR of its decisions, signed, in [-1, 1].
        auc: Area under the ROC curve (Mann-Whitney; ties count half), in [0, 1].
        low_rates: For each false-positive rate, the true-positive rate at the threshold with the
            largest false-positive rate that does not exceed it.
        non_members: Number of trials of records outside the training set.
        roc: TPR at false-positive rates in thousandths.
    """

    advantage: Mean
    auc: Mean
    low_rates: Mapping[float, Mean]
    non_members: int
    roc: Curve


def score_guesses(guesses: Guesses, member: Tensor, *, shared_models: bool) -> AttackScore:
    """Scores an attack on trials pooled over records; `member` has shape [R, J]."""
    advantage = signed_advantage(guesses.decision, member, shared_models=shared_models)
    true, false, outsiders = _roc(guesses.score, member)
    auc_error, *rate_errors = _bootstrap_errors(guesses.score, member, outsiders, shared_models)
    powers = [_rate_at(true, false, rate, len(outsiders)) for rate in FALSE_POSITIVE_RATES]
    curve = tuple(_rate_at(true, false, step / 1000, len(outsiders)) for step in _CURVE_RATES)
    return AttackScore(
        advantage,
        Mean(float(torch.trapezoid(true, false)), auc_error),
        dict(zip(FALSE_POSITIVE_RATES, map(Mean, powers, rate_errors), strict=True)),
        len(outsiders),
        Curve(_CURVE_RATES, curve),
    )


def signed_advantage(decision: Tensor, member: Tensor, *, shared_models: bool) -> Mean:
    """TPR - FPR over all trials, and its standard error, clustered by record and shared model.

    With shared models, column j of `decision` and `member` [R, J] is one model.
    """
    inside, outside = member.sum(), (~member).sum()
    yes = decision.double()
    true, false = yes[member].sum() / inside, yes[~member].sum() / outside
    influence = torch.where(member, (yes - true) / inside, -(yes - false) / outside)
    by_record = influence.sum(1).square().sum()
    variance = by_record * len(member) / (len(member) - 1)
    if shared_models:
        both = by_record + influence.sum(0).square().sum() - influence.square().sum()
        # By chance, the two-way estimate can be below the one-way estimate.
        variance = torch.maximum(variance, both)
    return Mean(float(true - false), float(variance.sqrt()))


def _roc(values: Tensor, member: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """True- and false-positive rates at each distinct threshold, ascending, from 0 to 1.

    Also returns the scores of trials of records outside the training set, descending.
    """
    ordered, order = values.flatten().sort(descending=True)
    ranked = member.flatten()[order]
    is_last = torch.ones_like(ranked)
    is_last[:-1] = ordered[1:] != ordered[:-1]
    true = ranked.cumsum(0)[is_last].double() / ranked.sum()
    false = (~ranked).cumsum(0)[is_last].double() / (~ranked).sum()
    zero = true.new_zeros(1)
    return torch.cat([zero, true]), torch.cat([zero, false]), ordered[~ranked]


def _rate_at(true: Tensor, false: Tensor, rate: float, outsiders: int) -> float:
    """True-positive rate at a false-positive rate."""
    # Half a trial of tolerance keeps rounding from excluding a rate that is met exactly.
    limit = (math.floor(rate * outsiders + 1e-9) + 0.5) / outsiders
    return float(true[int(torch.searchsorted(false, limit)) - 1])


def _bootstrap_errors(
    score: Tensor, member: Tensor, outsiders: Tensor, shared_models: bool
) -> list[float]:
    """Standard errors of the area and of the true-positive rates at `FALSE_POSITIVE_RATES`.

    Trials are counted once, by threshold and record. Each resample of records weights these
    counts, so that all resamples are one matrix product. Shared models are resampled likewise,
    and the variance of resampled trials, which both contain, is subtracted once.
    """
    random = np.random.default_rng(0)
    place, bins = _threshold_places(score, outsiders)
    counts = _counts_by_threshold(place, member, bins)
    variance = _scores_of_resamples(random, counts).var(0, ddof=1)
    if shared_models:
        counts_of_models = _counts_by_threshold(place.T, member.T, bins)
        by_model = _scores_of_resamples(random, counts_of_models).var(0, ddof=1)
        pooled = counts.sum(1, keepdims=True)
        trials = np.stack(
            [random.multinomial(int(c.sum()), c[0] / c.sum(), _RESAMPLES) for c in pooled]
        )
        by_trial = _area_and_rates(trials.astype(float)).var(0, ddof=1)
        variance = np.maximum(variance, variance + by_model - by_trial)
    errors: list[float] = np.sqrt(variance).tolist()
    return errors


def _threshold_places(score: Tensor, outsiders: Tensor) -> tuple[Tensor, int]:
    """Number of thresholds above each score, and the largest number plus 1.

    Thresholds are scores of outsiders, given in descending order, at the ranks of `_GRID`.
    """
    ranks = np.unique(np.ceil(_GRID * len(outsiders)).astype(np.int64)) - 1
    highest = outsiders[torch.from_numpy(ranks).to(outsiders.device)]
    edges = torch.unique_consecutive(highest).flip(0)
    return len(edges) - torch.searchsorted(edges, score.contiguous(), right=True), len(edges) + 1


def _counts_by_threshold(place: Tensor, member: Tensor, bins: int) -> np.ndarray:
    """Trials between adjacent thresholds, by outsiders and members: shape [2, rows, bins]."""
    rows = torch.arange(len(place), device=place.device)[:, None]
    index = (member * len(place) + rows) * bins + place
    counts = torch.bincount(index.flatten(), minlength=2 * len(place) * bins)
    return counts.view(2, len(place), bins).cpu().numpy().astype(float)


def _scores_of_resamples(random: np.random.Generator, counts: np.ndarray) -> np.ndarray:
    """Area and rates of each resample of rows, shape [resamples, 1 + rates]."""
    rows = counts.shape[1]
    chosen = random.integers(0, rows, (_RESAMPLES, rows))
    chosen += rows * np.arange(_RESAMPLES)[:, None]
    weights = np.bincount(chosen.ravel(), minlength=_RESAMPLES * rows).reshape(_RESAMPLES, rows)
    return _area_and_rates(weights.astype(float) @ counts)


def _area_and_rates(counts: np.ndarray) -> np.ndarray:
    """Area under ROC curves and their true-positive rates, from counts [2, curves, bins]."""
    cumulative = np.pad(counts.cumsum(-1), ((0, 0), (0, 0), (1, 0)))
    false, true = cumulative / np.maximum(cumulative[..., -1:], 1)
    area = np.trapezoid(true, false, axis=1)
    return np.stack([area, *(_interpolate(false, true, r) for r in FALSE_POSITIVE_RATES)], axis=1)


def _interpolate(false: np.ndarray, true: np.ndarray, rate: float) -> np.ndarray:
    """True-positive rates of ascending curves [curves, points] at a false-positive rate below 1."""
    place = np.minimum((false <= rate).sum(1), false.shape[1] - 1)[:, None]
    (f0, t0), (f1, t1) = (
        [np.take_along_axis(v, i, 1)[:, 0] for v in (false, true)] for i in (place - 1, place)
    )
    # Without outsiders all false-positive rates are 0, and the last point counts.
    share = np.where(f1 > f0, (rate - f0) / np.where(f1 > f0, f1 - f0, 1), 1)
    interpolated: np.ndarray = t0 + share * (t1 - t0)
    return interpolated
