"""Scikit-learn estimators as target models: construction, training and outputs. Imports no torch.

Each model is trained on its own. Several train at once, each in a process of its own, on as many
cores as torch may use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline

from privnets import data
from privnets.audit.inputs import AuditError
from privnets.audit.model_outputs import ModelOutputs, has_classes, predict
from privnets.contract import InvalidField
from privnets.data import DataReference, DatasetInfo, UserFormError
from privnets.membership.config import MembershipConfig
from privnets.membership.user_models.modules import UserModel, parameter_names, unknown_parameters
from privnets.references.data import RawTableReference, TableReference
from privnets.references.models import EstimatorReference, ModelReference
from privnets.references.tables import RawRecords
from privnets.references.user_files import describe_error, import_object, set_folder

Array = NDArray[np.float64]
_RAW_HINT = "; the model got raw columns, and model.columns: encoded gives it numbers"
# Fingerprint of the data, digest of the code, and structure of the configuration.
_TRIED: Final[set[tuple[str, str, str]]] = set()


class EstimatorModel(UserModel):
    """Scikit-learn estimator of the user."""

    trainer = "privnets.membership.user_models.estimator_training:EstimatorTrainer"
    reference: EstimatorReference

    def classifies(self, info: DatasetInfo) -> bool:
        """Whether the estimator has probabilities or a decision function.

        Raises:
            UserFormError: If it cannot be imported or constructed.
        """
        return has_classes(self._example())

    def data_form(self, dataset: str | DataReference) -> str | DataReference:
        """Raw columns of a table, if the reference says so, or the estimator prepares them."""
        is_raw = self.reference.columns == "raw"
        if self.reference.columns is None and isinstance(dataset, TableReference):
            is_raw = self._has(Pipeline, FeatureUnion, ColumnTransformer)
        if isinstance(dataset, TableReference) and is_raw:
            return RawTableReference(**dataset.model_dump())
        return dataset

    def remarks(self, dataset: str | DataReference) -> tuple[str, ...]:
        """Says where an estimator gets raw columns without being told to."""
        if self.reference.columns or not isinstance(self.data_form(dataset), RawTableReference):
            return ()
        return (
            f"{self.reference.location} has a pipeline of its own, so each model gets the raw "
            "columns and fits it on its training set; model.columns: encoded prevents that.",
        )

    def try_training(self, config: MembershipConfig) -> None:
        """Trains the first model in a process of its own, and asks it as evaluation will.

        Parameters are not structural, so that only the first values of swept ones are tried. A
        training that takes long, or ends its process, is left to the sweep and its limits.
        """
        parts = (data.fingerprint(config.data_form), self.reference.digest(), config.structure())
        if parts not in _TRIED:
            self.load_trainer().check(config)
            _TRIED.add(parts)

    def advice(self, raw: RawRecords | None) -> str:
        """Advice that follows the failure of a model."""
        if raw is None:
            return ""
        if raw.remarks:
            return "".join(f"; {remark.removesuffix('.')}" for remark in raw.remarks)
        return "" if self._has(ColumnTransformer) else _RAW_HINT

    def _has(self, *types: type) -> bool:
        """Whether the estimator, or a part of it, is of one of these types."""
        try:
            example = self._example()
            parts = example.get_params().values()
        except Exception:  # of the user's code; validation reports it elsewhere
            return False
        return any(isinstance(part, types) for part in (example, *parts))

    def _example(self) -> Any:
        """The estimator without unknown parameters.

        These are invalid fields, reported beside all other mistakes of a study.
        """
        known = parameter_names(self.reference)
        valid = {n: v for n, v in self.reference.params.items() if known is None or n in known}
        return make_estimator(self.reference.model_copy(update={"params": valid}))

    def invalid_fields(self, config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
        """Adds unknown parameters, and a kind of estimator that does not fit the target."""
        invalid = super().invalid_fields(config, info)
        if unknown := unknown_parameters(self.reference):
            return invalid + unknown
        if self.reference.columns == "raw" and not isinstance(config.dataset, TableReference):
            expected = f"encoded with {info.name}: only your own tables have raw columns"
            invalid.append(InvalidField("model.columns", "raw", expected))
        if config.features is not None and isinstance(config.data_form, RawTableReference):
            expected = "null: raw columns are not rotated; or model.columns: encoded"
            invalid.append(InvalidField("features", str(config.features), expected))
        classifies = {"regression": False, "multiclass": True}.get(info.task)
        if classifies is not None and self.classifies(info) != classifies:
            kind = "a classifier" if classifies else "a regressor"
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
    """Training of one model, and the k records at which its outputs are needed.

    Attributes:
        folder: Folder of the study, for processes that do not know it.
        seed: Seed of every `random_state` that the reference does not set.
        x: Attributes of the records, shape [k, p]: an array, or a table of raw columns.
        y: Targets, shape [k]; classes are whole numbers.
        members: Size of the training set; it is the last of the records.
        test: Positions of test records, shape [K].
        classes: Classes that the model predicts; 0 for numbers.
        target: Targets as the model gets them, shape [k].
        scale: Mean and standard deviation of a target that is a number, as the model gets it.
        advice: End of the sentence on a failure.
    """

    folder: Path
    reference: ModelReference
    seed: int
    x: Any
    y: NDArray[Any]
    members: int
    test: NDArray[np.int64]
    classes: int
    target: NDArray[Any]
    scale: tuple[float, float] = (0.0, 1.0)
    advice: str = ""

    def run(self) -> Answers | str:
        """Trains the model.

        Returns:
            Outputs at the asked records, or the failure of the user's code.
        """
        set_folder(self.folder)
        try:
            np.random.seed(self.seed)  # estimators without a random state draw from it
            model, given = make_estimator(self.reference), self.reference.params
            options = model.get_params() if hasattr(model, "get_params") else ()
            states = [n for n in options if n.rpartition("__")[2] == "random_state"]
            if free := [name for name in states if name not in given]:
                model.set_params(**dict.fromkeys(free, self.seed))
            # A copy, because models may change their records.
            model.fit(self.x[-self.members :].copy(), self.target[-self.members :])
            outputs = predict(model, self.x)
            if not self.classes:
                mean, deviation = self.scale
                values = (outputs.values - mean) / deviation
                return answers(replace(outputs, values=values), self.y, self.test, 0)
            known = None if outputs.classes is None else self._numbers(outputs.classes)
            outputs, predicted = (
                replace(outputs, classes=known),
                self._numbers(model.predict(self.x)),
            )
            return answers(outputs, self.y, self.test, self.classes, predicted)
        except (Exception, SystemExit) as error:  # any exception of the user's code
            return describe_error(error) + self.advice

    def _numbers(self, labels: Any) -> NDArray[np.int64]:
        """Numbers of classes that the model names as its targets do."""
        numbers = dict(zip(self.target.tolist(), self.y.tolist(), strict=True))
        return np.array([numbers.get(each, each) for each in np.asarray(labels).tolist()])


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
    labels, values = y.astype(np.int64), outputs.values
    if outputs.kind == "probabilities":
        with np.errstate(divide="ignore"):
            values = np.log(values)
    elif values.ndim == 1:
        values = np.stack([np.zeros_like(values), values], axis=1)
    logits = values.copy()
    if outputs.classes is not None:  # minus infinity for classes that the model lacks
        known = outputs.classes.astype(np.int64)
        logits = np.full((len(values), max(classes, known.max() + 1)), -np.inf)
        logits[:, known] = values
    log_p = logits[test] - logsumexp(logits[test], axis=1, keepdims=True)
    predicted = logits.argmax(1) if predicted is None else predicted.astype(np.int64)
    rows = np.arange(len(labels))
    true = logits[rows, labels]
    logits[rows, labels] = -np.inf
    about_truth = np.stack([true - logsumexp(logits, axis=1), predicted == labels])
    return about_truth, np.column_stack([predicted[test], log_p])
