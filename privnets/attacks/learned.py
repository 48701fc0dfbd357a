"""Attacks that learn from records of known membership how outputs of members differ.

Each is fitted to the records `SavedOutputs.known`, of all judged models together, and scores every
record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from privnets.attacks.base import Attack
from privnets.attacks.view import Array, AttackerView, BoolArray, SavedOutputs, margins
from privnets.randomness import generator

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

_SHOKRI = "after Shokri et al., IEEE S&P 2017, arXiv 1610.05820"


class LearnedAttack(Attack):
    """Base class of attacks that are fitted to saved outputs of known membership."""

    family = "learned"
    paper = _SHOKRI

    def why_unavailable(self, view: AttackerView) -> str | None:
        """There must be classes, and enough records of both kinds, but not too many trials."""
        return why_nothing_to_learn(view.outputs)


class Boosting(LearnedAttack):
    """Log-odds of membership by gradient boosting."""

    name = "boosting"

    def score(self, view: AttackerView) -> Array:
        """Log-odds of membership."""
        outputs = _outputs(view)
        model = HistGradientBoostingClassifier(**_TREES, categorical_features=_categories(outputs))

        def see(target: int) -> Array:
            return np.column_stack([_labels(outputs), *_columns(view, outputs, target)])

        fitted = _draw(_known(outputs))
        return _fit(model.fit, model.decision_function, see, outputs.member, fitted)


class LogisticAttack(LearnedAttack):
    """Log-odds of membership by logistic regression, with a slope for each class."""

    name = "logistic"

    def score(self, view: AttackerView) -> Array:
        """Log-odds of membership."""
        outputs = _outputs(view)
        model = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky"))

        def see(target: int) -> Array:
            columns, labels = _columns(view, outputs, target), _labels(outputs)
            if not _categories(outputs):
                return np.column_stack(columns)
            classes = np.eye(int(labels.max()) + 1)[labels]
            return np.column_stack([*columns, classes, classes * view.signal[target][:, None]])

        fitted = _draw(_known(outputs))
        return _fit(model.fit, model.decision_function, see, outputs.member, fitted)


class ClassThresholds(LearnedAttack):
    """Signal standardised by known non-members of its class, which shrink towards all."""

    name = "class_thresholds"
    paper = "Song and Mittal, USENIX Security 2021, arXiv 2003.10595"

    def score(self, view: AttackerView) -> Array:
        """Standardised signal."""
        outputs = _outputs(view)
        signal, labels = view.signal, _labels(outputs)
        others = _known(outputs) & ~outputs.member
        values, classes = signal[others], np.broadcast_to(labels, signal.shape)[others]
        size = int(labels.max()) + 1
        count = np.bincount(classes, minlength=size) + _PRIOR_RECORDS
        total = np.bincount(classes, values, size)
        mean = (total + _PRIOR_RECORDS * values.mean()) / count
        squares = np.bincount(classes, np.square(values - mean[classes]), size)
        spread = np.sqrt((squares + _PRIOR_RECORDS * values.var()) / count)
        scores: Array = (signal - mean[labels]) / np.maximum(spread[labels], _LEAST)
        return scores


def why_nothing_to_learn(outputs: SavedOutputs | None) -> str | None:
    """Reason why no attack can learn from saved outputs, or None."""
    if outputs is None or outputs.labels is None:
        return "it needs the true classes"
    member = outputs.member
    if min(member.sum(1).min(), (~member).sum(1).min()) < MIN_KNOWN:
        return f"it needs at least {MIN_KNOWN} members and {MIN_KNOWN} others"
    if member.size > MAX_TRIALS:
        return f"more than {MAX_TRIALS:,} trials; name one model as the target"
    return None


def exceedance_of_outputs(view: AttackerView, outputs: SavedOutputs) -> Array:
    """Signal beside the quantiles of non-members of the class with such other outputs."""
    others, labels = _draw(_known(outputs) & ~outputs.member), _labels(outputs)

    def see(target: int) -> Array:
        """Classes, and the shares of the other classes in the rest of the probability."""
        if outputs.probabilities is None:
            return labels[:, None].astype(float)
        rest = outputs.probabilities[target].copy()
        rest[np.arange(len(labels)), labels] = 0.0
        shares = rest / np.maximum(rest.sum(1, keepdims=True), _LEAST)
        return np.column_stack([labels, *_both_orders(np.log(np.maximum(shares, _LEAST)))])

    middle, upper = (
        _fit(model.fit, model.predict, see, view.signal, others)
        for model in (
            HistGradientBoostingRegressor(
                loss="quantile", quantile=q, **_TREES, categorical_features=_categories(outputs)
            )
            for q in (_MEDIAN, _UPPER)
        )
    )
    return (view.signal - middle) / np.maximum(upper - middle, _LEAST)


def _fit(
    fit: Callable[[Array, Any], object],
    answer: Callable[[Array], Array],
    see: Callable[[int], Array],
    y: Any,
    trials: BoolArray,
) -> Array:
    """Answers for all trials of a model that is fitted to some, shape [T, R].

    Args:
        see: Columns of one judged model, by its number.
        y: What is predicted, shape [T, R].
    """
    # Threads would wait for each other longer than trees as small as these take.
    with threadpool_limits(1):
        fit(np.concatenate([see(t)[rows] for t, rows in enumerate(trials)]), y[trials])
        return np.stack([answer(see(t)) for t in range(len(trials))])


def _draw(trials: BoolArray) -> BoolArray:
    """At most 20,000 of some trials."""
    found = np.flatnonzero(trials)
    if len(found) > _MAX_FITTED:
        found = generator(0, "fitted trials").choice(found, _MAX_FITTED, replace=False)
    drawn = np.zeros(trials.size, dtype=bool)
    drawn[found] = True
    return drawn.reshape(trials.shape)


def _known(outputs: SavedOutputs) -> BoolArray:
    """Trials of the records of known membership, shape [T, R]."""
    return np.broadcast_to(outputs.known, outputs.member.shape)


def _outputs(view: AttackerView) -> SavedOutputs:
    assert view.outputs is not None  # by `why_unavailable`
    return view.outputs


def _labels(outputs: SavedOutputs) -> NDArray[np.int64]:
    assert outputs.labels is not None  # by `why_unavailable`
    return outputs.labels


def _categories(outputs: SavedOutputs) -> list[int] | None:
    """Number of the column of classes, if they are few enough to be told apart."""
    labels = outputs.labels
    return None if labels is None or labels.max() >= _MAX_CLASSES else [0]


def _columns(view: AttackerView, outputs: SavedOutputs, target: int) -> list[Array]:
    """Signals, margin over the largest other class, and probabilities in both orders."""
    columns = [view.signal[target]]
    for values in outputs.values.values():
        finite = values[target][np.isfinite(values[target])]
        columns.append(np.clip(values[target], finite.min(initial=0.0), finite.max(initial=0.0)))
    if outputs.probabilities is not None:
        logs = np.log(np.maximum(outputs.probabilities[target], _LEAST))
        columns += _both_orders(logs)
        columns.append(margins(logs, _labels(outputs)))
    return columns


def _both_orders(logs: Array) -> list[Array]:
    """Columns by class, if there are few, and sorted from the largest."""
    ordered = -np.sort(-logs, axis=1)
    if logs.shape[1] > _MAX_CLASSES:
        return list(ordered[:, :_LARGEST].T)
    return [*logs.T, *ordered.T]
