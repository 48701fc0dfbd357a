"""Torch modules as target models: construction, and what is known of them before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

from privnets import data
from privnets.contract import InvalidField
from privnets.data import DatasetInfo, UserFormError
from privnets.membership.config import Augmentation, Mechanism, MembershipConfig
from privnets.membership.models import UserModel
from privnets.membership.user_models.parameters import unknown_parameters
from privnets.references.models import ModuleReference
from privnets.references.user_files import describe_error, import_object

if TYPE_CHECKING:
    from privnets.membership.user_models.module_training import ModuleTrainer

Inputs: TypeAlias = int | tuple[int, ...]

MOST_QUERIES: Final[dict[Augmentation, int]] = {"none": 1, "shift": 9, "flip_and_shift": 18}
"""Copies of an image, itself included, that attacks may ask about with each augmentation."""


_TRIED: Final[set[str]] = set()


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
        invalid += _invalid_changes(config, info)
        return invalid or self.invalid_modules(config)

    def invalid_modules(self, config: MembershipConfig) -> list[InvalidField]:
        """Tries a module on a few records, as it will be trained, once in a process."""
        parts = [data.fingerprint(config.dataset), self.reference.digest(), str(self.reference)]
        parts += [str(config.features), str(config.train_size), str(config.private_mechanism)]
        tried = "; ".join(parts)
        if tried not in _TRIED:
            try:
                cast("ModuleTrainer", self.load_trainer()).check(config)
            except UserFormError as error:
                return [InvalidField(error.field, error.given, error.expected)]
            _TRIED.add(tried)
        return []

    def invalid_parameters(self) -> list[InvalidField]:
        """Returns the given parameters that the user's factory does not have."""
        return unknown_parameters(self.reference, skipped=2)


def _invalid_changes(config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
    """Augmentation without images or with privacy, and more queries than it has."""
    invalid = []
    if config.augmentation != "none":
        expected = ""
        if isinstance(input_shape(config, info), int):
            expected = f"none with {info.name}, whose records are not images"
        elif config.epsilon is not None:
            expected = "none with epsilon"
        if expected:
            invalid.append(InvalidField("augmentation", config.augmentation, expected))
    most = MOST_QUERIES[config.augmentation]
    if config.queries > most:
        expected = f"at most {most} with augmentation {config.augmentation}"
        invalid.append(InvalidField("queries", str(config.queries), expected))
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
    is_class = isinstance(module, type)
    if is_class or not (hasattr(module, "parameters") and hasattr(module, "state_dict")):
        kind = f"the class {module.__name__}" if is_class else f"a {type(module).__name__}"
        given = f"{reference.location!r}, which returns {kind}"
        raise UserFormError(reference.entry, given, "a function that returns a torch module")
    return module
