"""Descriptions of the target models: which tasks they serve, what they cost, and who trains them.

Planning needs these descriptions only, so this module does not import torch. A target model is a
subclass of `TargetModel` with one line in `MODELS`; its `trainer` is imported with the first stack.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any, ClassVar, Final

from privnets import data
from privnets.attacks import attack_names
from privnets.attacks.base import NO_POPULATION, NO_TRAJECTORY
from privnets.contract import Cost, InvalidField
from privnets.data import DataReference, DatasetInfo
from privnets.membership import training_sets
from privnets.membership.config import (
    CLASS_UTILITIES,
    MODELS,
    NUMBER_UTILITIES,
    OPTIONAL_FIELDS,
    TEST_RECORDS,
    Mechanism,
    MembershipConfig,
)

MAX_COMPONENTS: Final = 64
"""Principal components of the parameters that the white-box attack uses, where they are more."""

MAX_NEWTON_UNKNOWNS: Final = 128
"""Logistic models with more coefficients are trained by descent instead of Newton's method."""

GRADIENT_TOLERANCE: Final = 1e-7
"""Largest entry of the gradient at which training of a logistic model stops."""

# Core-seconds: for each index gathered and each cubed feature solved (linear), each multiplication
# (networks and Newton steps), each record and class of a descent, each trial and attack, each
# attack (resamples of its ROC curve), each number of a covariance in the white-box attack, each
# test record and class of a ranking, each number of noise and each batch of DP-SGD.
_GATHER, _SOLVE, _MULTIPLY, _DESCENT, _TRIAL = 1.2e-8, 2.5e-9, 4e-11, 4e-6, 1e-6
_ATTACK, _COVARIANCE, _RANKING = 0.03, 8e-9, 2e-8
_NOISE, _BATCH = 1e-8, 5e-5
_NEWTON_STEPS = 6
# Models trained at once on a GPU; fewer would leave it idle.
_GPU_MODELS = 2048
_STAGE_SECONDS = 5.0
_GPU_NUMBERS = 2**28


