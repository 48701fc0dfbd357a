"""Configuration and metric keys of the membership experiment; registry of models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, field_validator

from privnets import data
from privnets.attacks import attack_names
from privnets.config import ExperimentConfig, OneOf, UserMetric, floor_key
from privnets.references.data import DATA_FORMS
from privnets.references.models import MODEL_FORMS, ModelReference
from privnets.registry import Registry

TEST_RECORDS: Final = 1000
"""Approximate number of records outside a training set on which utility is measured."""

# Of `privnets.membership.models.TargetModel`, whose configurations are made with this registry.
MODELS: Final[Registry[Any]] = Registry(
    "target model",
    "privnets.models",
    "privnets.membership.models:TargetModel",
    {
        "linear": "privnets.membership.models:Linear",
        "logistic": "privnets.membership.models:Logistic",
        "mlp": "privnets.membership.models:Mlp",
        "cnn": "privnets.membership.user_models.modules:Cnn",
        "resnet": "privnets.membership.user_models.modules:Resnet",
    },
)

Mechanism = Literal["output_perturbation", "dp_sgd"]
Augmentation = Literal["none", "shift", "flip_and_shift"]

_MODEL_FIELDS = frozenset({"hidden_layers", "hidden_units", "steps", "learning_rate"})
MECHANISM_FIELDS: Final[Mapping[Mechanism, frozenset[str]]] = {
    "output_perturbation": frozenset({"delta", "neighbours", "clip"}),
    "dp_sgd": frozenset({"delta", "neighbours", "clip", "sample_rate"}),
}
"""Fields that each mechanism uses."""

PRIVACY_FIELDS: Final = frozenset({"mechanism"}.union(*MECHANISM_FIELDS.values()))
"""Fields without effect where `epsilon` is null."""

OBSERVING_FIELDS: Final = frozenset({"metrics", "groups"})
"""Fields that only add metrics: they have no influence on training."""

OPTIONAL_FIELDS: Final = frozenset({"leakage_weight", "augmentation", "queries", "checkpoints"})
"""Fields that change nothing at their defaults; models without them refuse other values."""


class MembershipConfig(ExperimentConfig):
    """A target model, trained on random subsets of a data set and attacked.

    arXiv 2001.10648, section 6. The training loss is the mean loss plus `weight_decay` times the
    squared norm of the parameters (eq. 1). The loss is the squared error for `linear`, the
    cross-entropy for `logistic`, and either for `mlp`, by the data set's task.

    With `epsilon`, training is differentially private: by noise on the trained parameters (output
    perturbation), or by DP-SGD.
    """

    stackable: ClassVar[frozenset[str]] = frozenset(
        {
            "seed", "weight_decay", "leakage_weight", "noise_std", "learning_rate", "epsilon",
            "delta", "clip",
        }
    )  # fmt: skip

    dataset: Annotated[
        str | data.DataReference, OneOf(partial(data.names, "table"), DATA_FORMS)
    ] = Field(description="data set from which training sets are drawn")
    model: Annotated[str | ModelReference, OneOf(MODELS.names, MODEL_FORMS)] = Field(
        description="target model"
    )
    train_size: int = Field(ge=2, description="records in a training set, n")
    weight_decay: float = Field(0.0, ge=0, description="weight of the squared norm, lambda")
    leakage_weight: float = Field(
        0.0, ge=0, description="weight of the leakage in training (linear with noise_std, mlp)"
    )
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
        description="training sets, an even number: with/without pairs per record for linear; in "
        "all for others, at least 32 and at least 16 records / train_size",
    )
    records: int = Field(200, ge=4, description="records whose membership is attacked")
    paired: bool = Field(
        False,
        description="whether points draw equal records, training sets and noise from equal seeds",
    )
    hidden_layers: int = Field(5, ge=1, le=64, description="hidden layers of mlp")
    hidden_units: int = Field(50, ge=1, le=4096, description="units of each hidden layer of mlp")
    steps: int = Field(
        500, ge=1, description="Adam steps of mlp (full batches) and of dp_sgd (Poisson samples)"
    )
    learning_rate: float = Field(
        0.01, gt=0, le=1, description="learning rate of Adam in mlp and dp_sgd"
    )
    augmentation: Augmentation = Field(
        "none", description="random changes of images in training: shifts, or flips too"
    )
    queries: int = Field(
        1, ge=1, le=18, description="changed copies of an image at which LiRA asks a model"
    )
    checkpoints: int = Field(
        0,
        ge=0,
        le=64,
        description="moments of training whose losses the attack loss_trajectory sees",
    )
    epsilon: float | None = Field(
        None, gt=0, le=100, description="differential privacy of training; none if null"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="delta beside epsilon")
    neighbours: Literal["replace_one", "add_or_remove_one"] = Field(
        "replace_one", description="change of the training set that epsilon hides"
    )
    mechanism: Mechanism = Field(
        "output_perturbation", description="private training of logistic; others have one form"
    )
    clip: float = Field(
        1.0,
        gt=0,
        le=1e6,
        description="L2 bound on each record: its features (output_perturbation) or its gradient",
    )
    sample_rate: float = Field(
        0.1, gt=0, le=1, description="probability of a record to be in a Poisson batch of dp_sgd"
    )

    metrics: dict[UserMetric, str] | None = Field(
        None, description="utilities of the user's, each with a scorer or module:function"
    )
    groups: str | None = Field(
        None, description="column of the table, or class, by whose values leakage is reported"
    )

    @property
    def private_mechanism(self) -> Mechanism | None:
        """Mechanism that makes training private; None without one."""
        if self.epsilon is None:
            return None
        mechanisms = self.target_model.mechanisms
        return self.mechanism if len(mechanisms) != 1 else mechanisms[0]

    @property
    def target_model(self) -> Any:
        """Description of the target model; see `privnets.membership.models.model_of`."""
        return MODELS.get(self.model) if isinstance(self.model, str) else self.model.load()

    @property
    def data_form(self) -> str | data.DataReference:
        """Data set in the form that the target model takes."""
        form: str | data.DataReference = self.target_model.data_form(self.dataset)
        return form

    def group_keys(self) -> list[tuple[str, ...]]:
        """Keys of the metrics of each group; characters that keys may not have became `_`."""
        if self.groups is None:
            return []
        names = data.group_names(self.data_form, self.groups)
        plain = [re.sub(r"[^A-Za-z0-9_.-]", "_", name) for name in names]
        return [tuple(f"privacy/group/{name}/{m}" for m in GROUP_METRICS) for name in plain]

    def redundant_fields(self) -> frozenset[str]:
        """Fields that only other target models or mechanisms use."""
        model = self.target_model
        used: frozenset[str] = model.fields
        if self.private_mechanism is not None:
            used = used | MECHANISM_FIELDS[self.private_mechanism]
            if self.private_mechanism == "dp_sgd":
                used = used | model.private_fields
            used = used | ({"mechanism"} if len(model.mechanisms) > 1 else frozenset())
        return (_MODEL_FIELDS | PRIVACY_FIELDS) - used

    def structure(self) -> str:
        """Adds the mechanism, and with output perturbation the bound on features."""
        mechanism = self.private_mechanism
        clip = self.clip if mechanism == "output_perturbation" else None
        return f"{super().structure()} private_mechanism: {mechanism}, clip: {clip}"

    @field_validator("draws")
    @classmethod
    def _require_even_draws(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even: half are shadow models while the others are attacked")
        return value


LARGEST_GROUP: Final = "privacy/largest_group_advantage"
DISPARITY: Final = "privacy/group_disparity"
GROUP_METRICS: Final = ("membership_advantage", "auc", "tpr_at_fpr_0.1", "tpr_at_fpr_0.01")

FALSE_POSITIVE_RATES: Final = (0.1, 0.01, 0.001)
MIN_FALSE_POSITIVES: Final = 10
"""A rate is undefined if it rests on fewer expected false positives."""

_LOW_RATES = tuple(f"tpr_at_fpr_{rate}" for rate in FALSE_POSITIVE_RATES)
_ATTACK_OBJECTIVES = ("advantage", "auc", *_LOW_RATES)
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
MECHANISM = ("mechanism/noise_multiplier", "mechanism/sample_rate", "mechanism/steps")
"""Noise of private training, from which the epsilon of a search is composed."""

_OTHERS = (
    *MECHANISM,
    *(f"privacy/expected_false_positives_at_fpr_{rate}" for rate in FALSE_POSITIVE_RATES),
    "privacy/membership_advantage",
    "privacy/threshold_advantage_if_gaussian",
    "privacy/epsilon",
    "privacy/epsilon_lower_bound",
    "bound/advantage",
    "bound/advantage_rho_kl",
    "bound/advantage_dp",
    "bound/advantage_output",
    "flag/attack_beats_bound",
    "flag/constant_attack",
    "flag/epsilon_contradicted",
    "utility/generalization_gap",
)

CLASS_UTILITIES: Final[dict[str, Literal["min", "max"]]] = {
    "accuracy": "max",
    "balanced_accuracy": "max",
    "auc": "max",
    "average_precision": "max",
    "log_loss": "min",
    "f1": "max",
}
"""Utilities of models that predict classes, the main one first, with their directions."""

NUMBER_UTILITIES: Final[dict[str, Literal["min", "max"]]] = {
    "mse": "min",
    "mae": "min",
    "r2": "max",
}
"""Utilities of models that predict numbers, the main one first, with their directions."""

OBJECTIVES: Mapping[str, Literal["min", "max"]] = {
    "privacy/membership_advantage": "min",
    **{
        f"privacy/attack/{name}/{metric}": "min"
        for name in attack_names("sweeps")
        for metric in _ATTACK_OBJECTIVES
    },
    **{key: "min" for key in _LEAKAGE},
    "privacy/epsilon": "min",
    "privacy/epsilon_lower_bound": "min",
    **{f"utility/test_{n}": each for n, each in (CLASS_UTILITIES | NUMBER_UTILITIES).items()},
    "utility/generalization_gap": "min",
    LARGEST_GROUP: "min",
    DISPARITY: "min",
}
_SHARES = {*(f"test_{name}" for name in CLASS_UTILITIES if name != "log_loss"), "auc", *_LOW_RATES}
RANGES: Mapping[str, tuple[float, float]] = {
    key: (-1.0 if name.endswith("advantage") else 0.0, 1.0)
    for key in OBJECTIVES
    if (name := key.rpartition("/")[2]) in _SHARES or name.endswith("advantage")
}


def attack_keys(name: str) -> tuple[str, ...]:
    """Returns the metric keys of one attack."""
    return tuple(f"privacy/attack/{name}/{metric}" for metric in _ATTACK_OBJECTIVES)


def too_few_non_members(non_members: float, rate: float) -> str | None:
    """Reason if trials of records outside the training set do not support a rate, or None."""
    expected = rate * non_members
    if expected >= MIN_FALSE_POSITIVES:
        return None
    return (
        f"too few non-members: {expected:.1f} expected false positives, and at least "
        f"{MIN_FALSE_POSITIVES} are needed; raise draws or records"
    )


def utilities(config: MembershipConfig) -> tuple[str, ...]:
    """Returns the names of the utilities on test records, the main one first."""
    names: tuple[str, ...] = config.target_model.utilities(data.info(config.data_form))
    return names


def metric_keys(config: MembershipConfig) -> tuple[str, ...]:
    """Returns every key that a replicate reports, sorted."""
    attacks = (key for name in attack_names("sweeps") for key in attack_keys(name))
    names = utilities(config)
    useful = [*(f"utility/test_{name}" for name in names), *(config.metrics or ())]
    floors = map(floor_key, useful)
    main = f"utility/train_{names[0]}"
    groups = [key for keys in config.group_keys() for key in keys]
    groups += [LARGEST_GROUP, DISPARITY] if groups else []
    return tuple(sorted((*attacks, *_LEAKAGE, *_OTHERS, *useful, *floors, main, *groups)))
