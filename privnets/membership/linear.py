"""Linear target models: pairs of training sets, with and without each record, solved in bulk.

Configurations that share a seed share their training sets, so that a grid of regularisation
weights or noise levels costs little more than one point of it and is compared on equal draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privnets.membership.attacks import Trials
from privnets.membership.config import MembershipConfig
from privnets.membership.evaluation import Mean, Observations
from privnets.membership.leakage import Sides, paired_sides
from privnets.membership.ridge import Moments, solve, squared_errors
from privnets.membership.sampling import training_pairs
from privnets.membership.universe import Universe, asked_records
from privnets.randomness import generator

# Training sets per call: enough to pay for the call, few enough to stay in cache. A constant,
# as draws must not depend on the machine.
_SETS = 8192
_INDICES = 2**20
# Below this share of the features' mean variance a weight does not tame n <= p + 1 records.
_SMALL_DECAY = 1e-3
_INTERPOLATES = 1e-4
# Squared residuals, as a share of the target's mean square, that rounding alone may leave.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class Fits:
    """Models of one configuration, without noise. Sides: 0 without the record, 1 with it.

    Attributes:
        parameters: Shape [R, 2, M, p].
        sums: Of the training records, shape [R, 2, M, columns]; shared by all configurations.
        deficient: How many had no unique solution.
    """

    parameters: Tensor
    sums: Tensor
    deficient: int


def observe(
    configs: Sequence[MembershipConfig], universe: Universe
) -> Iterator[tuple[MembershipConfig, Observations]]:
    """Train and observe configurations that share everything but weight decay and noise.

    Args:
        configs: Of one structure and one seed.
        universe: The data, on the device to compute on.
    """
    moments = Moments.of(universe.x, universe.y)
    records = asked_records(configs[0], universe.size)
    sums = training_sums(configs[0], moments, records)
    fits: dict[float, Fits] = {}
    for config in configs:
        if config.weight_decay not in fits:
            fits = {config.weight_decay: fit(config, sums, moments.features)}
        yield config, _observed(config, universe, moments, records, fits[config.weight_decay])


def training_sums(config: MembershipConfig, moments: Moments, records: np.ndarray) -> Tensor:
    """Draw the training sets and sum the products of their records.

    Args:
        config: Of the seed and of the sizes; nothing else matters.
        moments: Products of every record of the universe.
        records: Asked records, shape [R].

    Returns:
        Shape [R, 2 sides, M, columns]: without the record, and with it in one member's place.
    """
    random = generator(config.seed, "training sets")
    population, size, draws = len(moments.products), config.train_size, config.draws
    at_once = max(1, min(_SETS, _INDICES // size) // draws)
    columns = moments.products.shape[1]
    sums = moments.products.new_empty(len(records), 2, draws, columns)
    for start in range(0, len(records), at_once):
        part = records[start : start + at_once]
        rows, replaced = training_pairs(random, population, np.repeat(part, draws), size)
        without = moments.sums(rows).view(len(part), draws, columns)
        gone = moments.products[torch.from_numpy(replaced.astype(np.int64))]
        come = moments.products[torch.from_numpy(part)]
        sums[start : start + len(part), 0] = without
        sums[start : start + len(part), 1] = without - gone.view_as(without) + come[:, None]
    return sums


def fit(config: MembershipConfig, sums: Tensor, features: int) -> Fits:
    """Train one model per training set.

    Args:
        config: Of the weight decay.
        sums: From `training_sums`.
        features: p.
    """
    flat = sums.view(-1, sums.shape[-1])
    parameters = flat.new_empty(len(flat), features)
    deficient = 0
    for start in range(0, len(flat), _SETS):
        part = slice(start, start + _SETS)
        solution = solve(flat[part], features, config.train_size, config.weight_decay)
        parameters[part] = solution.parameters
        deficient += int(solution.deficient.sum())
    return Fits(parameters.view(*sums.shape[:-1], features), sums, deficient)


def _observed(
    config: MembershipConfig,
    universe: Universe,
    moments: Moments,
    records: np.ndarray,
    fits: Fits,
) -> Observations:
    index = torch.from_numpy(records).to(universe.x.device)
    clean = fits.parameters
    noisy = clean if config.noise_std == 0 else clean + config.noise_std * _noise(config, clean)
    train, total = _squared_errors(fits, moments, noisy)
    error = universe.y[index, None, None] - torch.einsum("rsmp,rp->rsm", noisy, universe.x[index])
    interpolates = _why_interpolating(config, universe, fits)
    return Observations(
        records=index,
        trials=_trials(
            config,
            error.flatten(1),
            (train / config.train_size).flatten(1),
            _ROUNDING * float(universe.y.square().mean()),
        ),
        parameters=noisy.flatten(1, 2),
        sides=paired_sides(clean[:, 1], clean[:, 0], config.noise_std),
        halves=_halves(config, clean),
        output=_output_sides(config, clean, universe.x[index]),
        undefined=interpolates or _why_infinite(config, universe),
        interpolates=interpolates,
        caution=_caution(config, moments.features, universe),
        prior=config.train_size / universe.size,
        test=Mean.of(((total - train) / (universe.size - config.train_size)).mean((1, 2))),
        train=Mean.of((train / config.train_size).mean((1, 2))),
        shared_models=False,
        notes=_notes(fits),
    )


def _squared_errors(fits: Fits, moments: Moments, noisy: Tensor) -> tuple[Tensor, Tensor]:
    """Over each model's training set and over the universe, shape [R, 2, M] each."""
    train, total = squared_errors(
        fits.sums.flatten(0, 2), moments.products.sum(0), noisy.flatten(0, 2)
    )
    return train.view(noisy.shape[:-1]), total.view(noisy.shape[:-1])