class TargetModel(ABC):
    """Base class of target models.

    Attributes:
        tasks: Tasks of data sets that the model can predict.
        fields: Fields of the configuration that not every model uses, but this one does.
        unavailable: Reasons why attacks cannot be run on the model without checkpoints, by name.
        rotates: Whether records are rotated onto principal components where `features` is null.
        mechanisms: Forms of differentially private training; none if empty.
        not_private: Reason for which there is none.
        private_fields: Fields that the model uses only with DP-SGD.
        trainer: Location of a subclass of `Trainer`, as `module:class`.
    """

    name: ClassVar[str]
    tasks: ClassVar[frozenset[str]]
    fields: ClassVar[frozenset[str]] = frozenset()
    unavailable: ClassVar[Mapping[str, str]] = {"loss_trajectory": NO_TRAJECTORY}
    rotates: ClassVar[bool] = True
    mechanisms: ClassVar[tuple[Mechanism, ...]] = ()
    not_private: ClassVar[str] = "estimators train by code of their own"
    private_fields: ClassVar[frozenset[str]] = frozenset()
    trainer: ClassVar[str]

    def classifies(self, info: DatasetInfo) -> bool:
        """Whether the model predicts a class, rather than a number."""
        return info.task == "multiclass"

    def utilities(self, info: DatasetInfo) -> tuple[str, ...]:
        """Names of the utilities on test records, the main one first."""
        return tuple(CLASS_UTILITIES if self.classifies(info) else NUMBER_UTILITIES)

    @abstractmethod
    def cost(self, config: MembershipConfig, info: DatasetInfo) -> Cost:
        """Estimates the cost of training and attacks."""

    @abstractmethod
    def non_members(self, config: MembershipConfig, info: DatasetInfo) -> float:
        """Number of trials of records outside the training set, or its expectation."""

    def data_form(self, dataset: str | DataReference) -> str | DataReference:
        """Data set in the form that the model takes: by default encoded."""
        return dataset

    def remarks(self, dataset: str | DataReference) -> tuple[str, ...]:
        """Sentences on the model for the author of a study."""
        return ()

    def steps(self, config: MembershipConfig) -> int:
        """Number of steps of DP-SGD."""
        return config.steps

    def invalid_fields(self, config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
        """Returns values that the model rules out for this data set."""
        defaults = {n: config.field_defaults[n] for n in OPTIONAL_FIELDS - self.fields}
        unknown = [
            InvalidField(n, str(getattr(config, n)), f"{default} with {self.name}")
            for n, default in sorted(defaults.items())
            if getattr(config, n) != default
        ]
        if info.task in self.tasks:
            return unknown
        others = [name for name in MODELS.names() if info.task in MODELS.get(name).tasks]
        listed = " or ".join(filter(None, (", ".join(others[:-1]), others[-1])))
        return [*unknown, InvalidField("model", self.name, f"{listed} with {info.name}")]

    def try_training(self, config: MembershipConfig) -> None:  # noqa: B027
        """Trains a model of the user; does nothing by default.

        Raises:
            UserFormError: If that fails.
        """

    def load_trainer(self) -> Any:
        """Imports the trainer, a `privnets.membership.observations.Trainer`, and torch with it."""
        return EntryPoint(self.name, self.trainer, MODELS.group).load()()


def model_of(config: MembershipConfig) -> TargetModel:
    """Returns the description of the target model of a configuration."""
    model: TargetModel = config.target_model
    return model


def predicts_classes(config: MembershipConfig) -> bool:
    """Whether the target model of a configuration predicts a class, rather than a number."""
    return model_of(config).classifies(data.info(config.data_form))


class Linear(TargetModel):
    """Linear regression with a squared norm, solved in closed form."""

    name = "linear"
    tasks = frozenset({"regression", "binary"})
    fields = frozenset({"leakage_weight"})
    unavailable: ClassVar[Mapping[str, str]] = {
        "attack_p": NO_POPULATION,
        "quantile_regression": NO_POPULATION,
        "loss_trajectory": NO_TRAJECTORY,
    }
    mechanisms = ("output_perturbation",)
    trainer = "privnets.membership.models.linear:LinearTrainer"

    def classifies(self, info: DatasetInfo) -> bool:
        """Always false: classes 0 and 1 are numbers here."""
        return False

    def utilities(self, info: DatasetInfo) -> tuple[str, ...]:
        """The squared error, a sum over training sets; single predictions are not computed."""
        return ("mse",)

    def cost(self, config: MembershipConfig, info: DatasetInfo) -> Cost:
        """Estimates the sums over training sets, the solutions, and the attacks."""
        features = config.features or info.attributes
        models = 2 * config.draws * config.records
        gathered = models / 2 * config.train_size * _GATHER * (1 + features**2 / 30)
        attacks = len(attack_names("sweeps")) * _TRIAL
        seconds = gathered + models * (features**3 * _SOLVE + attacks)
        return Cost(seconds, models * 8 * (features**2 + 30))

    def non_members(self, config: MembershipConfig, info: DatasetInfo) -> float:
        """One for each pair of training sets."""
        return config.records * config.draws

    def invalid_fields(self, config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
        """Adds a weight of the leakage that noise alone makes meaningful."""
        invalid = super().invalid_fields(config, info)
        if config.metrics:
            expected = "none with linear, whose single predictions are not computed"
            invalid.append(InvalidField("metrics", ", ".join(config.metrics), expected))
        if config.leakage_weight and config.noise_std == 0:
            expected = "0 without noise_std: no penalty changes the leakage of exact parameters"
            invalid.append(InvalidField("leakage_weight", str(config.leakage_weight), expected))
        return invalid


class SharedModel(TargetModel):
    """Target model that is too expensive to train for each record: all records share models.

    Attributes:
        cpu_models: Most models that are trained at once on a CPU, even.
    """

    cpu_models: ClassVar[int] = 32

    @abstractmethod
    def seconds_per_model(self, config: MembershipConfig, features: int, classes: int) -> float:
        """Estimates the core-seconds to train one model of a stack."""

    @abstractmethod
    def parameters(self, config: MembershipConfig, features: int, classes: int) -> int:
        """Number of parameters that an attacker may see; 0 if only outputs are observed."""

    def cost(self, config: MembershipConfig, info: DatasetInfo) -> Cost:
        """Estimates training, then the attacks and the utilities."""
        features = config.features or info.attributes
        classes = info.classes if info.task == "multiclass" else 1
        widest = 8 * max(config.hidden_units, classes)
        numbers = config.train_size * (features + widest) * self.cpu_models
        numbers += config.draws * (config.train_size * 4 + config.records * 40)
        training = config.draws * self.seconds_per_model(config, features, classes)
        # With those of the trivial model, against which utilities are set.
        ranked = 2 * config.draws * TEST_RECORDS * (classes if classes > 2 else 1)
        seen = min(MAX_COMPONENTS, self.parameters(config, features, classes))
        white_box = config.records * (config.draws + seen) * seen**2 * _COVARIANCE
        trials = config.draws * config.records
        attacks = len(attack_names("sweeps")) * (_ATTACK + trials * _TRIAL)
        evaluation = attacks + white_box + ranked * _RANKING
        return Cost(training + evaluation, 16 * numbers)

    def non_members(self, config: MembershipConfig, info: DatasetInfo) -> float:
        """The models without a record, for each record."""
        records, size = config.records, config.train_size
        each = training_sets.members_per_half(info.records, records, size, config.draws)
        members = config.draws * size / info.records if each is None else 2 * each
        return records * (config.draws - members)

    def models_at_once(
        self,
        config: MembershipConfig,
        features: int,
        classes: int,
        device: str,
    ) -> int:
        """Number of models to train at once, on a kind of device such as `cpu`.

        On a CPU it takes a few seconds and is even, from 2 to `cpu_models`: more would exceed
        the cache and lengthen stages, and torch multiplies a single matrix with another kernel,
        which rounds differently.
        """
        if device == "cpu":
            fitting = int(_STAGE_SECONDS / self.seconds_per_model(config, features, classes))
            return max(2, min(self.cpu_models, fitting // 2 * 2))
        widest = max(features * classes, 8 * config.hidden_units)
        fitting = _GPU_NUMBERS // (config.train_size * widest)
        return max(self.cpu_models, min(_GPU_MODELS, fitting))

    def invalid_fields(self, config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
        """Adds numbers of records and draws that the shared training sets cannot serve."""
        others = super().invalid_fields(config, info)
        records, size = config.records, config.train_size
        if training_sets.members_per_half(info.records, records, size, config.draws) is None:
            return others
        invalid = []
        most = info.records - size
        if 0 < most < records:  # otherwise train_size is wrong, which `others` says
            expected = f"at most {most} with so few draws: other records fill the sets"
            invalid.append(InvalidField("records", str(records), expected))
        fewest = training_sets.fewest_sets(records, size)
        if config.draws < fewest:
            expected = f"at least {fewest} with {records} records and train_size {size}"
            invalid.append(InvalidField("draws", str(config.draws), expected))
        return invalid + others


class Logistic(SharedModel):
    """Logistic regression with a squared norm, trained to convergence."""

    name = "logistic"
    tasks = frozenset({"binary", "multiclass"})
    cpu_models = 64
    mechanisms = ("output_perturbation", "dp_sgd")
    private_fields = frozenset({"steps", "learning_rate"})
    trainer = "privnets.membership.models.logistic:LogisticTrainer"

    def classifies(self, info: DatasetInfo) -> bool:
        """Always true."""
        return True

    def seconds_per_model(self, config: MembershipConfig, features: int, classes: int) -> float:
        """Newton's method for few coefficients; else descent, longer for small weight decay."""
        unknowns, size = self.parameters(config, features, classes), config.train_size
        if config.private_mechanism == "dp_sgd":
            return _private_seconds(config, unknowns)
        if unknowns <= MAX_NEWTON_UNKNOWNS:
            return _NEWTON_STEPS * (1e-5 + unknowns**2 * (2.5 * size + 200) * _MULTIPLY)
        factor = min(10.0, max(1.0, math.sqrt(1e-2 / max(config.weight_decay, 1e-9))))
        return size * classes * _DESCENT * features / 16 * factor

    def parameters(self, config: MembershipConfig, features: int, classes: int) -> int:
        """Number of coefficients."""
        return features * classes


class Mlp(SharedModel):
    """Multilayer perceptron with tanh units, trained by full-batch Adam."""

    name = "mlp"
    tasks = frozenset({"regression", "binary", "multiclass"})
    fields = frozenset(
        {"hidden_layers", "hidden_units", "steps", "learning_rate", "leakage_weight"}
    )
    mechanisms = ("dp_sgd",)
    trainer = "privnets.membership.models.mlp:MlpTrainer"

    def invalid_fields(self, config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
        """Adds training sets that leave too few reference records for the leakage."""
        invalid = super().invalid_fields(config, info)
        if config.leakage_weight and 2 * config.train_size + config.records > info.records:
            most = (info.records - config.records) // 2
            expected = f"at most {most} with leakage_weight: as many other records are needed"
            invalid.append(InvalidField("train_size", str(config.train_size), expected))
        return invalid

    def seconds_per_model(self, config: MembershipConfig, features: int, classes: int) -> float:
        """Multiplications of all steps, plus an overhead for each step."""
        weights = self.parameters(config, features, classes)
        if config.private_mechanism == "dp_sgd":
            return _private_seconds(config, weights)
        return config.steps * (config.train_size * weights * 6 * _MULTIPLY + 2e-5)

    def parameters(self, config: MembershipConfig, features: int, classes: int) -> int:
        """Number of weights."""
        units, layers = config.hidden_units, config.hidden_layers
        return features * units + (layers - 1) * units**2 + units * classes


def _private_seconds(config: MembershipConfig, weights: int) -> float:
    """Estimates the core-seconds of one model by DP-SGD: products, noise, draws of batches."""
    batch = config.sample_rate * config.train_size
    steps = model_of(config).steps(config)
    return steps * (weights * (batch * 6 * _MULTIPLY + _NOISE) + _BATCH)
