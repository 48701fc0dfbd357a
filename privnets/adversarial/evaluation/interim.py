"""Estimates of objectives at a rung, measured on the releases of that moment.

The game's own adversary does not rank releases, as a releaser learns to deceive it. So a judge is
fitted afresh at every rung to releases of the attack split. Its model and data follow from the
problem alone. Validation records score it; test records are not used.
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
from privnets.adversarial.evaluation.judge import predict_shares, select_beliefs
from privnets.adversarial.metrics import PRIVACY_KEYS, interim_objectives
from privnets.adversarial.problem import Problem, Splits, class_frequencies, subsample
from privnets.adversarial.records import AttackView, KnownRows, Pool, select_exposure
from privnets.adversarial.training.game import Game
from privnets.randomness import generator
from privnets.statistics import estimates
from privnets.statistics.estimates import Estimate

_RECORDS = 2_000  # most records of the attack split that a judge is fitted to
_ROWS = 2**12  # rows to which releases are repeated, two to four times; a step of a sequence is one
_MIN_DRAWS, _MAX_DRAWS = 2, 4
_MIN_CURVE_VALUES, _MAX_CURVE_VALUES = 4, 10  # of the last half of a curve
_LARGEST = 1e15  # of a released number
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
