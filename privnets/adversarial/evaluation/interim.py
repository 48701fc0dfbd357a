"""Estimates of objectives at a rung, measured on the releases of that moment.

The game's own adversary does not rank releases, as a releaser learns to deceive it. So a judge is
fitted afresh at every rung to releases of the attack split. Its model and data follow from the
problem alone. Validation records score it; test records are not used.

The judge is a small attacker in closed form, as cheap as a few steps of training. Ridge regression
on the released values and on random rectified features of them (Rahimi and Recht, 2008; Cho and
Saul, 2009) predicts a class's probability. Images are first reduced to their principal components.
The penalty and the confidence are chosen on one half of the validation records for the other half,
so that every record is scored by a choice made without it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.attackers.attacker import released_part
from privnets.adversarial.attackers.scores import (
    area_under_curve,
    balanced_accuracy,
    balanced_decision,
    leakage,
)
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation.evaluator import normalized_error, utility_accuracy
from privnets.adversarial.evidence import AttackView, KnownRows
from privnets.adversarial.metrics import PRIVACY_KEYS, interim_objectives
from privnets.adversarial.problem import Problem, Splits, class_frequencies, subsample
from privnets.adversarial.records import Pool, select_exposure
from privnets.adversarial.training.game import Game
from privnets.randomness import generator
from privnets.statistics import estimates
from privnets.statistics.estimates import Estimate

_RECORDS = 2_000  # most records of the attack split that a judge is fitted to
_ROWS = 2**12  # rows to which releases are repeated, two to four times; a step of a sequence is one
_MIN_DRAWS, _MAX_DRAWS = 2, 4
_MIN_CURVE_VALUES, _MAX_CURVE_VALUES = 4, 10  # of the last half of a curve
_LARGEST = 1e15  # of a released number
_COMPONENTS, _PASSES = 64, 2  # of images, and of the iteration that finds them
_AXES_ROWS = 2_000  # from which the components are found
_FEATURES, _FEATURES_PER_INPUT = 192, 32
_PENALTIES: Final = (1e-4, 1e-3, 1e-2, 1e-1)  # times the mean variance of features
_SLOPES: Final = np.array([0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0])
_SMALLEST_SHARE, _SMALLEST_VARIANCE = 1e-3, 1e-12
_UNKNOWN: Final = Estimate(math.nan, math.nan)


def estimate_objectives(
    problem: Problem, game: Game, member: int, pool: Pool, splits: Splits
) -> dict[str, Estimate]:
    """Estimates every interim objective of one member; NaN before the game's first step.

    Errors contain the sampling of validation records, but not the distance to the end of training.
    Releases draw their noise from streams of their own, so that training is not affected.
    """
    config = game.configs[member]
    keys, curves = interim_objectives(problem, config), game.curves(member)
    found = {key: estimate_from_curve(curves[key].values) for key in keys if key in curves}
    if game.step and keys - found.keys():
        measured = _measure_release(problem, game, member, pool, splits)
        found |= {key: Estimate(e.value, e.error) for key, e in measured.items()}
    return {key: found.get(key, _UNKNOWN) for key in keys}


def estimate_from_curve(values: Sequence[float]) -> Estimate:
    """Mean of the last values of an exact measure's curve, and its standard error.

    A trend counts as variation, since a quantity that still changes is not known well. The
    distance to the end of training is not included.

    Returns:
        Estimate from the last half, of at least 4 and at most 10 values; NaN for fewer than 4.
    """
    window = values[-min(_MAX_CURVE_VALUES, max(_MIN_CURVE_VALUES, len(values) // 2)) :]
    if len(window) < _MIN_CURVE_VALUES or not all(map(math.isfinite, window)):
        return _UNKNOWN
    error = statistics.stdev(window) / math.sqrt(len(window))
    return Estimate(statistics.fmean(window), error)


def _measure_release(
    problem: Problem, game: Game, member: int, pool: Pool, splits: Splits
) -> Mapping[str, Estimate]:
    """Measures the release of the validation split; nothing if it has no moments."""
    config, releaser = game.configs[member], game.record_releaser(member)

    def release(records: NDArray[np.int64], part: str) -> AttackView:
        z = releaser.release(records, f"rung at step {game.step}: {part}")
        return select_exposure(pool, records, z)

    validation = release(splits.validation, "validation")
    if not _has_moments(validation.z):
        return {}
    measured: dict[str, Estimate] = {}
    log_utility = None
    if problem.spec.utility_classes:
        log_utility = game.infer("utility", member, validation)
        measured["utility/accuracy"] = utility_accuracy(log_utility, validation)
    if config.evaluation == "exact":
        return measured
    if problem.spec.copies_input:
        raw = select_exposure(pool, splits.validation)
        measured["utility/normalized_error"] = normalized_error(problem, config, raw, validation)
    # Records that the judge is fitted to, each repeated once per release.
    steps = validation.secret[0].numel()
    most = min(len(splits.attack), _RECORDS, max(1, 2 * _ROWS // steps))
    draws = min(_MAX_DRAWS, max(_MIN_DRAWS, _ROWS // (steps * most)))
    attack = release(np.tile(subsample(splits.attack, most), draws), "attack")
    if _has_moments(attack.z):
        measured |= _judge_release(problem, config, attack, validation, log_utility)
    return measured


def _has_moments(z: Tensor) -> bool:
    """Whether numbers are finite and their squares are, too."""
    return bool((z.abs() < _LARGEST).all())


def _judge_release(
    problem: Problem,
    config: AdversarialConfig,
    attack: AttackView,
    validation: AttackView,
    log_utility: Tensor | None,
) -> dict[str, Estimate]:
    """Fits a judge to the secret and, if there is one, to the utility label; nothing without data.

    The game's utility network has nothing to hide, so its log probabilities [n, C] compete with
    the judge's, and the better on validation counts.
    """
    spec = problem.spec
    fitted, scored = (released_part(each, sees_side=True) for each in (attack, validation))
    rows = scored.rows
    fold = np.unique(rows.cluster, return_inverse=True)[1] % 2
    if len(np.unique(rows.secret)) < spec.secret_classes or not fold.any():
        return {}
    labels = [(fitted.rows.secret, spec.secret_classes)]
    if attack.utility is not None and log_utility is not None and not spec.has_either_label:
        labels.append((_rows_of(attack.utility, fitted.rows), spec.utility_classes))
    targets = np.concatenate([np.eye(size, dtype=np.float32)[label] for label, size in labels], 1)
    tables = (fitted.x, scored.x, targets)
    x, new, wanted = (torch.from_numpy(table).to(attack.z.device) for table in tables)
    random, is_image = generator(config.seed, "judge"), attack.z.ndim == 4
    shares = predict_shares(x, new, wanted, random, is_image=is_image)
    priors = [class_frequencies(*label) for label in labels]
    own = shares[..., : spec.secret_classes]
    log_p, prior = select_beliefs(own, rows.secret, priors[0], fold), priors[0]
    # Leakage beyond side information would differ by a constant of the seed.
    reference = np.broadcast_to(np.log(prior), log_p.shape)
    headline = (
        balanced_accuracy(balanced_decision(log_p, prior), rows, len(prior)),
        area_under_curve(log_p, rows),
        leakage(log_p, reference, rows),
        leakage(log_p, reference, rows, config.alpha),
    )
    measured = dict(zip(PRIVACY_KEYS, headline, strict=True))
    if validation.utility is not None and log_utility is not None and len(labels) > 1:
        label = _rows_of(validation.utility, rows)
        competing = _rows_of(log_utility, rows)[None]
        rivals = [shares[..., spec.secret_classes :], np.exp(competing)]
        log_p = select_beliefs(np.concatenate(rivals), label, priors[1], fold)
        right = (log_p.argmax(1) == label).astype(np.float64)
        measured["utility/refitted_accuracy"] = estimates.mean(right, rows.cluster)
        # The loss on raw records would be subtracted; it is the same at every point of a seed.
        loss = -log_p[np.arange(len(label)), label]
        measured["utility/censored"] = estimates.mean(loss, rows.cluster)
    return measured


def _rows_of(values: Tensor, rows: KnownRows) -> NDArray[Any]:
    """Entries of a tensor [n, ...] for rows of the same records."""
    selected: NDArray[Any] = values.cpu().numpy()[rows.record]
    return selected


def predict_shares(
    attack: Tensor,
    validation: Tensor,
    targets: Tensor,
    random: np.random.Generator,
    *,
    is_image: bool,
) -> NDArray[np.float64]:
    """Predicts the probability of each target by ridge regression, once per penalty.

    Args:
        attack: Released values to fit, float32, shape [n, f].
        validation: Released values to predict from, float32, shape [m, f].
        targets: 1 where a row of `attack` belongs to the target, else 0, float32, shape [n, T].
        random: The same for all releases that are compared.
        is_image: Whether columns are pixels, whose proportions matter.

    Returns:
        Predictions, about in [0, 1], shape [penalties, m, T].
    """
    if is_image and attack.shape[1] > _COMPONENTS:  # first principal axes by subspace iteration
        rows = attack[:_AXES_ROWS] - attack[:_AXES_ROWS].mean(0)
        axes = _normal(random, (rows.shape[1], _COMPONENTS), rows)
        for _ in range(_PASSES):
            axes = torch.linalg.qr(rows.mT @ (rows @ axes)).Q
        attack, validation = attack @ axes, validation @ axes
    mean = attack.mean(0)
    squares = (attack - mean).square()
    deviation = (squares.mean() if is_image else squares.mean(0)).sqrt()
    deviation = torch.where(deviation > 0, deviation, 1)
    attack, validation = (attack - mean) / deviation, (validation - mean) / deviation
    inputs = attack.shape[1]
    features = min(_FEATURES, inputs * _FEATURES_PER_INPUT)
    weight = _normal(random, (inputs, features), attack) / inputs**0.5
    bias = _normal(random, (features,), attack)
    parts = (torch.cat([z, torch.relu(z @ weight + bias)], 1) for z in (attack, validation))
    x, new = (part.double() for part in parts)  # moments of heavy tails need the precision
    centre, share = x.mean(0), targets.double().mean(0)
    x -= centre
    second, moments = x.mT @ x / len(x), x.mT @ (targets - share) / len(x)
    variance = second.diagonal().mean().clamp_min(_SMALLEST_VARIANCE)
    penalties = variance * torch.tensor(_PENALTIES, device=x.device).view(-1, 1, 1)
    factors = torch.linalg.cholesky(second + penalties * torch.eye(len(second), device=x.device))
    weights = torch.cholesky_solve(moments.expand(len(factors), -1, -1), factors)
    columns = weights.transpose(0, 1).flatten(1)  # one product for all penalties
    predicted = ((new - centre) @ columns).view(len(new), len(factors), -1) + share
    return predicted.transpose(0, 1).cpu().numpy()


def select_beliefs(
    shares: NDArray[np.float64],
    label: NDArray[np.int64],
    prior: NDArray[np.float64],
    fold: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Log probabilities of a label, by the prediction and the confidence that do best elsewhere.

    The prediction is chosen by its squared error on the rows of the other fold. Its evidence
    against the prior is multiplied by a slope, chosen there by cross-entropy.

    Args:
        shares: Predicted probabilities, shape [J, m, C]; they need not be normalised.
        label: Classes, shape [m].
        prior: Probabilities, shape [C].
        fold: 0 or 1, shape [m].

    Returns:
        Normalised, shape [m, C].
    """
    rows = np.arange(len(label))
    # The squared distance to the one-hot label, without the label's own square of 1.
    error = np.einsum("jmc,jmc->jm", shares, shares) - 2 * shares[:, rows, label]
    beliefs = np.empty(shares.shape[1:])
    for own in (fold == 0, fold == 1):
        chosen = shares[error[:, ~own].mean(1).argmin()]
        evidence = np.log(np.maximum(chosen, _SMALLEST_SHARE) / prior).T
        # Classes are few: as the first dimension they leave long rows to vector units.
        raised = np.log(prior)[:, None, None] + _SLOPES[:, None] * evidence[:, None]
        log_p = torch.from_numpy(raised).log_softmax(0).numpy()  # [C, slopes, m]
        loss = -log_p[label[~own], :, rows[~own]].mean(0)
        beliefs[own] = log_p[:, loss.argmin(), own].T
    return beliefs


def _normal(random: np.random.Generator, shape: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.from_numpy(random.standard_normal(shape)).to(like)
