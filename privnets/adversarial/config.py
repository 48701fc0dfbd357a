"""Configuration of an adversarial release."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from privnets.adversarial.attackers.profiles import ProfileName
from privnets.adversarial.problems import PROBLEMS
from privnets.config import ExperimentConfig, OneOf
from privnets.registry import ExtensionError


class AdversarialConfig(ExperimentConfig):
    """A releaser trained against an adversary, and the attackers that evaluate its release.

    Objective `alpha` (arXiv 2310.18241, eq. 5) is distortion minus `privacy_weight` times the
    adversary's conditional entropy of order `alpha`, per time step. Objective `squared-kl` (ICLR
    2019 submission, eq. 8) is (1 - a) I(U;X|Q)^2 + a I(S;Q)^2 with a the `tradeoff`. A field that
    is not given takes its problem's default; the papers give some sizes, the others are chosen.
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

    problem: Annotated[str, OneOf(PROBLEMS.names)] = Field(
        description="records, their secret, and what is useful about them"
    )
    objective: Literal["alpha", "squared-kl"] = Field("alpha", description="loss of the releaser")

    alpha: float = Field(1.0, ge=0, allow_inf_nan=True, description="order of the leakage measure")
    privacy_weight: float = Field(1.0, ge=0, le=1e6, description="weight of leakage, lambda")
    gradient: Literal["posterior", "label"] = Field(
        "label",
        description="form of the conditional entropy: as published, or the exact alpha-loss",
    )
    sequence: Literal["joint", "sum"] = Field(
        "joint", description="conditional entropy of a sequence: of all steps jointly, or summed"
    )
    distortion_weight: float = Field(1.0, ge=0, le=1e6, description="weight of the distortion")
    utility_weight: float = Field(
        1.0, ge=0, le=1e6, description="weight of the utility label's cross-entropy"
    )

    tradeoff: float = Field(0.5, ge=0, le=1, description="a of squared-kl: 1 is privacy alone")
    estimator: Literal["sound", "label", "full"] = Field(
        "sound",
        description="form of the two divergences: see `privnets.adversarial.training.objectives`",
    )
    squaring: Literal["running", "clamped", "batch"] = Field(
        "running", description="squared quantity: a running mean, or the batch's, clamped or not"
    )

    scenario: Literal["joint", "fixed-utility", "fixed-both"] = Field(
        "joint", description="inference networks that are trained on raw data and then held fixed"
    )
    dependence: float = Field(
        1.0, ge=0, le=2, description="k of gaussian-mixture: P(U=1, S=1) = k / 4; 1 is independent"
    )
    noise_std: float = Field(1.0, ge=0, le=1e3, description="scale of the releaser's noise")
    train_size: int | None = Field(
        None, ge=16, description="records that the game trains on; all if null"
    )
    resolution: Literal["hour", "quarter-hour"] = Field("hour", description="time step of eco")
    side_information: bool = Field(
        False, description="whether releaser and adversary of eco see weekday, month and time"
    )

    releaser: Literal["linear", "mlp", "convolutional", "recurrent"] = Field(
        "mlp", description="the releaser's network"
    )
    releaser_width: int = Field(64, ge=1, le=4096, description="units or channels of the releaser")
    adversary_width: int = Field(
        64, ge=1, le=4096, description="units or channels of the inference networks"
    )
    steps: int = Field(2000, ge=1, le=10**7, description="releaser steps")
    adversary_steps: int = Field(
        2, ge=1, le=1000, description="k, adversary steps per releaser step"
    )
    pretrain_steps: int = Field(
        1000, ge=1, le=10**6, description="steps on raw data of the networks that are then fixed"
    )
    batch_size: int = Field(128, ge=4, le=2**20, description="records in a minibatch")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="learning rate of the releaser")
    adversary_learning_rate: float = Field(
        1e-3, gt=0, le=1, description="learning rate of the inference networks"
    )
    evaluation: Literal["attackers", "exact"] = Field(
        "attackers",
        description="fresh attackers on the release, or its exact information where it is known",
    )
    panel: ProfileName = Field(
        "full",
        description="data, size and training of the attackers; compare only points of one panel",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_problem_defaults(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("problem") not in PROBLEMS.names():
            return values
        try:
            defaults = PROBLEMS.get(values["problem"]).spec.defaults
        except ExtensionError as error:
            raise ValueError(str(error)) from error
        return {**defaults, **values}
