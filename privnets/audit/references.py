"""`privnets.audit_model`: trains reference models and audits a fitted model with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import clone, is_classifier
from sklearn.utils.parallel import Parallel, delayed

from privnets.audit.attacks import Family
from privnets.audit.evaluation import audit_signals
from privnets.audit.files import AuditError
from privnets.audit.result import AuditResult
from privnets.audit.signals import MIN_RECORDS
from privnets.randomness import generator
from privnets.reference_models import Array, BoolArray

Recipe = Callable[[Any, Any, int], Any]
"""Trains a new model: `fit(x, y, seed)` returns it."""

ParallelMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""A map of functions over items, as the built-in `map`."""

MIN_REFERENCES: Final = 4
_BATCH = 4096
_SUM_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """Outputs of a model at every record.

    Attributes:
        kind: `probabilities` [R, C], `margins` [R, C] or [R] of a decision function, or
            `predictions` [R] of a regression.
        classes: Label of each class; None if labels are numbers from 0.
    """

    kind: str
    values: Array
    classes: NDArray[Any] | None = None


def audit_model(
    model: Any,
    x: Any,
    y: ArrayLike,
    member: ArrayLike,
    references: int = 16,
    fit: Recipe | None = None,
    map: ParallelMap | None = None,
    seed: int = 0,
    *,
    family: Family | None = None,
    clip: float | None = None,
    confidence: float = 0.95,
    delta: float = 1e-5,
) -> AuditResult:
    """Audits a fitted model for leakage of the membership of its records.

    Reference models are trained on random halves of the records, in complementary pairs, so that
    each record is in half of them. Then attacks with and without references judge the model.

    Args:
        model: Fitted scikit-learn estimator; torch module that returns logits or probabilities;
            or a function from records to probabilities [records, classes].
        x: Records, members and others: array, DataFrame, sparse matrix or tensor.
        y: Targets, shape [records]; classes of a torch module or a function count from 0.
        member: Whether the model was trained on the record, shape [records]. Others should come
            from the same distribution, and about as many of them.
        references: Number of reference models, at least 4.
        fit: Recipe `fit(x, y, seed)` that trains a model as `model` was trained. If None, an
            estimator is cloned, with every `random_state` set to the seed.
        map: Map over models, such as `map` or that of a pool of processes; all cores if None.
        seed: Source of halves and of the seeds of reference models.
        family: As in `audit_signals`; so are `clip`, `confidence` and `delta`.

    Raises:
        AuditError: If the input cannot be audited.
    """
    y, inside = _check_records(x, y, member, references)
    recipe = fit if fit is not None else _clone_recipe(model)
    target = predict(model, x)
    halves = draw_halves(len(y), references, seed)
    seeds = generator(seed, "reference models").integers(0, 2**31, references).tolist()
    train = partial(_train_reference, recipe, x, y)
    tasks = list(zip(halves, seeds, strict=True))
    run = _map_on_all_cores if map is None else map
    outputs = [target, *run(train, tasks)]
    everyone = np.stack([inside, *halves])
    signals, labels = _signals(outputs, y, everyone)
    return audit_signals(
        signals, everyone, labels=labels, target=0, family=family, clip=clip,
        confidence=confidence, delta=delta, seed=seed,
    )  # fmt: skip


