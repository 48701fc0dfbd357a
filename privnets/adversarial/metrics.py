"""The metric keys of the adversarial experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from privnets.adversarial.attackers.names import THICKNESS, attacker_names
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.statement import Statement

_OF_AN_ATTACKER = ("balanced_accuracy", "auc", "leakage")
_PRIVACY = (
    "privacy/attacker_balanced_accuracy",
    "privacy/attacker_auc",
    "privacy/leakage",
    "privacy/alpha_leakage",
)
_ALWAYS = (
    *_PRIVACY,
    "utility/normalized_error",
    "floor/attacker_balanced_accuracy",
    "floor/prior",
    "floor/utility_label",
    "floor/side_information",
    "floor/inferred_utility_label",
    "baseline/attacker_balanced_accuracy",
    "flag/attacker_below_floor",
    "flag/attacker_not_converged",
    "diagnostic/adversary_balanced_accuracy",
)
_OF_A_UTILITY_LABEL = (
    "utility/accuracy",
    "utility/refitted_accuracy",
    "utility/censored",
    "bound/release",
    "bound/gap",
    "baseline/utility_accuracy",
)
_EXACT = ("exact/leakage", "exact/censored", "exact/loss")
_WITHOUT_ATTACKERS = (
    "diagnostic/adversary_balanced_accuracy",
    "utility/accuracy",
    "bound/release",
    "bound/gap",
)
_ATTACKERS = (
    *(f"{name}{side}" for name in attacker_names(False, False, ()) for side in ("", "_side")),
    *THICKNESS,
)

OBJECTIVES: Mapping[str, Literal["min", "max"]] = {
    **{key: "min" for key in _PRIVACY},
    **{f"privacy/attacker/{name}/{part}": "min" for name in _ATTACKERS for part in _OF_AN_ATTACKER},
    "utility/normalized_error": "min",
    "utility/accuracy": "max",
    "utility/refitted_accuracy": "max",
    "utility/censored": "min",
    **{key: "min" for key in _EXACT},
}


def metric_keys(statement: Statement, config: AdversarialConfig) -> tuple[str, ...]:
    """Every key that a replicate reports."""
    if config.evaluation == "exact":
        return tuple(sorted({*_WITHOUT_ATTACKERS, *statement.extra_metric_keys(config)}))
    names = attacker_names(statement.sequential, statement.side_features > 0, statement.analytic)
    keys = {*_ALWAYS, *statement.extra_metric_keys(config)}
    keys |= {f"privacy/attacker/{name}/{part}" for name in names for part in _OF_AN_ATTACKER}
    if statement.utility_classes:
        keys |= {*_OF_A_UTILITY_LABEL}
    return tuple(sorted(keys))


def default_objectives(
    statement: Statement, config: AdversarialConfig
) -> Mapping[str, Literal["min", "max"]]:
    """The strongest attacker's success, or what is exactly known, against what a release is for."""
    if config.evaluation == "exact":
        keys = ("exact/leakage", "exact/censored")
    elif not statement.copies:
        keys = ("privacy/leakage", "utility/censored")
    else:
        useful = "utility/accuracy" if statement.utility_classes else "utility/normalized_error"
        keys = ("privacy/attacker_balanced_accuracy", useful)
    return {key: OBJECTIVES[key] for key in keys}
