"""Ridge regression: pairs of training sets, with and without each record, solved in bulk.

A model needs only sums of products of features over its training records. They are computed once
for each training set and solved for any number of regularisation weights. Paired configurations
with equal seeds share their training sets, so a grid of weights or noise levels costs little more
than one point and compares equal draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from privnets.contract import Experiment, Stage, State
from privnets.membership.config import MembershipConfig
from privnets.membership.estimates import ControlVariate, influence_covariates, mean_over
from privnets.membership.evaluation import evaluate
from privnets.membership.guarantee import parameter_noise
from privnets.membership.leakage import paired_sides
from privnets.membership.models.leakage_penalty import ridge_penalty
from privnets.membership.observations import (
    Observations,
    Trainer,
    Universe,
    add_noise,
    attacked_records,
    random_stream,
)
from privnets.membership.training_sets import Indices, training_pairs
from privnets.membership.trials import Trials
from privnets.membership.utilities import Utilities

# Training sets per call: enough to amortise the call, few enough for the cache. Constants, since
# draws must not depend on the machine.
_SETS = 8192
_INDICES = 2**20
# A smaller pivot, relative to its diagonal entry, has no significant digits in float64.
_MIN_PIVOT = 1e-10
# A smaller weight, relative to the mean variance of the features, does not regularise n <= p + 1.
_SMALL_DECAY = 1e-3
_INTERPOLATION_ERROR = 1e-4
# Squared residuals below this share of the target's mean square may be rounding errors.
_ROUNDING = 1e-10


class LinearTrainer(Trainer):
    """Solves ridge regressions; one stage for each configuration."""

    def stages(
        self,
        experiment: Experiment[MembershipConfig],
        configs: Sequence[MembershipConfig],
        device: str,
        state: State,
    ) -> Iterator[Stage]:
        """Trains a stack. A state is empty: finished configurations are not in `configs`."""
        universe = Universe.load(configs[0], device)
        for done, (config, observed) in enumerate(_observe_all(configs, universe), start=1):
            point = experiment.point(config, evaluate(config, observed))
            yield Stage(done / len(configs), (point,), dict)


@dataclass(frozen=True)
class Moments:
    """Products of features and target, a row for each record: xx' (upper triangle), xy, yy.

    Attributes:
        products: Shape [N, p(p+1)/2 + p + 1], float64.
        features: p.
    """

    products: Tensor
    features: int

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Moments:
        """Computes the products of features x [N, p] and targets y [N]."""
        p = x.shape[1]
        row, column = torch.triu_indices(p, p, device=x.device)
        joined = (x[:, row] * x[:, column], x * y[:, None], (y * y)[:, None])
        return cls(torch.cat(joined, dim=1).double().contiguous(), p)

    def sums(self, members: Indices) -> Tensor:
        """Sums the products over training sets [count, n], to shape [count, columns]."""
        if self.products.device.type != "cpu":
            index = torch.from_numpy(members).to(self.products.device)
            return torch.nn.functional.embedding_bag(index, self.products, mode="sum")
        # A sparse product adds rows in cache: 3.5 times as fast as embedding_bag at n = 1,000.
        count, size = members.shape
        starts = np.arange(0, count * size + 1, size, dtype=np.int32)
        shape = (count, len(self.products))
        ones = scipy.sparse.csr_array((np.ones(count * size), members.reshape(-1), starts), shape)
        return torch.from_numpy(ones @ self.products.numpy())


def solve(sums: Tensor, size: int, penalty: Tensor) -> tuple[Tensor, Tensor]:
    """Minimises the mean squared error plus theta'K theta.

    arXiv 2001.10648, eq. 1, with K = lambda I: theta = (X'X/n + K)^-1 X'y/n, the minimum-norm
    solution where the inverse does not exist.

    Args:
        sums: From `Moments.sums`, shape [count, columns].
        penalty: Matrix K, symmetric and positive semidefinite, shape [p, p].

    Returns:
        Parameters, shape [count, p], and whether the problem lacks full rank, shape [count].
    """
    features = len(penalty)
    system = _systems(sums, features)
    system[:, :features] += size * penalty[..., None]
    diagonal = torch.arange(features, device=sums.device)
    original = system[diagonal, diagonal].clone()
    parameters, pivots = _eliminate(system)
    deficient = (pivots <= _MIN_PIVOT * original).any(dim=0) | (original <= 0).any(dim=0)
    if bool(deficient.any()):  # least-norm solutions by eigendecomposition
        system = _systems(sums[deficient], features).movedim(-1, 0)
        values, vectors = torch.linalg.eigh(system[:, :, :features] + size * penalty)
        smallest = _MIN_PIVOT * values.amax(dim=1, keepdim=True).clamp_min(1e-300)
        in_rank = values > smallest
        inverse = torch.where(in_rank, 1 / torch.where(in_rank, values, 1.0), 0.0)
        target = torch.einsum("bij,bi->bj", vectors, system[:, :, features])
        parameters[deficient] = torch.einsum("bij,bj->bi", vectors, inverse * target)
    return parameters, deficient


def squared_errors(sums: Tensor, total: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """Computes sums of squared residuals of each model over its training set and all records.

    Args:
        sums: Products summed over the training sets, shape [..., columns].
        total: Products summed over all records, shape [columns].
        parameters: Shape [..., p].

    Returns:
        Over the training sets, and over all records, shape [...] each, at least 0.
    """
    shape, sums, parameters = sums.shape[:-1], sums.flatten(0, -2), parameters.flatten(0, -2)
    train, overall = sums.new_empty(len(sums)), sums.new_empty(len(sums))
    p = parameters.shape[1]
    row, column = torch.triu_indices(p, p, device=parameters.device)
    twice = torch.where(row == column, 1.0, 2.0).to(parameters.dtype)
    for start in range(0, len(sums), _SETS):
        part = slice(start, start + _SETS)
        theta = parameters[part]
        # Coefficients of the products of a record in its squared residual.
        pairs = theta[:, row] * theta[:, column] * twice
        form = torch.cat([pairs, -2 * theta, torch.ones_like(theta[:, :1])], dim=1)
        train[part] = torch.linalg.vecdot(sums[part], form)
        overall[part] = form @ total
    return train.clamp_min_(0).view(shape), overall.clamp_min_(0).view(shape)


def _systems(sums: Tensor, p: int) -> Tensor:
    """Augmented systems [p, p + 1, count]; with the batch last, all steps are contiguous."""
    row, column = torch.triu_indices(p, p, device=sums.device)
    by_column = sums.T
    system = sums.new_empty(p, p + 1, len(sums))
    system[row, column] = by_column[: len(row)]
    system[column, row] = by_column[: len(row)]
    system[:, p] = by_column[len(row) : len(row) + p]
    return system


def _eliminate(system: Tensor) -> tuple[Tensor, Tensor]:
    """Gaussian elimination without pivoting, for positive-definite systems."""
    p = len(system)
    for k in range(p - 1):
        factor = system[k + 1 :, k] / system[k, k]
        system[k + 1 :, k + 1 :] -= factor[:, None] * system[k, k + 1 :]
    pivots = torch.diagonal(system[:, :p], dim1=0, dim2=1).T
    solution = torch.empty_like(system[:, p])
    for k in reversed(range(p)):
        substituted = (system[k, k + 1 : p] * solution[k + 1 :]).sum(0)
        solution[k] = (system[k, p] - substituted) / system[k, k]
    return solution.T.contiguous(), pivots


@dataclass(frozen=True)
class Fits:
    """Models of one configuration, without noise. Side 0 is without the record, side 1 with it.

    Attributes:
        parameters: Shape [R, 2, M, p].
        sums: Products summed over the training sets, shape [R, 2, M, columns].
        deficient: Number of models without a unique solution.
    """

    parameters: Tensor
    sums: Tensor
    deficient: int


def _observe_all(
    configs: Sequence[MembershipConfig], universe: Universe
) -> Iterator[tuple[MembershipConfig, Observations]]:
    """Observes all configurations, group by group; equal penalties share the models."""
    moments = Moments.of(universe.x, universe.y)
    # Replicates of a point follow one another, and share the predictors of their divergence.
    data = universe.x, universe.y, configs[0].train_size

    @lru_cache(maxsize=1)
    def predictors(weights: tuple[float, float, float], noise: float) -> Tensor:
        return influence_covariates(*data, ridge_penalty(*data, *weights), noise)

    # Paired configurations of a seed have the same training sets.
    ordered = sorted(configs, key=lambda c: (*_penalty_weights(c), parameter_noise(c)))
    groups = [[config] for config in ordered]
    if configs[0].paired:
        ordered.sort(key=lambda c: c.seed)
        groups = [list(group) for _, group in groupby(ordered, key=lambda c: c.seed)]
    for group in groups:
        records = attacked_records(group[0], universe.size)
        sums = training_sums(group[0], moments, records)
        for weights, equal in groupby(group, key=_penalty_weights):
            same = list(equal)
            fits = fit(same[0], sums, ridge_penalty(*data, *weights))
            for config in same:
                noise = parameter_noise(config)
                covariates = predictors(weights, noise)
                yield config, _observe(config, universe, moments, records, fits, noise, covariates)


def _penalty_weights(config: MembershipConfig) -> tuple[float, float, float]:
    """Weight decay, weight of the leakage, and the noise on which the penalty depends."""
    noise = parameter_noise(config) if config.leakage_weight else 0.0
    return config.weight_decay, config.leakage_weight, noise


def training_sums(config: MembershipConfig, moments: Moments, records: np.ndarray) -> Tensor:
    """Draws the training sets and sums the products of their records.

    Returns:
        Shape [R, 2 sides, M, columns]: without the record, and with it in place of a member.
    """
    random = random_stream(config, "training sets")
    population, size, draws = len(moments.products), config.train_size, config.draws
    records_at_once = max(1, min(_SETS, _INDICES // size) // draws)
    columns = moments.products.shape[1]
    sums = moments.products.new_empty(len(records), 2, draws, columns)
    for start in range(0, len(records), records_at_once):
        part = records[start : start + records_at_once]
        rows, replaced = training_pairs(random, population, np.repeat(part, draws), size)
        without = moments.sums(rows).view(len(part), draws, columns)
        removed = moments.products[torch.from_numpy(replaced.astype(np.int64))]
        added = moments.products[torch.from_numpy(part)]
        sums[start : start + len(part), 0] = without
        sums[start : start + len(part), 1] = without - removed.view_as(without) + added[:, None]
    return sums


def fit(config: MembershipConfig, sums: Tensor, penalty: Tensor) -> Fits:
    """Trains one model for each of the `training_sums`, with a penalty matrix [p, p]."""
    flat = sums.view(-1, sums.shape[-1])
    parameters = flat.new_empty(len(flat), len(penalty))
    deficient = 0
    for start in range(0, len(flat), _SETS):
        part = slice(start, start + _SETS)
        parameters[part], singular = solve(flat[part], config.train_size, penalty)
        deficient += int(singular.sum())
    return Fits(parameters.view(*sums.shape[:-1], len(penalty)), sums, deficient)


def _observe(
    config: MembershipConfig,
    universe: Universe,
    moments: Moments,
    records: np.ndarray,
    fits: Fits,
    noise: float,
    covariates: Tensor,
) -> Observations:
    index = torch.from_numpy(records).to(universe.x.device)
    clean, size, p = fits.parameters, config.train_size, moments.features
    noisy = add_noise(config, clean, noise)
    train, total = squared_errors(fits.sums, moments.products.sum(0), noisy)
    outside = universe.size - size
    error = universe.y[index, None, None] - torch.einsum("rsmp,rp->rsm", noisy, universe.x[index])
    interpolates = _why_interpolating(config, universe, fits)
    undefined, caution, notes = interpolates, None, {}
    if config.weight_decay < _SMALL_DECAY * float(universe.x.square().mean()):
        if undefined is None and size <= p + 1:
            undefined = f"n = {size} <= p + 1 = {p + 1} at this weight decay: the covariance is "
            undefined += "infinite"
        if size <= p + 3:
            caution = f"n = {size} <= p + 3 = {p + 3}: the estimated covariance has infinite "
            caution += "variance; compare the median record"
    if fits.deficient:
        notes["privacy/membership_advantage"] = (
            f"{fits.deficient} of {clean[..., 0].numel()} models lacked full rank: "
            "their minimum-norm solution was used"
        )
    # Each half has folds of its own, so it needs an even number of draws.
    part = clean.shape[2] // 4 * 2
    # The trivial model predicts the mean of all targets, which are 0 and 1, or have mean 0.
    squares, mean = universe.y.square().sum(), float(universe.y.mean())
    is_binary = bool(((universe.y == 0) | (universe.y == 1)).all())
    left = (squares - fits.sums[..., -1]) / outside
    trivial = left * (1 - 2 * mean) + mean**2 if is_binary else left
    # The output at the record divided by |x|; its noise is then that of a parameter.
    direction = universe.x[index] / universe.x[index].norm(dim=1, keepdim=True).clamp_min(1e-300)
    output = torch.einsum("rsmp,rp->rsm", clean, direction)[..., None]
    return Observations(
        records=index,
        trials=_trials(config, universe, error.flatten(1), train.flatten(1), noisy.flatten(1, 2)),
        sides=paired_sides(clean, noise),
        halves=(
            paired_sides(clean[:, :, :part], noise),
            paired_sides(clean[:, :, part : 2 * part], noise),
        ),
        output=paired_sides(output, noise),
        undefined=undefined,
        interpolates=interpolates,
        caution=caution,
        control=ControlVariate.of(covariates, index),
        prior=size / universe.size,
        test=Utilities(
            {"utility/test_mse": mean_over(((total - train) / outside).mean((1, 2)))},
            {"utility/test_mse": mean_over(trivial.mean((1, 2)))},
            {},
        ),
        train=mean_over((train / size).mean((1, 2))),
        shared_models=False,
        notes=notes,
    )


def _trials(
    config: MembershipConfig, universe: Universe, error: Tensor, train: Tensor, parameters: Tensor
) -> Trials:
    """Trials from residuals and sums of squared residuals over the training set, [R, 2 M] each."""
    # Clamped losses, since a comparison of rounding errors has no meaning.
    rounding = _ROUNDING * float(universe.y.square().mean())
    column = torch.arange(2 * config.draws, device=error.device)
    return Trials(
        member=(column >= config.draws).expand_as(error),
        fold=(column % config.draws >= config.draws // 2).long(),
        signal=error,
        error=error,
        loss=error.square().clamp_min(rounding),
        train_loss=(train / config.train_size).clamp_min(rounding),
        two_sided=True,
        parameters=parameters,
        draw=column % config.draws,
    )


def _why_interpolating(config: MembershipConfig, universe: Universe, fits: Fits) -> str | None:
    """Reason if neither parameters nor outputs are Gaussian, or None."""
    p, size = universe.x.shape[1], config.train_size
    if fits.deficient == fits.parameters[..., 0].numel():
        return (
            f"every Gram matrix is singular (n = {size}, p = {p}, no weight decay): parameters are "
            "minimum-norm solutions that interpolate, with no Gaussian distribution"
        )
    first = fits.sums[:, 0, 0]
    residual = squared_errors(first, first[0], fits.parameters[:, 0, 0])[0].median() / size
    if size <= p and float(residual) < _INTERPOLATION_ERROR * float(universe.y.var()):
        return (
            f"n = {size} <= p = {p} at this weight decay: the model interpolates its training "
            "data, and its parameters have no Gaussian distribution"
        )
    return None
