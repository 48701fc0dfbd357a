"""Metric keys of the adversarial experiment, its objectives, and their estimates in training.

Estimates during training come from the game's own networks. They serve early stopping only and are
never reported: a fresh attacker may find what the in-loop adversary does not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from privnets.adversarial.attackers import ATTACKERS, SIDE, panel_members
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Problem
from privnets.contract import Direction, InterimEstimate
from privnets.points import Curve

PRIVACY_KEYS: Final = (
    "privacy/attacker_balanced_accuracy",
    "privacy/attacker_auc",
    "privacy/leakage",
    "privacy/alpha_leakage",
)
FLOOR_KEYS: Final = ("floor/prior", "floor/utility_label", "floor/side_information")
INFERRED_LABEL_KEY: Final = "floor/inferred_utility_label"
"""Floor of the utility label as a fresh network infers it from the release."""
BELOW_BOUND: Final = "flag/below_bound"
"""Flag: leakage and censored utility together are below the bound that any release obeys."""

_GENERAL: Final = (
    *PRIVACY_KEYS,
    "utility/normalized_error",
    "floor/attacker_balanced_accuracy",
    *FLOOR_KEYS,
    INFERRED_LABEL_KEY,
    "baseline/attacker_balanced_accuracy",
    "flag/attacker_below_floor",
    "flag/attacker_not_converged",
    "flag/attacker_frozen_noise",
    "flag/attacker_below_adversary",
    "flag/attacker_fails_on_raw_data",
    "diagnostic/adversary_balanced_accuracy",
)
_WITH_UTILITY_LABEL: Final = (
    "utility/accuracy",
    "utility/refitted_accuracy",
    "utility/censored",
    "bound/release",
    "bound/gap",
    BELOW_BOUND,
    "baseline/utility_accuracy",
)
_EXACT: Final = ("exact/leakage", "exact/censored", "exact/loss")
_WITHOUT_ATTACKERS: Final = (
    "diagnostic/adversary_balanced_accuracy",
    "utility/accuracy",
    "bound/release",
    "bound/gap",
    BELOW_BOUND,
)

# Curves that stand in for an objective during training, the best first.
_LEAKAGE_CURVES: Final = ("information/leakage",)
_CURVES: Final[Mapping[str, tuple[str, ...]]] = {
    "privacy/attacker_balanced_accuracy": _LEAKAGE_CURVES,
    "privacy/attacker_auc": _LEAKAGE_CURVES,
    "privacy/leakage": _LEAKAGE_CURVES,
    "utility/normalized_error": ("distortion",),
}
_UTILITY_CURVES: Final[Mapping[str, tuple[str, ...]]] = {
    "utility/accuracy": ("accuracy/utility",),
    "utility/refitted_accuracy": ("accuracy/utility",),
    # Without a network that reads raw records, the loss differs by a constant.
    "utility/censored": ("information/censored", "loss/utility"),
}
_EXACT_CURVES: Final[Mapping[str, tuple[str, ...]]] = {
    "exact/leakage": ("exact/leakage",),
    "exact/censored": ("exact/censored",),
}
# An estimate uses the last half of a curve, within these numbers of values.
_MIN_VALUES, _MAX_VALUES = 4, 10


def objectives() -> Mapping[str, Direction]:
    """Direction of every metric that may be an objective."""
    attackers = [name.rpartition(".") for name in ATTACKERS.names()]
    names = [name for problem, _, name in attackers]
    names += [name + SIDE for problem, _, name in attackers if not problem]
    minimised = {
        *PRIVACY_KEYS,
        *(key for name in names for key in attacker_keys(name)),
        "utility/normalized_error",
        "utility/censored",
        *_EXACT,
    }
    directions: dict[str, Direction] = dict.fromkeys(sorted(minimised), "min")
    return {**directions, "utility/accuracy": "max", "utility/refitted_accuracy": "max"}


def attacker_keys(name: str) -> tuple[str, str, str]:
    """Keys of one attacker's balanced accuracy, area under the ROC curve and leakage."""
    prefix = f"privacy/attacker/{name}"
    return f"{prefix}/balanced_accuracy", f"{prefix}/auc", f"{prefix}/leakage"


def metric_keys(problem: Problem, config: AdversarialConfig) -> tuple[str, ...]:
    """All keys that a replicate reports, sorted."""
    spec = problem.spec
    if config.evaluation == "exact":
        return tuple(sorted({*_WITHOUT_ATTACKERS, *spec.extra_metrics}))
    keys = {*_GENERAL, *spec.extra_metrics}
    keys |= {key for name in panel_members(spec) for key in attacker_keys(name)}
    if spec.utility_classes:
        keys |= {*_WITH_UTILITY_LABEL}
    return tuple(sorted(keys))


def default_objectives(problem: Problem, config: AdversarialConfig) -> Mapping[str, Direction]:
    """Success of the strongest attacker, or exact leakage, against the use of the release."""
    if config.evaluation == "exact":
        keys = ("exact/leakage", "exact/censored")
    elif not problem.spec.copies_input:
        keys = ("privacy/leakage", "utility/censored")
    elif problem.spec.utility_classes:
        keys = ("privacy/attacker_balanced_accuracy", "utility/accuracy")
    else:
        keys = ("privacy/attacker_balanced_accuracy", "utility/normalized_error")
    directions = objectives()
    return {key: directions[key] for key in keys}


def interim_curves(problem: Problem, config: AdversarialConfig) -> Mapping[str, tuple[str, ...]]:
    """Objectives with the curves that stand in for them during training, the best first.

    The in-loop adversary's information (the prior's loss less its own, nats) stands in for an
    attacker's success: unlike accuracy it changes while the adversary still guesses the commonest
    class. Leakage of an order other than 1 has no such curve.
    """
    curves = dict(_CURVES)
    if config.alpha == 1:
        curves["privacy/alpha_leakage"] = _LEAKAGE_CURVES
    if problem.spec.utility_classes:
        curves |= _UTILITY_CURVES
    if problem.has_exact_information(config):
        curves |= _EXACT_CURVES
    return curves


def interim_estimates(
    problem: Problem, config: AdversarialConfig, curves: Mapping[str, Curve]
) -> dict[str, InterimEstimate]:
    """Estimates of objectives from one member's training curves."""
    estimates = {}
    for objective, names in interim_curves(problem, config).items():
        values = next((curves[name].values for name in names if name in curves), ())
        estimates[objective] = estimate_from_curve(values)
    return estimates


def estimate_from_curve(values: Sequence[float]) -> InterimEstimate:
    """Mean of a curve's last values, and its standard error.

    Values are means over disjoint minibatches, so they vary almost independently around the
    success of the current networks. A trend counts as variation, since a quantity that still
    changes is not known well. The distance to the end of training is not included.

    Returns:
        Estimate from the last half, of at least 4 and at most 10 values; NaN for fewer than 4.
    """
    window = values[-min(_MAX_VALUES, max(_MIN_VALUES, len(values) // 2)) :]
    if len(window) < _MIN_VALUES or not all(map(math.isfinite, window)):
        return InterimEstimate(math.nan, math.nan)
    error = statistics.stdev(window) / math.sqrt(len(window))
    return InterimEstimate(statistics.fmean(window), error)
