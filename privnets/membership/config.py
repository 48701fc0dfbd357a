"""What a membership experiment is told."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from privnets import data
from privnets.config import ExperimentConfig, OneOf

_NETWORK_FIELDS = frozenset({"hidden_layers", "hidden_units", "steps", "learning_rate"})


class MembershipConfig(ExperimentConfig):
    """A target model trained on random subsets of a universe of records, and who attacks it.

    arXiv 2001.10648, section 6. The training loss is the mean loss plus `weight_decay` times the
    squared norm of the parameters (eq. 1); mean squared error for `linear`, cross-entropy for
    `logistic`, and whichever the data set's task asks for in `mlp`.
    """

    stackable: ClassVar[frozenset[str]] = frozenset(
        {"seed", "weight_decay", "noise_std", "learning_rate"}
    )

    dataset: Annotated[str, OneOf(partial(data.names, "table"))] = Field(
        description="the universe of records"
    )
    model: Literal["linear", "logistic", "mlp"] = Field(description="the target model")
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
    records: int = Field(200, ge=4, description="records whose membership is asked")
    hidden_layers: int = Field(5, ge=1, le=64, description="of mlp")
    hidden_units: int = Field(50, ge=1, le=4096, description="of mlp")
    steps: int = Field(500, ge=1, description="full-batch Adam steps of mlp")
    learning_rate: float = Field(0.01, gt=0, le=1, description="of mlp")

    def redundant_fields(self) -> frozenset[str]:
        """Fields of networks, unless the model is one."""
        return frozenset() if self.model == "mlp" else _NETWORK_FIELDS

    @field_validator("draws")
    @classmethod
    def _halves(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even: half are shadows while the other half is attacked")
        return value
