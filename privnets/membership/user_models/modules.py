"""Torch modules as target models: construction, and what is known of them before training."""

from __future__ import annotations

from typing import Any, TypeAlias

from privnets.contract import InvalidField
from privnets.data import DatasetInfo, UserFormError
from privnets.data.user_files import describe_error, import_object
from privnets.membership.config import MembershipConfig
from privnets.membership.models import UserModel
from privnets.membership.user_models.forms import ModuleReference
from privnets.membership.user_models.parameters import unknown_parameters

Inputs: TypeAlias = int | tuple[int, ...]


class ModuleModel(UserModel):
    """Torch module of the user."""

    trainer = "privnets.membership.user_models.module_training:ModuleTrainer"
    reference: ModuleReference

    def recipe(self, config: MembershipConfig) -> ModuleReference:
        """Module and training of a configuration."""
        return self.reference

    def classifies(self, info: DatasetInfo) -> bool:
        """Whether the data set has classes."""
        return info.task != "regression"

    def invalid_fields(self, config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
        """Adds unknown parameters, and a batch that is larger than the training set."""
        invalid = super().invalid_fields(config, info)
        invalid += unknown_parameters(self.reference, skipped=2)
        size = self.reference.training.batch_size
        if size is not None and size > config.train_size:
            expected = f"at most train_size, {config.train_size}"
            invalid.append(InvalidField("model.training.batch_size", str(size), expected))
        return invalid


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
    if not (hasattr(module, "parameters") and hasattr(module, "state_dict")):
        given = f"{reference.location!r}, which returns a {type(module).__name__}"
        raise UserFormError(reference.entry, given, "a function that returns a torch module")
    return module
