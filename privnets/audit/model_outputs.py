"""Outputs of fitted models: how each kind of model is asked, and what its answers mean."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import is_classifier, is_regressor

from privnets.attacks.view import Array
from privnets.audit.inputs import AuditError, as_array, as_numbers, copy_records, text_columns
from privnets.audit.signals import PROBABILITIES, ROUNDING, SUM_TOLERANCE
from privnets.references.user_files import describe_error

Meaning = Literal["probabilities", "logits", "predictions"]
"""Meaning of the outputs of modules, functions, and models that have `predict` alone."""

MEANINGS: Final[tuple[Meaning, ...]] = get_args(Meaning)
_BATCH = 4096
_ASK = "pass outputs= to audit_model: one of " + ", ".join(map(repr, MEANINGS))


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """Outputs of a model at every record.

    Attributes:
        kind: `probabilities` [R, C]; `margins` [R, C] or [R] of a decision function; `predictions`
            [R] of a regression; or `outputs` [R, C] or [R], of a module or function, and `answers`
            of `predict` alone, whose meaning `interpret` decides.
        classes: Label of each class; None if labels are numbers from 0.
    """

    kind: str
    values: Array
    classes: NDArray[Any] | None = None


def predict(model: Any, x: Any) -> ModelOutputs:
    """Asks a model about records, which it gets as a copy.

    Raises:
        AuditError: If the model fails, or its outputs are not numbers for each record.
    """
    torch, name = sys.modules.get("torch"), type(model).__name__
    if torch is not None and isinstance(model, torch.nn.Module):
        values = _ask(partial(_apply_module, torch, model), f"the module {name}", x)
        return ModelOutputs("outputs", values)
    is_regression = _is(is_regressor, model)  # that of skorch has predict_proba as well
    if hasattr(model, "predict_proba") and not is_regression:
        values = _ask(model.predict_proba, f"predict_proba of {name}", x)
        values, classes = values.reshape(len(values), -1), _classes(model)
        expected = values.shape[1] if classes is None else len(classes)
        if values.shape[1] != expected or (classes is None and expected < 2):
            raise AuditError(
                f"predict_proba of {name} must return a column for each class, "
                f"{max(expected, 2)}; got {values.shape[1]}"
            )
        return ModelOutputs(PROBABILITIES, values, classes)
    if hasattr(model, "decision_function") and not is_regression:
        return _decide(model, x)
    if hasattr(model, "predict") and (is_regression or not _is(is_classifier, model)):
        values = _ask(model.predict, f"predict of {name}", x)
        if is_regression and values.ndim != 1:
            raise AuditError(
                f"predict of {name} must return one number for each record, shape "
                f"[{len(values)}]; got {list(values.shape)}"
            )
        return ModelOutputs("predictions" if is_regression else "answers", values)
    if callable(model):
        return ModelOutputs("outputs", _ask(model, "the function", x))
    raise AuditError(
        "a model must have predict_proba, decision_function, or predict of a regression, or be a "
        f"torch module or a function; got {name}"
    )


def interpret(
    outputs: Sequence[ModelOutputs], y: NDArray[Any], meaning: Meaning | None
) -> list[ModelOutputs]:
    """Decides once for all models of an audit what their outputs mean.

    Rows of numbers in [0, 1] that sum to 1 within 1%, in all models, are probabilities. Others are
    logits, but numbers that could be something else are refused. One number for each record is a
    prediction if some target is a fraction.

    Args:
        y: Targets, shape [R].
        meaning: Meaning that the user states.

    Raises:
        AuditError: If models differ in kind or shape, or the meaning is ambiguous.
    """
    kinds, shapes = {each.kind for each in outputs}, {each.values.shape for each in outputs}
    if len(kinds) > 1:
        raise AuditError(f"fit must return models of the same kind as model; got {sorted(kinds)}")
    (kind,) = kinds
    if kind not in ("outputs", "answers"):
        if meaning not in (None, kind):
            raise AuditError(f"outputs must be None for a model that has {kind}; got {meaning!r}")
        return list(outputs)
    if len(shapes) > 1:
        raise AuditError(f"all models must have outputs of one shape; got {sorted(shapes)}")
    values = np.stack([each.values for each in outputs])
    meaning = meaning or _meaning(values, y, kind)
    if meaning == "predictions":
        if values.ndim != 2:
            raise AuditError(f"predictions must have shape [records]; got {list(values.shape[1:])}")
    elif values.ndim == 2:
        others = expit(-values) if meaning == "logits" else 1 - values
        values = np.stack([others, expit(values) if meaning == "logits" else values], axis=-1)
    elif meaning == "logits":
        values = softmax(values, axis=-1)
    kind = "predictions" if meaning == "predictions" else PROBABILITIES
    return [replace(each, kind=kind, values=row) for each, row in zip(outputs, values, strict=True)]


def _meaning(values: Array, y: NDArray[Any], kind: str) -> Meaning:
    """Meaning of outputs of models at records, shape [M, R] or [M, R, C]."""
    if values.ndim == 2:
        if y.dtype.kind == "f" and (y != np.round(y)).any():
            return "predictions"
        least, most = float(values.min()), float(values.max())
        if kind == "answers" or (least >= -ROUNDING and most <= 1 + ROUNDING):
            raise AuditError(
                f"outputs of one number for each record, from {least:.4g} to {most:.4g}, may be "
                f"probabilities of class 1, logits or predicted numbers; {_ASK}"
            )
        return "logits"
    sums = values.sum(-1)
    low, high = values.min((1, 2)), values.max((1, 2))
    in_range = (low >= -ROUNDING) & (high <= 1 + ROUNDING)
    are_probabilities = in_range & (np.abs(sums - 1).max(1) <= SUM_TOLERANCE)
    if are_probabilities.all():
        return "probabilities"
    is_constant = np.ptp(sums) <= SUM_TOLERANCE * sums.max()
    if are_probabilities.any() or in_range.all() or (low.min() >= 0 and is_constant):
        raise AuditError(
            f"outputs from {low.min():.4g} to {high.max():.4g}, with sums over classes from "
            f"{sums.min():.4g} to {sums.max():.4g}, may be probabilities, logits or others; {_ASK}"
        )
    return "logits"


def _ask(question: Callable[[Any], Any], name: str, x: Any) -> Array:
    """Numbers that a model returns for each record, shape [R] or [R, C > 1].

    Raises:
        AuditError: If it fails, or returns something else.
    """
    records = x.shape[0] if hasattr(x, "shape") else len(x)
    try:
        answer = question(copy_records(x))
    except AuditError:
        raise
    except (Exception, SystemExit) as error:  # any exception of the user's code
        reason = describe_error(error)
        raise AuditError(f"{name} fails: {reason}{_remedy(reason, x)}") from error
    if isinstance(answer, tuple | Mapping) or (isinstance(answer, list) and len(answer) != records):
        kind = "dict" if isinstance(answer, Mapping) else type(answer).__name__
        raise AuditError(
            f"{name} must return one array or tensor [{records}, classes]; got a {kind} of "
            f"{len(answer)}. Wrap the model in one that returns its logits or probabilities alone"
        )
    if isinstance(answer, pd.Series | pd.DataFrame):  # an array would lose its order
        orders = [pd.RangeIndex(len(answer)), getattr(x, "index", None)]  # a list has a method
        if not any(isinstance(o, pd.Index) and answer.index.equals(o) for o in orders):
            raise AuditError(
                f"{name} returns rows with the index {list(answer.index[:3])} first, which is not "
                "the order of the records; return an array"
            )
        if isinstance(answer, pd.DataFrame) and not answer.columns.is_monotonic_increasing:
            raise AuditError(
                f"{name} returns the columns {list(answer.columns[:3])} first; return classes in "
                "ascending order, or an array"
            )
    values = as_numbers(f"the result of {name}", answer)
    if values.ndim not in (1, 2) or len(values) != records:
        raise AuditError(
            f"{name} must return an array [{records}, classes] or [{records}]; got "
            f"{list(values.shape)}"
        )
    # A logit of minus infinity is a class that cannot be.
    broken = np.isnan(values) | (values == np.inf)
    if rows := int((wrong := broken.reshape(records, -1).any(1)).sum()):
        raise AuditError(
            f"{name} returns {values[broken][0]} for {rows} of {records} records, at first for "
            f"record {int(wrong.argmax())}"
        )
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _remedy(reason: str, x: Any) -> str:
    """What to change where a library's reason does not tell; empty if unknown."""
    if "unknown categor" in reason or "category not in" in reason:
        return (
            ". Models are asked about all records, so an encoder must accept categories that "
            "its training set lacks, such as OneHotEncoder(handle_unknown='ignore')"
        )
    texts = text_columns(x)
    if texts and any(words in reason for words in ("could not convert", "dtypes", "eature names")):
        return (
            f". Column {texts[0]!r} has texts: leave it out (--ignore {texts[0]}), or audit the "
            "pipeline that encodes it"
        )
    if "same order" in reason:
        return ". Give the columns in the order that the model was trained on"
    if "eature names" in reason:
        return ". Leave out the columns that the model was not trained on (--ignore COLUMN)"
    return ""