def _noise(config: MembershipConfig, like: Tensor) -> Tensor:
    drawn = generator(config.seed, "noise").standard_normal(like.shape)
    return torch.from_numpy(drawn).to(like.device)


def _trials(config: MembershipConfig, error: Tensor, train_loss: Tensor, rounding: float) -> Trials:
    column = torch.arange(2 * config.draws, device=error.device)
    return Trials(
        member=(column >= config.draws).expand_as(error),
        fold=(column % config.draws >= config.draws // 2).long(),
        signal=error,
        error=error,
        # Below rounding, which of two losses is the smaller says nothing.
        loss=error.square().clamp_min(rounding),
        train_loss=train_loss.clamp_min(rounding),
        two_sided=True,
    )


def _halves(config: MembershipConfig, clean: Tensor) -> tuple[Sides, Sides]:
    # Each half has folds of its own, so their draws must be even in number.
    part = config.draws // 4 * 2
    first, second = clean[:, :, :part], clean[:, :, part : 2 * part]
    return (
        paired_sides(first[:, 1], first[:, 0], config.noise_std),
        paired_sides(second[:, 1], second[:, 0], config.noise_std),
    )


def _output_sides(config: MembershipConfig, clean: Tensor, x: Tensor) -> Sides:
    """Of the output at the record in units of |x|, in which its noise is that of a parameter."""
    direction = x / x.norm(dim=1, keepdim=True).clamp_min(1e-300)
    output = torch.einsum("rsmp,rp->rsm", clean, direction)[..., None]
    return paired_sides(output[:, 1], output[:, 0], config.noise_std)


def _why_interpolating(config: MembershipConfig, universe: Universe, fits: Fits) -> str | None:
    """Why neither parameters nor outputs have a Gaussian law, or None."""
    p, size = universe.x.shape[1], config.train_size
    if fits.deficient == fits.parameters[..., 0].numel():
        return (
            f"every Gram matrix is singular (n = {size}, p = {p}, no weight decay): parameters are "
            "minimum-norm solutions that interpolate, with no Gaussian law"
        )
    first = fits.sums[:, 0, 0]
    residual = squared_errors(first, first[0], fits.parameters[:, 0, 0])[0].median() / size
    if size <= p and float(residual) < _INTERPOLATES * float(universe.y.var()):
        return (
            f"n = {size} <= p = {p} at this weight decay: the model interpolates its training "
            "data, and its parameters have no Gaussian law"
        )
    return None


def _why_infinite(config: MembershipConfig, universe: Universe) -> str | None:
    p, size = universe.x.shape[1], config.train_size
    if size <= p + 1 and _tiny_decay(config, universe):
        return f"n = {size} <= p + 1 = {p + 1} at this weight decay: the covariance is infinite"
    return None


def _caution(config: MembershipConfig, features: int, universe: Universe) -> str | None:
    if config.train_size <= features + 3 and _tiny_decay(config, universe):
        return (
            f"n = {config.train_size} <= p + 3 = {features + 3}: the estimated covariance has "
            "infinite variance; read the median record beside the mean"
        )
    return None


def _tiny_decay(config: MembershipConfig, universe: Universe) -> bool:
    return config.weight_decay < _SMALL_DECAY * float(universe.x.square().mean())


def _notes(fits: Fits) -> dict[str, str]:
    if not fits.deficient:
        return {}
    total = fits.parameters[..., 0].numel()
    return {
        "privacy/membership_advantage": f"{fits.deficient} of {total} models lacked full rank: "
        "their minimum-norm solution was used"
    }
