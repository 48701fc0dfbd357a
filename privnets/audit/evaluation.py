"""Audits of saved outputs (`audit_signals`) and of fitted models (`audit_model`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.parallel import Parallel, delayed

from privnets.attacks.base import FAMILIES, Family
from privnets.attacks.view import Array, BoolArray, margins
from privnets.audit.inputs import (
    AuditError,
    align,
    as_array,
    as_groups,
    as_records,
    describe_equal_records,
    take_records,
)
from privnets.audit.model_outputs import MEANINGS, Meaning, ModelOutputs, interpret, predict
from privnets.audit.result import AuditResult
from privnets.audit.signals import PROBABILITIES, Signals, check_counts, check_member, load_signals
from privnets.randomness import generator
from privnets.references.user_files import describe_error

Recipe = Callable[[Any, Any, int], Any]
"""Trains a new model: `fit(x, y, seed)` returns it."""

ParallelMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""A map of functions over items, as the built-in `map`."""

MIN_REFERENCES: Final = 4


def _map_on_all_cores(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
    results: list[Any] = Parallel(n_jobs=-1)(delayed(function)(item) for item in items)
    return results


def audit_signals(
    signals: Signals,
    member: ArrayLike | str = "member",
    *,
    labels: ArrayLike | str | None = None,
    groups: ArrayLike | str | None = None,
    target: int | None = None,
    family: Family | None = None,
    clip: float | None = None,
    confidence: float = 0.95,
    delta: float = 1e-5,
    seed: int = 0,
) -> AuditResult:
    """Audits saved outputs of one model, or of many, for leakage of membership.

    One model is attacked by thresholds on its signals, and by attacks that learn from one half of
    the records to judge the other. With many models, each is also attacked with all the others as
    references (leave-one-out), or only the `target` is.

    Args:
        signals: Arrays by name, a table, or the path of an `.npz`, `.csv` or `.parquet` file.
            `loss` (cross-entropy, or any loss), `confidence` (probability of the true class),
            `entropy` (nats), `logit` (log-odds of the true class) and `score` (anything larger for
            members) have shape [records] or [models, records]; `probabilities` [records, classes]
            or [models, records, classes]. Tables have a row per record, columns `probability_0`,
            `probability_1`, ..., and for many models the columns `model` and `record`.
        member: Booleans of the scores' shape: was the record in the model's training set; or the
            name of a column.
        labels: True classes from 0, shape [records], or the name of a column. Needed with
            `probabilities`, and used with other signals. Of tables and files, `labels` or `label`
            is the default.
        groups: Group of each record, or the name of a column such as `label`; see
            `AuditResult.groups`. Of an `.npz` file, `groups` is the default.
        target: Number of the only model to audit; all if None.
        family: Family of attacks that the verdict is about: `threshold`, `learned`, `offline` or
            `online`. The one with the most knowledge if None.
        clip: Probabilities are clipped to [clip, 1 - clip] for attacks with references. Chosen
            from the signals if None; see `choose_limit`.
        confidence: Coverage of intervals, in (0, 1).
        delta: Delta of the lower bounds on epsilon, in [0, 1).
        seed: Source of the random halves.

    Raises:
        AuditError: With the first mistake in the input.
    """
    _check_options(family, clip, confidence, delta, seed)
    models = load_signals(signals, member, labels, groups=groups, target=target, clip=clip)
    data = str(signals) if isinstance(signals, str | Path) else ""
    return AuditResult(
        models, family=family, confidence=confidence, delta=delta, seed=seed, data=data,
    )  # fmt: skip


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
    outputs: Meaning | None = None,
    groups: ArrayLike | str | None = None,
    family: Family | None = None,
    clip: float | None = None,
    confidence: float = 0.95,
    delta: float = 1e-5,
) -> AuditResult:
    """Audits a fitted model for leakage of the membership of its records.

    Reference models are trained on random halves of the records, in complementary pairs, so that
    each record is in half of them. Then attacks with and without references judge the model.

    Args:
        model: Fitted scikit-learn estimator; torch module, function from records, or object with
            `predict` alone, that returns [records, classes] or [records]. It gets copies of x.
        x: Records, members and others: array, DataFrame, sparse matrix, list or tensor.
        y: Targets, shape [records]; classes of a torch module or a function count from 0.
        member: Whether the model was trained on the record, shape [records]. Others should come
            from the same distribution, and about as many of them. Pandas objects are matched by
            their index.
        references: Number of reference models, at least 4.
        fit: Recipe `fit(x, y, seed)` that trains a model as `model` was trained. If None, an
            estimator is cloned, with every `random_state` set to the seed.
        map: Map over models, such as `map` or that of a pool of processes; all cores if None.
        seed: Source of halves and of the seeds of reference models.
        outputs: What modules, functions and objects with `predict` alone return: `probabilities`,
            `logits` or, for regressions, `predictions`. If None, one decision for all models; see
            `interpret`.
        groups: Group of each record, or a column of x, for leakage by group; see
            `AuditResult.groups`.
        family: As in `audit_signals`; so are `clip`, `confidence` and `delta`.

    Raises:
        AuditError: If the input cannot be audited.
    """
    _check_options(family, clip, confidence, delta, seed)
    is_number = isinstance(references, Integral) and not isinstance(references, bool)
    if not is_number or references < MIN_REFERENCES:
        raise AuditError(f"references must be at least {MIN_REFERENCES}; got {references!r}.")
    for name, value in (("fit", fit), ("map", map)):
        if value is not None and not callable(value):
            raise AuditError(f"{name} must be a function; got {type(value).__name__}")
    if outputs is not None and outputs not in MEANINGS:
        raise AuditError(f"outputs must be one of {', '.join(MEANINGS)}; got {outputs!r}")
    x, targets, inside, groups = _check_records(x, y, member, groups)
    if fit is None and not hasattr(model, "get_params"):
        raise AuditError(
            f"a {type(model).__name__} cannot be cloned; give fit=..., a function (x, y, seed) "
            "that trains and returns a model"
        )
    if fit is None and isinstance(model, FrozenEstimator):
        raise AuditError("a FrozenEstimator is never trained again; give the estimator inside it")
    recipe = partial(_refit, model) if fit is None else fit
    audited = predict(model, x)
    # What can be refused is refused before references train.
    output = interpret([audited], targets, outputs)[0]
    _true_classes(output, targets)
    halves = draw_halves(len(targets), references, seed)
    seeds = generator(seed, "reference models").integers(0, 2**31, references).tolist()
    # Recipes of the user get tensors for tensors.
    given = y if fit is not None and hasattr(y, "detach") else targets
    train = partial(_train_reference, recipe, x, given)
    tasks = list(zip(range(1, references + 1), halves, seeds, strict=True))
    answers = [audited, *_run(map or _map_on_all_cores, train, tasks)]
    everyone = np.stack([inside, *halves])
    signals, labels = _signals(interpret(answers, targets, outputs), targets, everyone)
    models = load_signals(signals, everyone, labels, groups=groups, target=0, clip=clip)
    notes = describe_equal_records(x, targets, inside)
    classes = () if labels is None else tuple(f"{each}" for each in _labels_of(output))
    first = audited.values
    if not (first == first[0]).all() and all(np.array_equal(o.values, first) for o in answers):
        notes += (
            "All reference models answer exactly as the audited one: unless training cannot "
            "differ, fit returned a model that it did not train, and no attack can find members.",
        )
    result = AuditResult(
        replace(models, notes=models.notes + notes, classes=classes), family=family,
        confidence=confidence, delta=delta, seed=seed, model=type(model).__name__,
    )  # fmt: skip
    of_labels = {} if labels is None else {"labels": labels}
    result.outputs = {**signals, "member": everyone, **of_labels}
    return result


