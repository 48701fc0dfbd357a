"""What an adversarial release is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from privnets.config import ExperimentConfig
from privnets.points import Scalar

# What a problem takes where a study is silent; EQUATIONS gives sizes for some, the rest is chosen.
DEFAULTS: Final[Mapping[str, Mapping[str, Scalar]]] = {
    "gaussian-mixture": {
        "objective": "squared-kl",
        "releaser": "linear",
        "releaser_width": 32,
        "adversary_width": 32,
        "batch_size": 256,
        "train_size": 8192,
        "attack_size": 8192,
        "learning_rate": 0.05,
        "adversary_learning_rate": 0.01,
    },
    "digits": {"releaser_width": 128, "steps": 1000, "batch_size": 64, "attack_steps": 600},
    "amnist": {
        "releaser": "convolutional",
        "releaser_width": 64,
        "adversary_width": 16,
        "steps": 4000,
        "distortion_weight": 10.0,
        "utility_weight": 2.0,
        "noise_std": 0.15,
        "learning_rate": 2e-3,
        "adversary_learning_rate": 2e-3,
    },
    "eco": {
        "releaser": "recurrent",
        "adversary_width": 32,
        "batch_size": 64,
        "side_information": True,
    },
}


class AdversarialConfig(ExperimentConfig):
    """A releaser trained against an adversary, and the attackers that judge its release.

    Objective `alpha` (arXiv 2310.18241, eq. 5) is distortion minus `privacy_weight` times the
    adversary's conditional entropy of order `alpha`, per time step. Objective `squared-kl` (ICLR
    2019 submission, eq. 8) is (1 - a) I(U;X|Q)^2 + a I(S;Q)^2 with a the `tradeoff`. Fields that
    are not given take the problem's default.
    """

    stackable: ClassVar[frozenset[str]] = frozenset(
        {
            "seed",
            "alpha",
            "privacy_weight",
            "distortion_weight",
            "utility_weight",
            "tradeoff",
            "dependence",
            "noise_std",
            "learning_rate",
            "adversary_learning_rate",
        }
    )

    problem: Literal["gaussian-mixture", "digits", "amnist", "eco"] = Field(
        description="what is released, what is secret and what is useful"
    )
    objective: Literal["alpha", "squared-kl"] = Field(
        "alpha", description="what the releaser minimises"
    )

    alpha: float = Field(1.0, ge=0, allow_inf_nan=True, description="order of the leakage measure")
    privacy_weight: float = Field(1.0, ge=0, le=1e6, description="weight of leakage, lambda")
    gradient: Literal["posterior", "label"] = Field(
        "label",
        description="of the conditional entropy: as published, or the exact alpha-loss form",
    )
    sequence: Literal["joint", "sum"] = Field(
        "joint", description="conditional entropy of a sequence: of all steps together, or summed"
    )
    distortion_weight: float = Field(1.0, ge=0, le=1e6, description="of closeness to the input")
    utility_weight: float = Field(1.0, ge=0, le=1e6, description="of the utility label's loss")

    tradeoff: float = Field(0.5, ge=0, le=1, description="a of squared-kl: 1 is privacy alone")
    estimator: Literal["sound", "label", "full"] = Field(
        "sound",
        description="of the two divergences: see `adversarial.training.squared_kl`",
    )
    squaring: Literal["running", "clamped", "batch"] = Field(
        "running", description="what is squared: a running mean, or the batch's, clamped or not"
    )

    scenario: Literal["joint", "fixed-utility", "fixed-both"] = Field(
        "joint", description="which inference networks are trained on raw data and then held fixed"
    )
    dependence: float = Field(
        1.0, ge=0, le=2, description="k of gaussian-mixture: P(U=1, S=1) = k / 4; 1 is independent"
    )
    noise_std: float = Field(1.0, ge=0, le=1e3, description="scale of the releaser's noise")
    train_size: int | None = Field(None, ge=16, description="records of the game; all if null")
    attack_size: int | None = Field(
        None, ge=16, description="records attackers train on; all if null"
    )
    resolution: Literal["hour", "quarter-hour"] = Field("hour", description="time step of eco")
    side_information: bool = Field(
        False, description="whether releaser and adversary of eco see weekday and month"
    )

    releaser: Literal["linear", "mlp", "convolutional", "recurrent"] = Field(
        "mlp", description="the releaser's network"
    )
    releaser_width: int = Field(64, ge=1, le=4096, description="units or channels of the releaser")
    adversary_width: int = Field(64, ge=1, le=4096, description="of the inference networks")
    steps: int = Field(2000, ge=1, le=10**7, description="releaser steps")
    adversary_steps: int = Field(
        2, ge=1, le=1000, description="k, adversary steps per releaser step"
    )
    pretrain_steps: int = Field(
        1000, ge=1, le=10**6, description="steps on raw data of the networks that are then fixed"
    )
    batch_size: int = Field(128, ge=4, le=2**20, description="records in a minibatch")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="of the releaser")
    adversary_learning_rate: float = Field(
        1e-3, gt=0, le=1, description="of the inference networks"
    )
    evaluation: Literal["attackers", "exact"] = Field(
        "attackers",
        description="fresh attackers on the release, or its exact information where it is known",
    )
    attack_steps: int = Field(
        3000, ge=50, le=10**7, description="most steps of an attacker's network"
    )

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        problem = given.get("problem")
        return {**(DEFAULTS.get(problem, {}) if isinstance(problem, str) else {}), **given}