def has_classes(model: Any) -> bool:
    """Whether an estimator has probabilities or a decision function of classes."""
    asks = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
    return asks and not _is(is_regressor, model)


def _is(check: Callable[[Any], bool], model: Any) -> bool:
    try:
        return check(model)
    except (AttributeError, TypeError):  # not of scikit-learn, or a class
        return False


def _classes(model: Any) -> NDArray[Any] | None:
    """Labels of the classes of an estimator; None if it does not tell them."""
    classes = getattr(model, "classes_", None)
    if classes is None:
        return None
    labels = as_array("classes_", classes)
    if labels.ndim != 1 or len(set(labels.tolist())) < len(labels):
        raise AuditError(
            f"classes_ of {type(model).__name__} must be different labels [classes] of one target; "
            f"got {list(labels.shape)}"
        )
    return labels


def _decide(model: Any, x: Any) -> ModelOutputs:
    """Decision values: one of two classes, or one for each class."""
    values = _ask(model.decision_function, f"decision_function of {type(model).__name__}", x)
    classes = _classes(model)
    count = 0 if classes is None else len(classes)
    options = model.get_params() if hasattr(model, "get_params") else {}
    # Three classes have three pairs, so that the shape alone cannot tell.
    pairs = any(k.endswith("decision_function_shape") and v == "ovo" for k, v in options.items())
    expected = values.shape[:1] if count == 2 else (len(values), count)
    if values.shape != expected or count < 2 or (pairs and count > 2):
        raise AuditError(
            "decision_function must return one value for each record and class, or for each "
            f"record if there are two; got {list(values.shape)} of {type(model).__name__} with "
            f"{count} classes"
        )
    return ModelOutputs("margins", values, classes)


def _apply_module(torch: Any, module: Any, x: Any) -> Any:
    """Outputs of a torch module in evaluation mode; modes are restored."""
    if texts := text_columns(x):
        raise AuditError(f"x must be numbers for a torch module; column {texts[0]!r} is not")
    x = x.to_numpy() if isinstance(x, pd.DataFrame) else x
    records = x if isinstance(x, torch.Tensor) else torch.tensor(as_array("x", x))
    parameter = next(module.parameters(), None)
    if parameter is not None:
        kind = parameter.dtype if records.is_floating_point() else records.dtype
        records = records.to(device=parameter.device, dtype=kind)
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            # Modules may change their input in place, also beyond a batch.
            parts = [module(batch.clone()) for batch in records.split(_BATCH)]
    finally:
        for part, training in modes:
            part.training = training
    if any(isinstance(part, tuple | list | Mapping) for part in parts):
        return parts[0]
    return torch.cat([torch.as_tensor(part).cpu() for part in parts])
