"""Attacks that learn from records of known membership how outputs of members differ.

Each is fitted to the records `ModelSignals.known`, of all audited models together, and scores every
record. `cross_fit` gives each half of some records the scores of a fit to the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from privnets.attack_formulas import share_below
from privnets.audit.model_signals import ModelSignals
from privnets.randomness import generator
from privnets.reference_models import Array, BoolArray

MIN_KNOWN: Final = 40
"""Least number of members, and of others: a quarter of the records has ten to learn from."""

MAX_TRIALS: Final = 500_000
"""Largest number of audited models times records."""

_MAX_FITTED = 20_000
# With more classes, only the largest probabilities are used, and classes have no columns.
_MAX_CLASSES = 100
_LARGEST = 10
_LEAST = 1e-7
_PRIOR_RECORDS = 5.0
_MEDIAN, _UPPER = 0.5, 0.9
# Trees of three splits, each on a third of the columns: little to fit by chance.
_TREES: Final[dict[str, Any]] = {
    "max_iter": 100,
    "max_leaf_nodes": 4,
    "max_features": 0.3,
    "l2_regularization": 1.0,
    "early_stopping": False,
    "random_state": 0,
}

Score = Callable[[ModelSignals], Array]


def split_records(member: BoolArray, seed: int) -> tuple[BoolArray, BoolArray]:
    """Two random halves of the records; each has half of the records with every membership."""
    random = generator(seed, "audit halves")
    first = np.zeros(member.shape[1], dtype=bool)
    order = random.permutation(member.shape[1])
    ranked = order[np.argsort(member[:, order].sum(0), kind="stable")]
    pairs = ranked[: len(ranked) // 2 * 2].reshape(-1, 2)
    side = random.integers(0, 2, len(pairs))
    first[pairs[np.arange(len(pairs)), side]] = True
    return first, ~first


def cross_fit(score: Score, models: ModelSignals, halves: Sequence[BoolArray]) -> Array:
    """Ranks within each half of its scores by a fit to the other half, shape [T, R].

    No score depends on memberships of its own half. Ranks make both fits comparable. Records in
    neither half have NaN.
    """
    scores = np.full(models.target_member.shape, np.nan)
    for half, other in zip(halves, reversed(halves), strict=True):
        scores[:, half] = rank(score(replace(models, known=other))[:, half])
    return scores


def rank(scores: Array) -> Array:
    """Share of all scores that are not larger, of the same shape; NaN stays NaN."""
    flat = scores.reshape(1, -1)
    return share_below(flat, flat).reshape(scores.shape)


def boosting(models: ModelSignals) -> Array:
    """Log-odds of membership by gradient boosting."""
    model = HistGradientBoostingClassifier(**_TREES, categorical_features=_categories(models))
    member, known = models.target_member, _draw(models.known_trials)
    return _fit(model.fit, model.decision_function, models, _trees_see, member, known)


def logistic(models: ModelSignals) -> Array:
    """Log-odds of membership by logistic regression, with a slope for each class."""
    model = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky"))
    member, known = models.target_member, _draw(models.known_trials)
    return _fit(model.fit, model.decision_function, models, _logistic_sees, member, known)


def class_thresholds(models: ModelSignals) -> Array:
    """Signal standardised by known non-members of its class, which shrink towards all."""
    signal, labels = models.signal[models.targets], models.true_labels
    others = models.known_trials & ~models.target_member
    values, classes = signal[others], np.broadcast_to(labels, signal.shape)[others]
    size = int(labels.max()) + 1
    count = np.bincount(classes, minlength=size) + _PRIOR_RECORDS
    total = np.bincount(classes, values, size)
    mean = (total + _PRIOR_RECORDS * values.mean()) / count
    squares = np.bincount(classes, np.square(values - mean[classes]), size)
    spread = np.sqrt((squares + _PRIOR_RECORDS * values.var()) / count)
    scores: Array = (signal - mean[labels]) / np.maximum(spread[labels], _LEAST)
    return scores


def quantile_regression(models: ModelSignals) -> Array:
    """Signal beside the quantiles of non-members of the class with such other outputs."""
    signal = models.signal[models.targets]
    others = _draw(models.known_trials & ~models.target_member)
    middle, upper = (
        _fit(model.fit, model.predict, models, _context, signal, others)
        for model in (
            HistGradientBoostingRegressor(
                loss="quantile", quantile=q, **_TREES, categorical_features=_categories(models)
            )
            for q in (_MEDIAN, _UPPER)
        )
    )
    return (signal - middle) / np.maximum(upper - middle, _LEAST)


def _fit(
    fit: Callable[[Array, Any], object],
    answer: Callable[[Array], Array],
    models: ModelSignals,
    see: Callable[[ModelSignals, int], Array],
    y: Any,
    trials: BoolArray,
) -> Array:
    """Answers for all trials of a model that is fitted to some, shape [T, R].

    Args:
        see: Columns of one audited model.
        y: What is predicted, shape [T, R].
    """
    targets = models.targets.tolist()
    # Threads would wait for each other longer than trees as small as these take.
    with threadpool_limits(1):
        fit(
            np.concatenate([see(models, t)[r] for t, r in zip(targets, trials, strict=True)]),
            y[trials],
        )
        return np.stack([answer(see(models, t)) for t in targets])


def _draw(trials: BoolArray) -> BoolArray:
    """At most 20,000 of some trials."""
    found = np.flatnonzero(trials)
    if len(found) > _MAX_FITTED:
        found = generator(0, "fitted trials").choice(found, _MAX_FITTED, replace=False)
    drawn = np.zeros(trials.size, dtype=bool)
    drawn[found] = True
    return drawn.reshape(trials.shape)


def _categories(models: ModelSignals) -> list[int] | None:
    """Number of the column of classes, if they are few enough to be told apart."""
    labels = models.labels
    return None if labels is None or labels.max() >= _MAX_CLASSES else [0]


def _trees_see(models: ModelSignals, target: int) -> Array:
    labels = () if models.labels is None else (models.labels,)
    return np.column_stack([*labels, *_outputs(models, target)])


def _logistic_sees(models: ModelSignals, target: int) -> Array:
    columns = _outputs(models, target)
    if not _categories(models):
        return np.column_stack(columns)
    classes = np.eye(int(models.true_labels.max()) + 1)[models.true_labels]
    return np.column_stack([*columns, classes, classes * models.signal[target][:, None]])


def _outputs(models: ModelSignals, target: int) -> list[Array]:
    """Signals, margin over the largest other class, and probabilities in both orders."""
    columns = [models.signal[target]]
    for values in models.values.values():
        finite = values[target][np.isfinite(values[target])]
        columns.append(np.clip(values[target], finite.min(initial=0.0), finite.max(initial=0.0)))
    if models.probabilities is not None:
        logs = np.log(np.maximum(models.probabilities[target], _LEAST))
        columns += _both_orders(logs)
        rows, labels = np.arange(len(logs)), models.true_labels
        others = logs.copy()
        others[rows, labels] = -np.inf
        columns.append(logs[rows, labels] - others.max(1))
    return columns


def _context(models: ModelSignals, target: int) -> Array:
    """Classes, and the shares of the other classes in the rest of the probability."""
    labels = models.true_labels
    if models.probabilities is None:
        return labels[:, None].astype(float)
    others = models.probabilities[target].copy()
    others[np.arange(len(labels)), labels] = 0.0
    shares = others / np.maximum(others.sum(1, keepdims=True), _LEAST)
    return np.column_stack([labels, *_both_orders(np.log(np.maximum(shares, _LEAST)))])


def _both_orders(logs: Array) -> list[Array]:
    """Columns by class, if there are few, and sorted from the largest."""
    ordered = -np.sort(-logs, axis=1)
    if logs.shape[1] > _MAX_CLASSES:
        return list(ordered[:, :_LARGEST].T)
    return [*logs.T, *ordered.T]
