"""What training curves tell of objectives before the end, to compare members of one stack by.

These come from the networks that train in the game. They serve early stopping alone and are never
reported: a fresh attacker may find what the in-loop adversary does not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.statement import Statement
from privnets.contract import InterimEstimate
from privnets.points import Curve

# An estimate rests on the last half of a curve, on so many of its values at least and at most.
_LEAST, _MOST = 4, 10
_UNTOLD: Final = InterimEstimate(math.nan, math.nan)

_ADVERSARY: Final = ("information/leakage",)
_ALWAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "privacy/attacker_balanced_accuracy": _ADVERSARY,
    "privacy/attacker_auc": _ADVERSARY,
    "privacy/leakage": _ADVERSARY,
    "utility/normalized_error": ("distortion",),
}
# Without a network that reads raw records, what is lost is known up to what those would tell.
_CENSORED: Final = ("information/censored", "loss/utility")
_OF_A_UTILITY_LABEL: Final[Mapping[str, tuple[str, ...]]] = {
    "utility/accuracy": ("accuracy/utility",),
    "utility/refitted_accuracy": ("accuracy/utility",),
    "utility/censored": _CENSORED,
}
_OF_EXACT_INFORMATION: Final[Mapping[str, tuple[str, ...]]] = {
    "exact/leakage": ("exact/leakage",),
    "exact/censored": ("exact/censored",),
}


def surrogates(statement: Statement, config: AdversarialConfig) -> Mapping[str, tuple[str, ...]]:
    """Objective to the curves that stand in for it, the best first.

    What an attacker achieves is judged by the in-loop adversary's information (the prior's loss
    less its own, nats), which unlike its accuracy moves while it still guesses the commonest class.
    Leakage of an order other than 1 has no stand-in.
    """
    found = dict(_ALWAYS)
    if config.alpha == 1:
        found["privacy/alpha_leakage"] = _ADVERSARY
    if statement.utility_classes:
        found |= _OF_A_UTILITY_LABEL
    if statement.exact(config):
        found |= _OF_EXACT_INFORMATION
    return found


def estimates(
    statement: Statement, config: AdversarialConfig, curves: Mapping[str, Curve]
) -> dict[str, InterimEstimate]:
    """Objective to what one member's training curves say of it."""
    found = {}
    for objective, names in surrogates(statement, config).items():
        values = next((curves[name].values for name in names if name in curves), ())
        found[objective] = estimate(values)
    return found


def estimate(values: Sequence[float]) -> InterimEstimate:
    """The mean of a curve's last values, and its standard error.

    Values are means over disjoint minibatches, so they scatter almost independently about what
    the networks of that time achieve. Their standard deviation about the mean counts a trend as
    scatter, which is as it should be: what still moves is not known well. How far the networks
    are from where they will end is not in it.

    Args:
        values: In the order of training.

    Returns:
        Over the last half, though at least 4 and at most 10 values; NaN of fewer than 4.
    """
    window = values[-min(_MOST, max(_LEAST, len(values) // 2)) :]
    if len(window) < _LEAST or not all(map(math.isfinite, window)):
        return _UNTOLD
    spread = statistics.stdev(window)
    return InterimEstimate(statistics.fmean(window), spread / math.sqrt(len(window)))
