"""Packaged classifiers of images, trained as the modules of users are."""

from __future__ import annotations

from typing import ClassVar, Final

from privnets.contract import InvalidField
from privnets.data import DatasetInfo
from privnets.membership.config import MembershipConfig
from privnets.membership.user_models.modules import ModuleModel, input_shape
from privnets.references.models import ModuleReference, TrainingRecipe

_BATCH: Final = 64


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