def _check_options(
    family: Family | None, clip: float | None, confidence: float, delta: float, seed: int
) -> None:
    checks = (
        ("family", family, family in (None, *FAMILIES), f"one of {', '.join(FAMILIES)}"),
        ("clip", clip, clip is None or _is_between(0, clip, 0.5), "above 0 and below 0.5"),
        ("confidence", confidence, _is_between(0, confidence, 1), "above 0 and below 1"),
        ("delta", delta, _is_between(-1, delta, 1) and delta >= 0, "at least 0 and below 1"),
        ("seed", seed, isinstance(seed, Integral) and seed >= 0, "a whole number of at least 0"),
    )
    for name, given, is_valid, expected in checks:
        if not is_valid:
            raise AuditError(f"{name} must be {expected}; got {given!r}.")


def _is_between(low: float, value: float | None, high: float) -> bool:
    return isinstance(value, Real) and low < value < high


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


def _check_records(
    x: Any, y: ArrayLike, member: ArrayLike, groups: ArrayLike | str | None
) -> tuple[Any, NDArray[Any], BoolArray, Any]:
    """Records, targets, membership and groups in one order."""
    x = as_records(x)
    records = x.shape[0] if hasattr(x, "shape") else len(x)
    shapes = [as_array(name, value).shape for name, value in (("y", y), ("member", member))]
    if any(shape != (records,) for shape in shapes):
        raise AuditError(
            "x, y and member must have one entry for each record, y and member shape "
            f"[{records}]; got {list(shapes[0])} and {list(shapes[1])}"
        )
    values: dict[str, Any] = {"x": x, "y": y, "member": member}
    if isinstance(groups, str):
        known = [str(column) for column in getattr(x, "columns", ())]
        if groups not in known:
            columns = f"; columns: {', '.join(known[:8])}" if known else ""
            raise AuditError(
                f"groups must be values, or name a column of x; got {groups!r}{columns}"
            )
        groups = x.iloc[:, known.index(groups)]
    if groups is not None:
        values["groups"] = groups
        as_groups(groups, records)
    values = align(values, dict.fromkeys(values, ("record",)))
    targets = as_array("y", values["y"])
    if pd.isna(targets).any():
        raise AuditError("y must not hold missing values")
    inside = check_member(values["member"], single=True)
    check_counts(inside, None)
    return values["x"], targets, inside[0], values.get("groups")


