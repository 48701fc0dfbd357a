"""Target models and networks of the user, as a study describes them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any, ClassVar, Final, Literal

from pydantic import Field, JsonValue

from privnets.config import UserForm
from privnets.references.user_files import combine_digests, source_digest


class ModelReference(UserForm):
    """Target model of the user, by import path.

    Attributes:
        key: Entry that holds the import path.
        target: Location of the subclass of `TargetModel`, which is called with the reference.
        params: Keyword arguments of the model.
    """

    key: ClassVar[str]
    target: ClassVar[str]

    params: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def location(self) -> str:
        """Import path `module:name`."""
        return str(getattr(self, self.key))

    @property
    def entry(self) -> str:
        """Name of the entry with the import path, as a configuration has it."""
        return f"model.{self.key}"

    def load(self) -> Any:
        """Returns the description of the model, a `TargetModel`; imports nothing of the user's."""
        return EntryPoint(self.key, self.target, "").load()(self)

    def digest(self) -> str:
        """Identifies the model's source, so that changed code is another point.

        Raises:
            UserFormError: If the model cannot be imported.
        """
        return combine_digests({self.location: source_digest(self.location, self.entry)})


class EstimatorReference(ModelReference):
    """Scikit-learn estimator: a class, a function that returns one, or an instance.

    Attributes:
        sklearn: Import path, as `sklearn.ensemble:RandomForestClassifier`.
        columns: Whether a model on a table gets its raw columns, as a DataFrame, or encoded and
            scaled ones. If null, pipelines and models with one in them get raw columns.
    """

    key = "sklearn"
    target = "privnets.membership.user_models.estimators:EstimatorModel"
    stackable = frozenset({"params"})  # estimators train one by one

    sklearn: str
    columns: Literal["raw", "encoded"] | None = None


class TrainingRecipe(UserForm):
    """Training of a torch module: minimises the mean cross-entropy, or squared error.

    Attributes:
        optimizer: `adam`, or `sgd` with momentum.
        steps: Updates of the parameters.
        batch_size: Records in a batch, without replacement within an epoch; all if null.
        learning_rate: Step size.
        schedule: Whether the learning rate is constant, or falls to 0 along half a cosine.
        momentum: Momentum of `sgd`.
        weight_decay: Weight of the squared norm of the parameters, added to the loss.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    steps: int = Field(default=500, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    learning_rate: float = Field(default=0.001, gt=0)
    schedule: Literal["constant", "cosine"] = "constant"
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)


class ModuleReference(ModelReference):
    """Torch module that a function of the user makes.

    Attributes:
        torch: Import path of `factory(inputs, outputs, **params)`, a class or a function. `inputs`
            is the number of attributes, or `(channels, height, width)` of images; `outputs` is the
            number of classes, or 1 for a number. The module maps records [n, inputs] or
            [n, channels, height, width] to logits or numbers [n, outputs].
        training: How the module is trained.
    """

    key = "torch"
    target = "privnets.membership.user_models.modules:ModuleModel"

    torch: str
    training: TrainingRecipe = TrainingRecipe()


class NetworkReference(UserForm):
    """Torch module of the user.

    Attributes:
        torch: Import path `module:name` of a class or function that returns a module without
            buffers. It is called with the shape of a record, then with the number of noise inputs
            (releaser) or of classes (inference network).
        params: Further keyword arguments.
    """

    torch: str
    params: dict[str, JsonValue] = Field(default_factory=dict)

    def __str__(self) -> str:
        """Import path."""
        return self.torch


MODEL_FORMS: Final[Mapping[str, type[ModelReference]]] = {
    "sklearn": EstimatorReference,
    "torch": ModuleReference,
}
"""Everything that a study may give in place of the name of a target model."""

NETWORK_FORMS: Final[Mapping[str, type[NetworkReference]]] = {"torch": NetworkReference}
"""Everything that a study may give in place of the name of a network."""
