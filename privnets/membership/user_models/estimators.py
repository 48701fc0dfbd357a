"""Scikit-learn estimators as target models: construction, training and outputs. Imports no torch.

Each model is trained on its own. Several train at once, each in a process of its own, on as many
cores as torch may use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import clone

from privnets.audit.files import AuditError
from privnets.audit.model_outputs import ModelOutputs, has_classes, predict
from privnets.contract import InvalidField
from privnets.data import DatasetInfo, UserFormError
from privnets.data.user_files import describe_error, import_object, set_folder
from privnets.membership.config import MembershipConfig
from privnets.membership.models import UserModel
from privnets.membership.user_models.forms import ModelReference
from privnets.membership.user_models.parameters import parameter_names, unknown_parameters

Array = NDArray[np.float64]


class EstimatorModel(UserModel):
    """Scikit-learn estimator of the user."""

    trainer = "privnets.membership.user_models.estimator_training:EstimatorTrainer"

    def classifies(self, info: DatasetInfo) -> bool:
        """Whether the estimator has probabilities or a decision function.

        Raises:
            UserFormError: If it cannot be imported or constructed.
        """
        known = parameter_names(self.reference)
        # Unknown parameters are invalid fields, reported beside all other mistakes of a study.
        valid = {n: v for n, v in self.reference.params.items() if known is None or n in known}
        estimator = make_estimator(self.reference.model_copy(update={"params": valid}))
        return has_classes(estimator)

    def invalid_fields(self, config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
        """Adds unknown parameters, and a kind of estimator that does not fit the target."""
        invalid = super().invalid_fields(config, info)
        if unknown := unknown_parameters(self.reference):
            return invalid + unknown
        expected = {"regression": False, "multiclass": True}.get(info.task)
        if expected is not None and self.classifies(info) != expected:
            kind = "a classifier" if expected else "a regressor"
            invalid.append(
                InvalidField(
                    self.reference.entry, self.reference.location, f"{kind} with {info.name}"
                )
            )
        return invalid


def make_estimator(reference: ModelReference) -> Any:
    """Makes an estimator with the parameters of a reference.

    Raises:
        UserFormError: If it cannot be imported or constructed, or has no `fit` and `predict`.
    """
    source: Any = import_object(reference.location, reference.entry)
    try:
        if callable(source):
            estimator = source(**reference.params)
        else:
            estimator = clone(source).set_params(**reference.params)
    except Exception as error:  # any exception of the user's code
        given = f"{reference.location!r}, which fails: {describe_error(error)}"
        raise UserFormError(reference.entry, given, "an estimator") from error
    if not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
        given = f"{reference.location!r}, a {type(estimator).__name__}"
        raise UserFormError(
            reference.entry,
            given,
            "an estimator with fit and predict: a class, a function that returns one, or an "
            "instance",
        )
    return estimator


@dataclass(frozen=True, eq=False)
class FitTask:
    """Training of one model, and the records at which its outputs are needed.

    Attributes:
        folder: Folder of the study, for processes that do not know it.
        seed: Seed of every `random_state` that the reference does not set.
        x: Attributes of all records, shape [N, p].
        y: Targets of all records, shape [N]; classes are whole numbers.
        members: Training set, shape [n].
        asked: Records at which the model is asked, shape [k].
        test: Positions of test records among them, shape [K].
        classes: Classes that the model predicts; 0 for numbers.
    """

    folder: Path
    reference: ModelReference
    seed: int
    x: Array
    y: NDArray[Any]
    members: NDArray[np.int32]
    asked: NDArray[np.int64]
    test: NDArray[np.int64]
    classes: int

    def run(self) -> Answers | str:
        """Trains the model.

        Returns:
            Outputs at the asked records, or the failure of the user's code.
        """
        set_folder(self.folder)
        try:
            model = set_seed(make_estimator(self.reference), self.reference.params, self.seed)
            model.fit(self.x[self.members], self.y[self.members])
            x, y = self.x[self.asked], self.y[self.asked]
            outputs = predict(model, x)
            predicted = np.asarray(model.predict(x)) if self.classes else None
            return answers(outputs, y, self.test, self.classes, predicted)
        except (Exception, SystemExit) as error:  # any exception of the user's code
            return describe_error(error)


def set_seed(estimator: Any, given: Iterable[str], seed: int) -> Any:
    """Sets every `random_state` that is not given, and the global generator of numpy."""
    np.random.seed(seed)  # estimators without a random state draw from it
    if not hasattr(estimator, "get_params"):
        return estimator
    names = [n for n in estimator.get_params() if n.rpartition("__")[2] == "random_state"]
    free = [name for name in names if name not in given]
    return estimator.set_params(**dict.fromkeys(free, seed)) if free else estimator


Answers: TypeAlias = tuple[Array, Array]
"""Outputs of a model: about the true targets of asked records [2, k], and predictions at test
records [K, 1 + C].

For classes, the former are the log-odds of the true class and whether the predicted one is right,
and the latter the predicted class and the log-probability of each class. For numbers, C is 0: they
are the prediction and its squared error, and the prediction.
"""


def answers(
    outputs: ModelOutputs,
    y: NDArray[Any],
    test: NDArray[np.int64],
    classes: int,
    predicted: NDArray[Any] | None = None,
) -> Answers:
    """Outputs of a model about k records.

    Decision values count as logits, and a class that the training set lacked has probability 0.

    Args:
        y: Targets, shape [k].
        test: Positions of test records, shape [K].
        classes: Number of classes; 0 for numbers.
        predicted: Predicted classes [k]; the most probable ones by default.
    """
    if not classes:
        if outputs.values.ndim != 1:
            raise AuditError(
                f"predict must return one number for each record; got {list(outputs.values.shape)}"
            )
        true = np.stack([outputs.values, np.square(outputs.values - y)])
        return true, outputs.values[test, None]
    labels = y.astype(np.int64)
    logits = _logits(outputs, classes)
    log_p = logits[test] - logsumexp(logits[test], axis=1, keepdims=True)
    predicted = logits.argmax(1) if predicted is None else predicted.astype(np.int64)
    rows = np.arange(len(labels))
    true = logits[rows, labels]
    logits[rows, labels] = -np.inf
    about_truth = np.stack([true - logsumexp(logits, axis=1), predicted == labels])
    return about_truth, np.column_stack([predicted[test], log_p])


def _logits(outputs: ModelOutputs, classes: int) -> Array:
    """Logits of all classes, shape [k, C]; minus infinity for classes that the model lacks."""
    values = outputs.values
    if outputs.kind == "probabilities":
        with np.errstate(divide="ignore"):
            values = np.log(values)
    elif values.ndim == 1:
        values = np.stack([np.zeros_like(values), values], axis=1)
    if outputs.classes is None:
        return values.copy()
    known = outputs.classes.astype(np.int64)
    logits = np.full((len(values), max(classes, known.max() + 1)), -np.inf)
    logits[:, known] = values
    return logits
