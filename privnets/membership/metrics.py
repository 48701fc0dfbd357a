"""Metric keys and objectives of the membership experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from privnets import data
from privnets.membership.config import ATTACKS, MODELS, MembershipConfig

_ATTACK_OBJECTIVES = ("advantage", "auc", "tpr_at_fpr_0.1", "tpr_at_fpr_0.01", "tpr_at_fpr_0.001")
_ATTACK_METRICS = (
    *_ATTACK_OBJECTIVES,
    "false_positives_at_fpr_0.1",
    "false_positives_at_fpr_0.01",
    "false_positives_at_fpr_0.001",
)
# Leakage of all parameters, which is undefined for models with many of them.
PARAMETER_LEAKAGE = (
    "privacy/rho_kl",
    "privacy/rho_kl_plugin",
    "privacy/median_record_rho_kl",
    "privacy/worst_record_rho_kl",
    "privacy/rho_mi",
    "privacy/rho_mi_balanced",
)
_LEAKAGE = (*PARAMETER_LEAKAGE, "privacy/rho_kl_output")
_OTHERS = (
    "privacy/membership_advantage",
    "privacy/threshold_advantage_if_gaussian",
    "bound/advantage",
    "bound/advantage_output",
    "flag/attack_beats_bound",
    "utility/generalization_gap",
)

OBJECTIVES: Mapping[str, Literal["min", "max"]] = {
    "privacy/membership_advantage": "min",
    **{
        f"privacy/attack/{name}/{metric}": "min"
        for name in ATTACKS.names()
        for metric in _ATTACK_OBJECTIVES
    },
    **{key: "min" for key in _LEAKAGE},
    "utility/test_mse": "min",
    "utility/test_accuracy": "max",
    "utility/generalization_gap": "min",
}


def attack_keys(name: str) -> tuple[str, ...]:
    """Returns the metric keys of one attack."""
    return tuple(f"privacy/attack/{name}/{metric}" for metric in _ATTACK_METRICS)


def utility_keys(config: MembershipConfig) -> tuple[str, str]:
    """Returns the keys of the test and the training utility."""
    classifies = MODELS.get(config.model).classifies(data.info(config.dataset))
    kind = "accuracy" if classifies else "mse"
    return f"utility/test_{kind}", f"utility/train_{kind}"


def metric_keys(config: MembershipConfig) -> tuple[str, ...]:
    """Returns every key that a replicate reports, sorted."""
    attacks = (key for name in ATTACKS.names() for key in attack_keys(name))
    return tuple(sorted((*attacks, *_LEAKAGE, *_OTHERS, *utility_keys(config))))