def _run(
    map: ParallelMap,
    train: Callable[[Any], tuple[int, ModelOutputs | str]],
    tasks: Sequence[tuple[int, BoolArray, int]],
) -> list[ModelOutputs]:
    """Outputs of the reference models in order; stops at the first failure."""
    answers: dict[int, ModelOutputs] = {}
    try:
        for number, answer in map(train, tasks):
            if isinstance(answer, str):
                raise AuditError(answer)
            answers[number] = answer
    except AuditError:
        raise
    except Exception as error:  # of processes and of what is sent to them
        raise AuditError(
            f"map fails: {describe_error(error)}; map=map trains all models in this process"
        ) from error
    if len(answers) < len(tasks):
        raise AuditError(f"map must return {len(tasks)} results; got {len(answers)}")
    return [answers[number] for number, _, _ in tasks]


def _refit(model: Any, x: Any, y: NDArray[Any], seed: int) -> Any:
    """Trains a clone of an estimator, with every `random_state` set to the seed."""
    copy = clone(model)
    states = [name for name in copy.get_params() if name.rpartition("__")[2] == "random_state"]
    return copy.set_params(**dict.fromkeys(states, seed)).fit(x, y)


def _train_reference(
    recipe: Recipe, x: Any, y: Any, task: tuple[int, BoolArray, int]
) -> tuple[int, ModelOutputs | str]:
    """Number of a reference model and its outputs, or the failure of the user's code."""
    number, half, seed = task
    rows = np.flatnonzero(half)
    try:
        model = recipe(take_records(x, rows), take_records(y, rows), seed)
    except (Exception, SystemExit) as error:  # any exception of the user's code
        reason = f"training of reference model {number} fails: {describe_error(error)}"
        labels = as_array("y", y)
        lacking = sorted(map(repr, set(labels.tolist()) - set(labels[half].tolist())))
        if lacking and labels.dtype.kind != "f":  # fractions are no classes
            listed = ", ".join(lacking[:5])
            reason += f". Its half of the records lacks y = {listed}; give more of each class"
        return number, reason
    try:
        return number, predict(model, x)
    except AuditError as error:
        return number, f"reference model {number}, trained on half of the records: {error}"


def _signals(
    outputs: Sequence[ModelOutputs], y: NDArray[Any], member: BoolArray
) -> tuple[dict[str, Array], NDArray[np.int64] | None]:
    """Signals of the models, the audited one first, and the classes of the records."""
    labels = _true_classes(outputs[0], y)
    if labels is None:
        residuals = np.square(np.stack([output.values for output in outputs]) - y.astype(float))
        scale = residuals[1:][~member[1:]].mean()
        return {"loss": residuals / (2 * max(float(scale), 1e-300))}, None
    values = [_align(output, _labels_of(outputs[0])) for output in outputs]
    if outputs[0].kind == "margins":
        # Of two classes, there may be one value [R], that of the second.
        true = [
            np.where(labels == 1, each, -each) if each.ndim == 1 else margins(each, labels)
            for each in values
        ]
        return {"score": np.stack(true)}, None
    return {PROBABILITIES: np.stack(values)}, labels


def _true_classes(output: ModelOutputs, y: NDArray[Any]) -> NDArray[np.int64] | None:
    """Number of the class of each record; None for a regression."""
    if output.kind == "predictions":
        if y.dtype.kind not in "biuf":
            raise AuditError(f"y must be numbers for a regression; got {y[:1].tolist()[0]!r}")
        return None
    classes = _labels_of(output)
    labels = _positions(y.tolist(), classes)
    if (labels < 0).any():
        wrong, known = y[labels < 0].tolist()[0], ", ".join(map(repr, classes[:5]))
        hint = "" if output.classes is not None else "; a regression needs outputs='predictions'"
        if hint and y.dtype.kind in "iuf" and (y.min(), y.max()) == (1, len(classes)):
            hint = "; classes count from 0, so subtract 1 from y"
        elif hint and y.dtype.kind not in "biuf":
            hint = "; give y as numbers of the classes, from 0, in the order of the outputs"
        raise AuditError(
            f"y holds {wrong!r}, which is not among the model's classes: {known}{hint}"
        )
    return labels


def _labels_of(output: ModelOutputs) -> list[Any]:
    classes = np.arange(output.values.shape[1]) if output.classes is None else output.classes
    labels: list[Any] = classes.tolist()
    return labels


def _positions(labels: Sequence[Any], classes: Sequence[Any]) -> NDArray[np.int64]:
    """Number of the class of each label; -1 for labels that are not classes."""
    numbers = {label: index for index, label in enumerate(classes)}
    return np.array([numbers.get(label, -1) for label in labels], dtype=np.int64)


def _align(output: ModelOutputs, classes: Sequence[Any]) -> Array:
    """Columns in the order of the audited model's classes; 0 for classes that a model lacks."""
    own = _labels_of(output)
    if own == classes:
        return output.values
    if output.kind == "margins":
        raise AuditError("a reference model lacks a class: give more records of each class")
    places = _positions(own, classes)
    aligned = np.zeros((len(output.values), len(classes)))
    aligned[:, places[places >= 0]] = output.values[:, places >= 0]
    return aligned
