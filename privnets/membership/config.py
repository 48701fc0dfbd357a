"""Configuration and metric keys of the membership experiment; registries of models and attacks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from pydantic import Field, field_validator

from privnets import data
from privnets.config import ExperimentConfig, OneOf
from privnets.registry import Registry

if TYPE_CHECKING:
    from privnets.membership.attacks import Attack
    from privnets.membership.models import TargetModel

MODELS: Final[Registry[TargetModel]] = Registry(
    "target model",
    "privnets.models",
    "privnets.membership.models:TargetModel",
    {
        "linear": "privnets.membership.models:Linear",
        "logistic": "privnets.membership.models:Logistic",
        "mlp": "privnets.membership.models:Mlp",
    },
)

ATTACKS: Final[Registry[Attack]] = Registry(
    "membership attack",
    "privnets.attacks",
    "privnets.membership.attacks:Attack",
    {
        "threshold_gaussian": "privnets.membership.attacks:ThresholdGaussian",
        "threshold_mean_loss": "privnets.membership.attacks:ThresholdMeanLoss",
        "lira_offline": "privnets.membership.attacks:LiraOffline",
        "lira_online": "privnets.membership.attacks:LiraOnline",
        "white_box": "privnets.membership.attacks:WhiteBox",
    },
)

_MODEL_FIELDS = frozenset({"hidden_layers", "hidden_units", "steps", "learning_rate"})


class MembershipConfig(ExperimentConfig):
    """A target model, trained on random subsets of a data set and attacked.

    arXiv 2001.10648, section 6. The training loss is the mean loss plus `weight_decay` times the
    squared norm of the parameters (eq. 1). The loss is the squared error for `linear`, the
    cross-entropy for `logistic`, and either for `mlp`, by the data set's task.
    """

    stackable: ClassVar[frozenset[str]] = frozenset(
        {"seed", "weight_decay", "noise_std", "learning_rate"}
    )

    dataset: Annotated[str, OneOf(partial(data.names, "table"))] = Field(
        description="data set from which training sets are drawn"
    )
    model: Annotated[str, OneOf(MODELS.names)] = Field(description="target model")
    train_size: int = Field(ge=2, description="records in a training set, n")
    weight_decay: float = Field(0.0, ge=0, description="weight of the squared norm, lambda")
    features: int | None = Field(None, ge=1, description="principal components kept; all if null")
    noise_std: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="standard deviation of Gaussian noise added to trained parameters",
    )
    draws: int = Field(
        400,
        ge=8,
        description="training sets: with/without pairs per record for linear, in all for others",
    )
    records: int = Field(200, ge=4, description="records whose membership is attacked")
    paired: bool = Field(
        False,
        description="whether points draw equal records, training sets and noise from equal seeds",
    )
    hidden_layers: int = Field(5, ge=1, le=64, description="hidden layers of mlp")
    hidden_units: int = Field(50, ge=1, le=4096, description="units of each hidden layer of mlp")
    steps: int = Field(500, ge=1, description="full-batch Adam steps of mlp")
    learning_rate: float = Field(0.01, gt=0, le=1, description="learning rate of mlp")

    def redundant_fields(self) -> frozenset[str]:
        """Fields that only other target models use."""
        return _MODEL_FIELDS - MODELS.get(self.model).fields

    @field_validator("draws")
    @classmethod
    def _require_even_draws(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even: half are shadow models while the others are attacked")
        return value


FALSE_POSITIVE_RATES: Final = (0.1, 0.01, 0.001)
MIN_FALSE_POSITIVES: Final = 10
"""A rate is undefined if it rests on fewer expected false positives."""

_LOW_RATES = tuple(f"tpr_at_fpr_{rate}" for rate in FALSE_POSITIVE_RATES)
_ATTACK_OBJECTIVES = ("advantage", "auc", *_LOW_RATES)
_EXPECTED = tuple(f"expected_false_positives_at_fpr_{rate}" for rate in FALSE_POSITIVE_RATES)
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
    return tuple(f"privacy/attack/{name}/{metric}" for metric in (*_ATTACK_OBJECTIVES, *_EXPECTED))


def too_few_non_members(non_members: float, rate: float) -> str | None:
    """Reason if trials of records outside the training set do not support a rate, or None."""
    expected = rate * non_members
    if expected >= MIN_FALSE_POSITIVES:
        return None
    return (
        f"too few non-members: {expected:.1f} expected false positives, and at least "
        f"{MIN_FALSE_POSITIVES} are needed; raise draws or records"
    )


def utility_keys(config: MembershipConfig) -> tuple[str, str]:
    """Returns the keys of the test and the training utility."""
    classifies = MODELS.get(config.model).classifies(data.info(config.dataset))
    kind = "accuracy" if classifies else "mse"
    return f"utility/test_{kind}", f"utility/train_{kind}"


def metric_keys(config: MembershipConfig) -> tuple[str, ...]:
    """Returns every key that a replicate reports, sorted."""
    attacks = (key for name in ATTACKS.names() for key in attack_keys(name))
    return tuple(sorted((*attacks, *_LEAKAGE, *_OTHERS, *utility_keys(config))))