def draw_halves(records: int, count: int, seed: int) -> BoolArray:
    """Random halves of the records, shape [count, records]; each second one is a complement."""
    random = generator(seed, "reference halves")
    halves = np.zeros((count, records), dtype=bool)
    for index in range(count):
        if index % 2:
            halves[index] = ~halves[index - 1]
        else:
            halves[index, random.permutation(records)[: records // 2]] = True
    return halves


def predict(model: Any, x: Any) -> ModelOutputs:
    """Returns the outputs of a model at records.

    Raises:
        AuditError: If the model has no outputs that can be attacked.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return ModelOutputs("probabilities", _to_probabilities(_apply_module(torch, model, x)))
    if hasattr(model, "predict_proba"):
        values = np.asarray(model.predict_proba(x), dtype=float)
        return ModelOutputs("probabilities", values, np.asarray(model.classes_))
    if hasattr(model, "decision_function"):
        return _decide(model, x)
    if hasattr(model, "predict") and not is_classifier(model):
        values = np.asarray(model.predict(x), dtype=float)
        return ModelOutputs("predictions", values)
    if callable(model):
        values = np.asarray(model(x), dtype=float)
        if values.ndim != 2:
            raise AuditError(
                f"a function must return probabilities [records, classes]; got {list(values.shape)}"
            )
        return ModelOutputs("probabilities", values)
    raise AuditError(
        "model must have predict_proba, decision_function, or predict of a regression, or be a "
        f"torch module or a function; got {type(model).__name__}"
    )


def _decide(model: Any, x: Any) -> ModelOutputs:
    """Decision values: one of two classes, or one for each class."""
    values = np.asarray(model.decision_function(x), dtype=float)
    classes = np.asarray(getattr(model, "classes_", ()))
    options = model.get_params() if hasattr(model, "get_params") else {}
    # Three classes have three pairs, so that the shape alone cannot tell.
    pairs = any(
        name.endswith("decision_function_shape") and value == "ovo"
        for name, value in options.items()
    )
    expected = values.shape[:1] if len(classes) == 2 else (len(values), len(classes))
    if values.shape != expected or len(classes) < 2 or (pairs and len(classes) > 2):
        raise AuditError(
            "decision_function must return one value for each record and class, or for each "
            f"record if there are two; got {list(values.shape)} of {type(model).__name__} with "
            f"{len(classes)} classes"
        )
    return ModelOutputs("margins", values, classes)


def _apply_module(torch: Any, module: Any, x: Any) -> Array:
    """Outputs of a torch module in evaluation mode; modes are restored."""
    parameter = next(module.parameters(), None)
    records = x if isinstance(x, torch.Tensor) else torch.as_tensor(np.asarray(x))
    if parameter is not None:
        kind = parameter.dtype if records.is_floating_point() else records.dtype
        records = records.to(device=parameter.device, dtype=kind)
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            parts = [module(batch).double().cpu() for batch in records.split(_BATCH)]
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise AuditError(
            f"the module cannot be applied to x of {records.dtype}: {reason}"
        ) from error
    finally:
        for part, training in modes:
            part.training = training
    outputs: Array = torch.cat(parts).numpy()
    return outputs


def _to_probabilities(outputs: Array) -> Array:
    """Probabilities [R, C] from logits [R, C], [R, 1] or [R], or from probabilities."""
    if outputs.ndim > 2:
        raise AuditError(
            f"a torch module must return [records, classes]; got {list(outputs.shape)}"
        )
    flat = outputs.reshape(len(outputs), -1)
    if flat.shape[1] == 1:
        true = flat if flat.min() >= 0 and flat.max() <= 1 else expit(flat)
        return np.hstack([1 - true, true])
    is_simplex = flat.min() >= 0 and np.abs(flat.sum(1) - 1).max() < _SUM_TOLERANCE
    return flat if is_simplex else softmax(flat, axis=1)


def _check_records(
    x: Any, y: ArrayLike, member: ArrayLike, references: int
) -> tuple[NDArray[Any], BoolArray]:
    targets, inside = np.asarray(y), np.asarray(member)
    records = x.shape[0] if hasattr(x, "shape") else len(x)
    if targets.ndim != 1 or inside.shape != targets.shape or records != len(targets):
        raise AuditError(
            "x, y and member must have one entry for each record, member a boolean; "
            f"got {records}, {list(targets.shape)} and {list(inside.shape)}"
        )
    if pd.isna(targets).any():
        raise AuditError("y must not hold missing values")
    if inside.dtype.kind not in "biuf" or not np.isin(inside, (0, 1)).all():
        raise AuditError("member must be booleans, or 0 and 1")
    inside = inside.astype(bool)
    if min(inside.sum(), (~inside).sum()) < MIN_RECORDS:
        raise AuditError(
            f"too few records: an audit needs at least {MIN_RECORDS} members and {MIN_RECORDS} "
            f"non-members; got {inside.sum()} and {(~inside).sum()}"
        )
    if isinstance(references, bool) or references < MIN_REFERENCES:
        raise AuditError(f"references must be at least {MIN_REFERENCES}; got {references}.")
    return targets, inside


def _clone_recipe(model: Any) -> Recipe:
    if not hasattr(model, "get_params"):
        raise AuditError(
            f"a {type(model).__name__} cannot be cloned; give fit=..., a function (x, y, seed) "
            "that trains and returns a model"
        )
    return partial(_refit, model)


def _refit(model: Any, x: Any, y: NDArray[Any], seed: int) -> Any:
    """Trains a clone of an estimator, with every `random_state` set to the seed."""
    copy = clone(model)
    states = [name for name in copy.get_params() if name.rpartition("__")[2] == "random_state"]
    return copy.set_params(**dict.fromkeys(states, seed)).fit(x, y)


def _train_reference(
    recipe: Recipe, x: Any, y: NDArray[Any], task: tuple[BoolArray, int]
) -> ModelOutputs:
    half, seed = task
    rows = np.flatnonzero(half)
    chosen = x.iloc[rows] if hasattr(x, "iloc") else _as_rows(x)[rows]
    return predict(recipe(chosen, y[rows], seed), x)


def _as_rows(x: Any) -> Any:
    return x if hasattr(x, "shape") else np.asarray(x)


def _map_on_all_cores(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
    results: list[Any] = Parallel(n_jobs=-1)(delayed(function)(item) for item in items)
    return results


def _signals(
    outputs: Sequence[ModelOutputs], y: NDArray[Any], member: BoolArray
) -> tuple[dict[str, Array], NDArray[np.int64] | None]:
    """Signals of the models, the audited one first, and the classes of the records."""
    kinds = {output.kind for output in outputs}
    if len(kinds) > 1:
        raise AuditError(f"fit must return models of the same kind as model; got {sorted(kinds)}")
    if kinds == {"predictions"}:
        residuals = np.square(np.stack([output.values for output in outputs]) - y)
        scale = residuals[1:][~member[1:]].mean()
        return {"loss": residuals / (2 * max(float(scale), 1e-300))}, None
    if outputs[0].classes is None:
        classes = np.arange(outputs[0].values.shape[1])
    else:
        classes = outputs[0].classes
    labels = np.searchsorted(classes, y)
    if (labels >= len(classes)).any() or (classes[np.minimum(labels, len(classes) - 1)] != y).any():
        wrong = y[~np.isin(y, classes)].tolist()[0]
        raise AuditError(f"y holds {wrong!r}, which is not among the model's classes")
    values = [_align(output, classes) for output in outputs]
    if kinds == {"margins"}:
        margins = [_true_margins(value, labels) for value in values]
        return {"score": np.stack(margins)}, None
    return {"probabilities": np.stack(values)}, labels


def _align(output: ModelOutputs, classes: NDArray[Any]) -> Array:
    """Columns in the order of the audited model's classes; 0 for classes that a model lacks."""
    if output.classes is None or np.array_equal(output.classes, classes):
        return output.values
    if output.kind == "margins":
        raise AuditError("a reference model lacks a class: give more records of each class")
    aligned = np.zeros((len(output.values), len(classes)))
    known = np.isin(output.classes, classes)
    aligned[:, np.searchsorted(classes, output.classes[known])] = output.values[:, known]
    return aligned


def _true_margins(values: Array, labels: NDArray[np.int64]) -> Array:
    """Decision value of the true class minus the largest other one."""
    if values.ndim == 1:
        return np.where(labels == 1, values, -values)
    rows = np.arange(len(values))
    rivals = values.copy()
    rivals[rows, labels] = -np.inf
    margins: Array = values[rows, labels] - rivals.max(1)
    return margins
