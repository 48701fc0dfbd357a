"""Configuration of the membership experiment, and the registries of models and attacks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

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
