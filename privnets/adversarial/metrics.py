"""Metric keys of the adversarial experiment, its objectives, and those that a rung can estimate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from privnets.adversarial.attackers import ATTACKERS, SIDE
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.objectives import OBJECTIVES
from privnets.adversarial.problem import Problem
from privnets.config import floor_key
from privnets.contract import Direction

PRIVACY_KEYS: Final = (
    "privacy/attacker_balanced_accuracy",
    "privacy/attacker_auc",
    "privacy/leakage",
    "privacy/alpha_leakage",
)
FLOOR_KEYS: Final = ("floor/prior", "floor/utility_label", "floor/side_information")
INFERRED_LABEL_KEY: Final = "floor/inferred_utility_label"
"""Floor of the utility label as a fresh network infers it from the release."""
ATTAINABLE_KEY: Final = "floor/attainable"
"""Floor that an attacker with the release reaches without looking for the secret."""
RAW_KEY: Final = "baseline/attacker_balanced_accuracy"
"""Success of the strongest attacker of the raw records."""
REFITTED: Final = ("balanced_accuracy", "auc", "log_loss")
"""Further utilities of a fresh network, `utility/refitted_*`, each with its floor."""
BELOW_BOUND: Final = "flag/below_bound"
"""Flag: leakage and censored utility together are below the bound that any release obeys."""

_GENERAL: Final = (
    *PRIVACY_KEYS,
    "utility/normalized_error",
    "floor/attacker_balanced_accuracy",
    *FLOOR_KEYS,
    INFERRED_LABEL_KEY,
    ATTAINABLE_KEY,
    RAW_KEY,
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
    *(f"utility/refitted_{name}" for name in REFITTED),
    "floor/utility_accuracy",
    *(f"floor/utility_refitted_{name}" for name in ("accuracy", *REFITTED)),
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
        "utility/refitted_log_loss",
        *_EXACT,
    }
    directions: dict[str, Direction] = dict.fromkeys(sorted(minimised), "min")
    shares = ("accuracy", "refitted_accuracy", "refitted_balanced_accuracy", "refitted_auc")
    return {**directions, **{f"utility/{name}": "max" for name in shares}}


def attacker_keys(name: str) -> tuple[str, str, str]:
    """Keys of one attacker's balanced accuracy, area under the ROC curve and leakage."""
    prefix = f"privacy/attacker/{name}"
    return f"{prefix}/balanced_accuracy", f"{prefix}/auc", f"{prefix}/leakage"


def under_labels(key: str, rule: str) -> str:
    """Key of the same metric on `Evidence.other_test`, which another rule labels."""
    return f"{key}_{rule}_labels"


def other_label_keys(names: Iterable[str], rule: str | None) -> set[str]:
    """Keys of success and floor under another rule of labels; none without one."""
    if rule is None:
        return set()
    attackers = (attacker_keys(name)[0] for name in names)
    return {under_labels(key, rule) for key in (PRIVACY_KEYS[0], FLOOR_KEYS[1], *attackers)}


def metric_keys(problem: Problem, config: AdversarialConfig) -> tuple[str, ...]:
    """All keys that a replicate reports, sorted."""
    spec = problem.spec
    if config.evaluation == "exact":
        return tuple(sorted({*_WITHOUT_ATTACKERS, *spec.extra_metrics}))
    keys = {*_GENERAL, *spec.extra_metrics}
    keys |= {key for name in spec.attackers for key in attacker_keys(name)}
    keys |= {*OBJECTIVES.get(config.objective).metrics}
    if spec.utility_classes:
        keys |= {*_WITH_UTILITY_LABEL, *(config.metrics or ())}
        keys |= {*map(floor_key, config.metrics or ())}
    if (rule := problem.other_labels(config)) is not None:
        keys |= {*other_label_keys(spec.attackers, rule), under_labels(RAW_KEY, rule)}
    return tuple(sorted(keys))


def interim_objectives(problem: Problem, config: AdversarialConfig) -> frozenset[str]:
    """Reported objectives that a rung can estimate without the networks of the game.

    They are those of a fresh judge, those that need no attacker, and exact information. Each
    attacker of the panel by itself is none of them. Of faces there are none, as the judge ranks
    releases of unlike kinds in another order than the panel.
    """
    spec = problem.spec
    if not spec.has_judge:
        return frozenset()
    keys: set[str] = set()
    if problem.has_exact_information(config):
        keys |= {"exact/leakage", "exact/censored"}
    if spec.utility_classes:
        keys.add("utility/accuracy")
    if config.evaluation == "attackers":
        keys |= {*PRIVACY_KEYS}
        if spec.copies_input:
            keys.add("utility/normalized_error")
        if spec.utility_classes and not spec.has_either_label:
            keys |= {"utility/refitted_accuracy", "utility/censored"}
    return frozenset(keys)
