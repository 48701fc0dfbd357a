"""Configuration of an adversarial release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, cast

from pydantic import Field, model_validator

from privnets.adversarial.attackers import ProfileName
from privnets.adversarial.objectives import OBJECTIVES
from privnets.adversarial.problems import PROBLEMS
from privnets.config import ExperimentConfig, Named, OneOf, UserMetric
from privnets.points import Scalar
from privnets.references.models import NETWORK_FORMS, NetworkReference
from privnets.references.problems import PROBLEM_FORMS, OwnReference, ProblemSettings
from privnets.registry import ExtensionError

ProblemChoice = Annotated[
    str | Named | OwnReference,
    OneOf(PROBLEMS.names, PROBLEM_FORMS, lambda name: PROBLEMS.get(name).Settings),
]
"""Name of a problem, perhaps with its settings, or the user's own records."""


RELEASER_NAMES: Final = ("linear", "mlp", "convolutional", "recurrent", "unet", "fader")
COPYING_RELEASERS: Final = ("unet", "fader")
"""Releasers that learn to copy before the game."""
Obfuscation = Literal["noise", "blur", "box", "rounding", "average"]
"""Releasers that do not learn."""
_NO_SETTINGS: Final = ProblemSettings()


class AdversarialConfig(ExperimentConfig):
    """A releaser trained against an adversary, and the attackers that evaluate its release.

    Objective `alpha` (arXiv 2310.18241, eq. 5) is distortion minus `privacy_weight` times the
    adversary's conditional entropy of order `alpha`, per time step. Objective `squared-kl` (ICLR
    2019 submission, eq. 8) is (1 - a) I(U;X|Q)^2 + a I(S;Q)^2 with a the `tradeoff`, to which
    `distortion_weight` may add the distortion. A field that is not given takes its problem's
    default; the papers give some sizes, the others are chosen.
    """

    stackable: ClassVar[frozenset[str]] = frozenset(
        {
            "seed",
            "alpha",
            "privacy_weight",
            "distortion_weight",
            "utility_weight",
            "tradeoff",
            "noise_std",
            "strength",
            "learning_rate",
            "adversary_learning_rate",
        }
    )

    problem: ProblemChoice = Field(
        description="records, their secret, and what is useful about them"
    )
    objective: Annotated[str, OneOf(OBJECTIVES.names)] = Field(
        "alpha", description="loss of the releaser"
    )

    alpha: float = Field(1.0, ge=0, allow_inf_nan=True, description="order of the leakage measure")
    privacy_weight: float = Field(1.0, ge=0, le=1e6, description="weight of leakage, lambda")
    gradient: Literal["posterior", "label"] = Field(
        "label",
        description="form of the conditional entropy: as published, or the exact alpha-loss",
    )
    distortion_weight: float = Field(
        1.0, ge=0, le=1e6, description="weight of the distortion; 0 by default with squared-kl"
    )
    utility_weight: float = Field(
        1.0, ge=0, le=1e6, description="weight of the utility label's cross-entropy"
    )

    tradeoff: float = Field(0.5, ge=0, le=1, description="a of squared-kl: 1 is privacy alone")
    estimator: Literal["sound", "label", "full"] = Field(
        "sound",
        description="form of the two divergences: see `privnets.adversarial.training.losses`",
    )
    squaring: Literal["running", "clamped", "batch"] = Field(
        "running", description="squared quantity: a running mean, or the batch's, clamped or not"
    )

    scenario: Literal["joint", "fixed-utility", "fixed-both"] = Field(
        "joint", description="inference networks that are trained on raw data and then held fixed"
    )
    noise_std: float = Field(1.0, ge=0, le=1e3, description="scale of the releaser's noise")
    train_size: int | None = Field(
        None, ge=16, description="records that the game trains on; all if null"
    )

    releaser: Annotated[str | NetworkReference, OneOf(lambda: RELEASER_NAMES, NETWORK_FORMS)] = (
        Field("mlp", description="the releaser's network")
    )
    inference_network: Annotated[
        str | NetworkReference, OneOf(lambda: ("problem",), NETWORK_FORMS)
    ] = Field(
        "problem",
        description="network of adversary and utility in the game: the problem's, or the user's",
    )
    obfuscation: Obfuscation | Literal["none"] = Field(
        "none", description="trivial obfuscation in place of a learned releaser, as its baseline"
    )
    strength: float = Field(
        0.1, ge=0, le=1e3, description="strength of the obfuscation; 0 releases raw records"
    )
    releaser_width: int = Field(64, ge=1, le=4096, description="units or channels of the releaser")
    adversary_width: int = Field(
        64, ge=1, le=4096, description="units or channels of the inference networks"
    )
    steps: int = Field(
        2000, ge=0, le=10**7, description="releaser steps; 0 ends unet or fader with pretraining"
    )
    adversary_steps: int = Field(
        2, ge=1, le=1000, description="k, adversary steps per releaser step"
    )
    pretrain_steps: int = Field(
        1000,
        ge=1,
        le=10**6,
        description="steps on raw data: of networks then fixed, and of unet or fader to copy",
    )
    batch_size: int = Field(128, ge=4, le=2**20, description="records in a minibatch")
    precision: Literal["float32", "tf32", "bf16"] = Field(
        "float32",
        description="number format of products in the game's networks; tf32 acts on GPUs alone",
    )
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
    metrics: dict[UserMetric, str] | None = Field(
        None, description="utilities of the user's, each with a scorer or module:function"
    )

    @property
    def releaser_name(self) -> str:
        """Name of the network or of the obfuscation that releases; a user's network is `torch`."""
        if self.obfuscation != "none":
            return self.obfuscation
        return self.releaser if isinstance(self.releaser, str) else "torch"

    @property
    def noise_scale(self) -> float:
        """Factor on the releaser's noise; an obfuscation reads its strength from it."""
        return self.noise_std if self.obfuscation == "none" else self.strength

    @model_validator(mode="before")
    @classmethod
    def _fill_problem_defaults(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        try:
            defaults = _problem_defaults(values.get("problem"))
        except ExtensionError as error:
            raise ValueError(str(error)) from error
        if values.get("objective", defaults.get("objective")) == "squared-kl":
            defaults = {**defaults, "distortion_weight": 0.0}  # as published
        return {**defaults, **values}

    @property
    def settings(self) -> ProblemSettings:
        """Settings of the problem, or its description if it is of the user's own records."""
        if isinstance(self.problem, Named):
            return cast(ProblemSettings, self.problem.settings)
        return self.problem if isinstance(self.problem, OwnReference) else _NO_SETTINGS


def _problem_defaults(problem: object) -> Mapping[str, Scalar]:
    """Defaults of a valid value of the field `problem`; none for other values."""
    if isinstance(problem, OwnReference):
        return problem.defaults
    if isinstance(problem, Mapping):
        if forms := [form for key, form in PROBLEM_FORMS.items() if key in problem]:
            return forms[0].defaults if len(forms) == 1 else {}
        problem = next(iter(problem), None)
    name = str(problem)
    defaults: Mapping[str, Scalar] = (
        PROBLEMS.get(name).spec.defaults if name in PROBLEMS.names() else {}
    )
    return defaults
