"""Target models of users, and packaged image classifiers: what is known before training.

This module imports no torch; `estimators` describes models of scikit-learn.
"""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import Any, ClassVar, Final, TypeAlias

from privnets import data
from privnets.config import did_you_mean
from privnets.contract import InvalidField
from privnets.data import DatasetInfo, UserFormError
from privnets.membership.config import Augmentation, Mechanism, MembershipConfig
from privnets.membership.models import SharedModel
from privnets.references.models import ModelReference, ModuleReference, TrainingRecipe
from privnets.references.user_files import describe_error, import_object

Inputs: TypeAlias = int | tuple[int, ...]

MOST_QUERIES: Final[dict[Augmentation, int]] = {"none": 1, "shift": 9, "flip_and_shift": 18}
"""Copies of an image, itself included, that attacks may ask about with each augmentation."""

_TRIED: Final[set[str]] = set()
_LISTED: Final = 10
_BATCH: Final = 64


class UserModel(SharedModel):
    """Target model of the user, whose outputs alone are observed."""

    name = "the user's model"
    tasks = frozenset({"regression", "binary", "multiclass"})
    rotates = False

    def __init__(self, reference: ModelReference) -> None:
        """Describes a model; its code is imported when needed."""
        self.reference = reference

    @property
    def description(self) -> str:
        """Name of the model, and where its settings are, for messages."""
        return f"{self.reference.location}, which may have settings in model.params"

    def seconds_per_model(self, config: MembershipConfig, features: int, classes: int) -> float:
        """A guess, as the user's code is unknown."""
        return 0.1

    def parameters(self, config: MembershipConfig, features: int, classes: int) -> int:
        """Always 0."""
        return 0

    def invalid_fields(self, config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
        """Adds fields that act on parameters, which are not observed."""
        unused = {"noise_std": config.noise_std, "weight_decay": config.weight_decay}
        expected = f"0 with {self.description}"
        acting = [InvalidField(n, str(value), expected) for n, value in unused.items() if value]
        return acting + super().invalid_fields(config, info)


class ModuleModel(UserModel):
    """Torch module of the user."""

    trainer = "privnets.membership.user_models.module_training:ModuleTrainer"
    fields = frozenset({"augmentation", "queries", "checkpoints"})
    mechanisms: ClassVar[tuple[Mechanism, ...]] = ("dp_sgd",)
    reference: ModuleReference

    def recipe(self, config: MembershipConfig) -> ModuleReference:
        """Module and training of a configuration."""
        return self.reference

    def steps(self, config: MembershipConfig) -> int:
        """Number of steps of training."""
        return self.recipe(config).training.steps

    def classifies(self, info: DatasetInfo) -> bool:
        """Whether the data set has classes."""
        return info.task != "regression"

    def invalid_fields(self, config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
        """Adds unknown parameters, batches that do not fit, and image changes of other records."""
        invalid = super().invalid_fields(config, info)
        invalid += self.invalid_parameters()
        size = self.reference.training.batch_size
        if size is not None and (config.epsilon is not None or size > config.train_size):
            expected = f"at most train_size, {config.train_size}"
            if config.epsilon is not None:
                expected = "null with epsilon: batches are Poisson samples of rate sample_rate"
            invalid.append(InvalidField("model.training.batch_size", str(size), expected))
        steps = self.steps(config)
        if config.checkpoints > steps:
            expected = f"at most the steps of training, {steps}"
            invalid.append(InvalidField("checkpoints", str(config.checkpoints), expected))
        if config.augmentation != "none":
            expected = "none with epsilon" if config.epsilon is not None else ""
            if isinstance(input_shape(config, info), int):
                expected = f"none with {info.name}, whose records are not images"
            if expected:
                invalid.append(InvalidField("augmentation", config.augmentation, expected))
        most = MOST_QUERIES[config.augmentation]
        if config.queries > most:
            expected = f"at most {most} with augmentation {config.augmentation}"
            invalid.append(InvalidField("queries", str(config.queries), expected))
        return invalid or self.invalid_modules(config)

    def invalid_modules(self, config: MembershipConfig) -> list[InvalidField]:
        """Tries a module on a few records, as it will be trained, once in a process."""
        parts = [data.fingerprint(config.dataset), self.reference.digest(), str(self.reference)]
        parts += [str(config.features), str(config.train_size), str(config.private_mechanism)]
        tried = "; ".join(parts)
        if tried not in _TRIED:
            try:
                self.load_trainer().check(config)
            except UserFormError as error:
                return [InvalidField(error.field, error.given, error.expected)]
            _TRIED.add(tried)
        return []

    def invalid_parameters(self) -> list[InvalidField]:
        """Returns the given parameters that the user's factory does not have."""
        return unknown_parameters(self.reference, skipped=2)


class ImageModel(ModuleModel):
    """Classifier of images: batches of 64, and a learning rate that falls to 0.

    Attributes:
        optimizer: Kind of descent.
        location: Factory of the network.
        seconds_per_number: Core-seconds of a step for each number of an image.
    """

    tasks = frozenset({"binary", "multiclass"})
    fields = ModuleModel.fields | {"steps", "learning_rate"}
    optimizer: ClassVar[str]
    location: ClassVar[str]
    seconds_per_number: ClassVar[float]

    def __init__(self) -> None:
        """Describes the model."""
        super().__init__(ModuleReference(torch=self.location))

    @property
    def description(self) -> str:
        """Name of the model; its settings are fields of the configuration."""
        return f"{self.name}, whose outputs alone are observed"

    def recipe(self, config: MembershipConfig) -> ModuleReference:
        """Takes the training from the fields of the configuration."""
        training = TrainingRecipe.model_validate(
            {
                "optimizer": self.optimizer,
                "steps": config.steps,
                "batch_size": min(_BATCH, config.train_size),
                "learning_rate": config.learning_rate,
                "schedule": "cosine",
                "weight_decay": config.weight_decay,
            }
        )
        return self.reference.model_copy(update={"training": training})

    def seconds_per_model(self, config: MembershipConfig, features: int, classes: int) -> float:
        """Estimates the steps of training."""
        batch = float(min(_BATCH, config.train_size))
        if config.epsilon is not None:
            batch = config.sample_rate * config.train_size
        return config.steps * batch * features * self.seconds_per_number

    def invalid_modules(self, config: MembershipConfig) -> list[InvalidField]:
        """Always none: a packaged network needs no trial."""
        return []

    def invalid_parameters(self) -> list[InvalidField]:
        """Always none: a packaged factory has no parameters, and would load torch."""
        return []

    def invalid_fields(self, config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
        """Adds data sets that are not of images."""
        without_decay = config.model_copy(update={"weight_decay": 0.0})
        invalid = super().invalid_fields(without_decay, info)
        if isinstance(input_shape(config, info), int):
            given = info.name if config.features is None else f"features {config.features}"
            expected = f"images, and features null, with {self.name}"
            invalid.append(InvalidField("dataset", given, expected))
        return invalid


class Cnn(ImageModel):
    """Small convolutional network, trained by Adam."""

    name = "cnn"
    optimizer = "adam"
    location = "privnets.networks.image_classifiers:cnn"
    seconds_per_number = 4e-7


class Resnet(ImageModel):
    """Residual network of 18 layers, trained by gradient descent with momentum."""

    name = "resnet"
    optimizer = "sgd"
    mechanisms = ()
    not_private = "batch normalisation of resnet mixes records"
    location = "privnets.networks.image_classifiers:resnet18"
    seconds_per_number = 1.5e-5


def unknown_parameters(reference: ModelReference, skipped: int = 0) -> list[InvalidField]:
    """Returns the given parameters that a model does not have.

    Args:
        skipped: Number of leading arguments that are not parameters.
    """
    known = parameter_names(reference, skipped)
    if known is None:
        return []
    invalid = []
    for name in sorted(reference.params.keys() - set(known)):
        hint, listed = did_you_mean(name, known), ", ".join(known) or "none"
        if len(known) > _LISTED:
            similar = get_close_matches(name, known, n=_LISTED, cutoff=0.0)
            listed = f"{', '.join(similar)} and {len(known) - _LISTED} others"
        expected = f"a parameter of {reference.location}{hint}: {listed}"
        given = f"{name}, which is unknown"
        invalid.append(InvalidField(f"model.params.{name}", given, expected))
    return invalid


def parameter_names(reference: ModelReference, skipped: int = 0) -> tuple[str, ...] | None:
    """Returns the names of all parameters; None if a function accepts any."""
    source: Any = import_object(reference.location, reference.entry)
    if not callable(source):
        return tuple(source.get_params()) if hasattr(source, "get_params") else ()
    parameters = [*inspect.signature(source).parameters.values()][skipped:]
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return tuple(each.name for each in parameters)


def input_shape(config: MembershipConfig, info: DatasetInfo) -> Inputs:
    """Shape of a record: the number of attributes, or that of an image."""
    if config.features is None and info.shape:
        return info.shape
    return config.features or info.attributes


def make_module(reference: ModuleReference, inputs: Inputs, outputs: int) -> Any:
    """Makes a module with random parameters.

    Raises:
        UserFormError: If it cannot be imported or constructed.
    """
    factory: Any = import_object(reference.location, reference.entry)
    try:
        module = factory(inputs, outputs, **reference.params)
    except Exception as error:  # any exception of the user's code
        given = f"{reference.location!r}, which fails: {describe_error(error)}"
        expected = "a function (inputs, outputs, **params) that returns a torch module"
        raise UserFormError(reference.entry, given, expected) from error
    is_class = isinstance(module, type)
    if is_class or not (hasattr(module, "parameters") and hasattr(module, "state_dict")):
        kind = f"the class {module.__name__}" if is_class else f"a {type(module).__name__}"
        given = f"{reference.location!r}, which returns {kind}"
        raise UserFormError(reference.entry, given, "a function that returns a torch module")
    return module
