"""Quantile-regression attack (Bertran et al. 2023, arXiv 2307.03694): no model but the target."""

from __future__ import annotations

import torch
from torch import Tensor

from privnets.membership.attacks.base import (
    Attack,
    Guesses,
    Population,
    Trials,
    threshold_of_shadows,
)
from privnets.membership.config import NO_POPULATION

_MAX_REGRESSORS = 64
_RIDGE = 1e-6
_RECORDS_PER_COEFFICIENT = 2
_MAX_EXACT_COLUMNS = 512
_SUBSPACE_ITERATIONS = 3
_TINY = 1e-12


class QuantileRegression(Attack):
    """Standardised signal, given the record, among records outside the training set.

    Each quantile of the signal is a location plus a multiple of a scale (He, American Statistician
    51, 1997); both are linear in the regressors, and fitted to the target's signals at records of
    the population by least squares. Shadow models serve only to choose the threshold.
    """

    name = "quantile_regression"
    bounds = ("bound/advantage",)

    def why_unavailable(self, trials: Trials) -> str | None:
        """The target must have signals at enough other records for the regression."""
        if trials.population is None:
            return NO_POPULATION
        coefficients = trials.population.features.shape[1]
        return trials.population.why_too_small(_RECORDS_PER_COEFFICIENT * coefficients)

    def guess(self, trials: Trials) -> Guesses:
        """Scores the signal at the record, in units of its predicted scale."""
        assert trials.population is not None  # by `why_unavailable`
        signal = _one_sided(trials.signal, trials.two_sided)
        location, log_scale = _predict(trials.population, trials.two_sided)
        score = (signal - location) * torch.exp(-log_scale)
        return threshold_of_shadows(score, trials)


def regressors(x: Tensor, y: Tensor, classes: int) -> Tensor:
    """Principal components of records, and 1, for each class separately.

    Args:
        x: Features of all records, shape [N, p].
        y: Their targets, shape [N].
        classes: Number of classes; 1 if the target is a number, which is then a regressor.

    Returns:
        At most 64 columns (or `classes`, if more), standardised: shape [N, q].
    """
    if classes == 1:
        x, group = torch.cat([x, y[:, None]], dim=1), torch.zeros_like(y).long()
    else:
        group = y.long()
    count = min(max(_MAX_REGRESSORS // classes - 1, 0), x.shape[1])
    centred = x - x.mean(0)
    components = centred @ _principal_axes(centred, count)
    components = components / components.std(0).clamp_min(_TINY)
    basis = torch.cat([torch.ones_like(x[:, :1]), components], dim=1)
    indicator = torch.nn.functional.one_hot(group, classes).to(x)
    return (indicator[:, :, None] * basis[:, None]).flatten(1).double()


def _principal_axes(centred: Tensor, count: int) -> Tensor:
    """Leading principal axes [p, count]; nearly so if there are many columns, such as pixels."""
    columns = centred.shape[1]
    if columns <= _MAX_EXACT_COLUMNS:
        exact: Tensor = torch.linalg.eigh(centred.T @ centred).eigenvectors
        return exact[:, columns - count :]
    axes = centred[: 2 * count].T
    for _ in range(_SUBSPACE_ITERATIONS):
        axes = torch.linalg.qr(centred.T @ (centred @ axes)).Q
    return axes[:, :count]


def _one_sided(signal: Tensor, two_sided: bool) -> Tensor:
    """Signal that is larger for members: of a residual, minus its logarithmic size."""
    return -signal.abs().clamp_min(_TINY).log() if two_sided else signal


def _predict(population: Population, two_sided: bool) -> tuple[Tensor, Tensor]:
    """Location and logarithmic scale of the signal at the attacked records, shape [R, J] each."""
    features, at = population.features, population.features_of_records
    weight = population.outside.T.to(features)
    count = features.shape[1]
    products = (features[:, :, None] * features[:, None]).flatten(1)
    gram = (weight @ products).view(-1, count, count)
    penalty = _RIDGE * torch.diagonal(gram, dim1=1, dim2=2).mean(1)[:, None, None]
    factor = torch.linalg.cholesky(gram + penalty * torch.eye(count).to(gram))

    def fit(values: Tensor) -> Tensor:
        moments = (weight * values.T) @ features
        return torch.cholesky_solve(moments[..., None], factor)[..., 0].T

    signal = _one_sided(population.signal, two_sided)
    location = fit(signal)
    distance = (signal - features @ location).abs().clamp_min(_TINY).log()
    return at @ location, at @ fit(distance)
