"""The metric keys of the membership experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from privnets.membership.config import MembershipConfig

ATTACKS = ("threshold_gaussian", "threshold_mean_loss", "white_box", "lira_offline", "lira_online")
# What bounds each attack, the first that is defined. Those that see only the model's output at the
# record are bounded by its leakage too; the training loss is no function of the parameters, so
# nothing here bounds an attack that is told it.
BOUNDS_ON_ATTACKS: Mapping[str, tuple[str, ...]] = {
    "threshold_gaussian": ("bound/advantage", "bound/advantage_output"),
    "white_box": ("bound/advantage",),
    "lira_offline": ("bound/advantage", "bound/advantage_output"),
    "lira_online": ("bound/advantage", "bound/advantage_output"),
}
_OF_AN_ATTACK = (
    "advantage",
    "auc",
    "tpr_at_fpr_0.1",
    "tpr_at_fpr_0.01",
    "tpr_at_fpr_0.001",
    "false_positives_at_fpr_0.1",
    "false_positives_at_fpr_0.01",
    "false_positives_at_fpr_0.001",
)
# Leakage of all the parameters, which a model may have too many of.
OF_PARAMETERS = (
    "privacy/rho_kl",
    "privacy/rho_kl_plugin",
    "privacy/median_record_rho_kl",
    "privacy/worst_record_rho_kl",
    "privacy/rho_mi",
    "privacy/rho_mi_balanced",
)
_LEAKAGE = (*OF_PARAMETERS, "privacy/rho_kl_output")
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
    **{f"privacy/attack/{name}/{part}": "min" for name in ATTACKS for part in _OF_AN_ATTACK[:5]},
    **{key: "min" for key in _LEAKAGE},
    "utility/test_mse": "min",
    "utility/test_accuracy": "max",
    "utility/generalization_gap": "min",
}


def classifies(config: MembershipConfig) -> bool:
    """Whether the model's output is a class: always for logistic, by the data set for mlp."""
    from privnets.data import info

    if config.model == "mlp":
        return info(config.dataset).task == "multiclass"
    return config.model == "logistic"


def utility_keys(config: MembershipConfig) -> tuple[str, str]:
    """The keys of the test and training utility."""
    kind = "accuracy" if classifies(config) else "mse"
    return f"utility/test_{kind}", f"utility/train_{kind}"


def metric_keys(config: MembershipConfig) -> tuple[str, ...]:
    """Every key a replicate reports."""
    attacks = (f"privacy/attack/{name}/{part}" for name in ATTACKS for part in _OF_AN_ATTACK)
    return tuple(sorted((*attacks, *_LEAKAGE, *_OTHERS, *utility_keys(config))))
