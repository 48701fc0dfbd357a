"""Membership attacks, of the membership experiment and of audits alike.

An attack is a subclass of `Attack` in a module of its own, and one line in `ATTACKS`.
"""

from __future__ import annotations

from typing import Final, Literal

from privnets.attacks.base import Attack
from privnets.registry import Registry

Place = Literal["sweeps", "audits"]

# Other attacks are tried in both places, wherever their needs are met. The needs of most of these
# are never met in the other place; for the others, another attack there measures the same.
_SWEEPS_ALONE = {"threshold_gaussian", "threshold_mean_loss", "attack_p", "attack_r"}
_SWEEPS_ALONE |= {"loss_trajectory", "white_box"}
_AUDITS_ALONE = {"loss", "confidence", "entropy", "modified_entropy", "logit", "score"}
_AUDITS_ALONE |= {"correctness", "class_thresholds", "logistic", "boosting", "difference"}

ATTACKS: Final[Registry[Attack]] = Registry(
    "membership attack",
    "privnets.attacks",
    "privnets.attacks.base:Attack",
    {
        name: f"privnets.attacks.{location}"
        for name, location in {
            "loss": "thresholds:LOSS",
            "confidence": "thresholds:CONFIDENCE",
            "entropy": "thresholds:ENTROPY",
            "modified_entropy": "thresholds:MODIFIED_ENTROPY",
            "logit": "thresholds:LOGIT",
            "score": "thresholds:SCORE",
            "correctness": "thresholds:CORRECTNESS",
            "threshold_gaussian": "thresholds:ThresholdGaussian",
            "threshold_mean_loss": "thresholds:ThresholdMeanLoss",
            "attack_p": "calibrated_loss:AttackP",
            "class_thresholds": "learned:ClassThresholds",
            "quantile_regression": "quantile_regression:QuantileRegression",
            "logistic": "learned:LogisticAttack",
            "boosting": "learned:Boosting",
            "attack_r": "calibrated_loss:AttackR",
            "lira_offline": "lira:LiraOffline",
            "rmia_offline": "rmia:RmiaOffline",
            "bavaria_offline": "bavaria:BavariaOffline",
            "difference": "calibrated_loss:Difference",
            "lira_online": "lira:LiraOnline",
            "rmia_online": "rmia:RmiaOnline",
            "bavaria_online": "bavaria:BavariaOnline",
            "loss_trajectory": "loss_trajectory:LossTrajectory",
            "white_box": "white_box:WhiteBox",
        }.items()
    },
)


def attack_names(place: Place) -> tuple[str, ...]:
    """Names of the attacks that are tried in sweeps, or in audits."""
    left_out = _AUDITS_ALONE if place == "sweeps" else _SWEEPS_ALONE
    return tuple(name for name in ATTACKS.names() if name not in left_out)
