"""Utilities of the user: scorers of scikit-learn by name, and functions of the user's own."""

from __future__ import annotations

import difflib
import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer, get_scorer_names

from privnets.data import UserFormError
from privnets.data.user_files import describe_error, import_object, source_digest

_FORMS = (
    "a function (y_true, y_pred) of targets and predictions, a function (y_true, y_prob) of "
    "targets and probabilities [records, classes], or a scorer (estimator, X, y)"
)


class ScorerError(Exception):
    """Raised when a scorer fails, or returns no finite number; the message has file and line."""


@dataclass(frozen=True, eq=False)
class Answers:
    """Outputs of one model at n records.

    Attributes:
        y: Targets as the user knows them: labels of classes, or numbers in their own units, [n].
        predicted: Predictions of the same kind, shape [n].
        labels: All classes, sorted; None for numbers.
        p: Probability of each class, shape [n, C]; None for numbers.
    """

    y: NDArray[Any]
    predicted: NDArray[Any]
    labels: NDArray[Any] | None = None
    p: NDArray[np.float64] | None = None

    def select(self, rows: NDArray[np.bool_]) -> Answers:
        """The outputs at some of the records."""
        p = None if self.p is None else self.p[rows]
        return Answers(self.y[rows], self.predicted[rows], self.labels, p)


def trivial_answers(y: NDArray[Any], labels: NDArray[Any] | None) -> Answers:
    """Outputs of a model that knows only the targets: the most frequent class, or the mean.

    Its probabilities are the shares of the classes.
    """
    if labels is None:
        return Answers(y, np.full(len(y), y.mean()))
    shares = (y[:, None] == labels).mean(0)
    predicted = np.repeat(labels[shares.argmax()], len(y))
    return Answers(y, predicted, labels, np.tile(shares, (len(y), 1)))


Score: TypeAlias = Callable[[Answers], object]


class _KnownAnswers(BaseEstimator):  # type: ignore[misc]
    """Estimator of a scorer; its records are their positions."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        if answers.labels is not None:
            self.classes_ = answers.labels

    def predict(self, x: NDArray[np.int64]) -> NDArray[Any]:
        """Predictions."""
        return self.answers.predicted[x[:, 0]]


class _Classifier(ClassifierMixin, _KnownAnswers):  # type: ignore[misc]
    def predict_proba(self, x: NDArray[np.int64]) -> NDArray[np.float64]:
        """Probability of each class."""
        assert self.answers.p is not None
        return self.answers.p[x[:, 0]]


class _Regressor(RegressorMixin, _KnownAnswers):  # type: ignore[misc]
    pass


@dataclass(frozen=True, eq=False)
class Scorer:
    """A utility of the user.

    Attributes:
        key: Metric, such as `utility/cost`.
        location: Name of a scorer of scikit-learn, or import path of a function or a scorer.
    """

    key: str
    location: str
    score: Score

    @classmethod
    def load(cls, key: str, location: str) -> Scorer:
        """Finds a scorer by its name, or imports it.

        Raises:
            UserFormError: If it is unknown, cannot be imported, or takes other arguments.
        """
        field = f"metrics.{key}"
        if ":" not in location:
            return cls(key, location, _by_estimator(_named_scorer(location, field)))
        function = import_object(location, field)
        try:
            first, second, *_ = inspect.signature(function).parameters  # type: ignore[arg-type]
        except (TypeError, ValueError):
            first = second = ""
        if first == "estimator":
            return cls(key, location, _by_estimator(function))
        called: Any = function
        if second == "y_pred":
            return cls(key, location, lambda answers: called(answers.y, answers.predicted))
        if second == "y_prob":
            return cls(key, location, lambda answers: called(answers.y, answers.p))
        raise UserFormError(field, f"{location!r}, which takes other arguments", _FORMS)

    def __call__(self, answers: Answers) -> float:
        """Scores a model.

        Raises:
            ScorerError: If the user's code fails, or returns no finite number.
        """
        try:
            value = float(self.score(answers))  # type: ignore[arg-type]
        except Exception as error:  # any exception of the user's code
            raise ScorerError(
                f"{self.key}: {self.location} fails: {describe_error(error)}"
            ) from error
        if not math.isfinite(value):
            raise ScorerError(f"{self.key}: {self.location} returned {value} for a model")
        return value

    def of_trivial_model(self, answers: Answers) -> float:
        """Score of the trivial model; NaN where it has none."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            try:
                return self(trivial_answers(answers.y, answers.labels))
            except ScorerError:
                return math.nan


def load_scorers(metrics: Mapping[str, str]) -> list[Scorer]:
    """Loads all scorers of a study.

    Raises:
        UserFormError: With every mistake.
    """
    scorers, errors = [], []
    for key, location in metrics.items():
        try:
            scorers.append(Scorer.load(key, location))
        except UserFormError as error:
            errors.append(error)
    if errors:
        errors[0].others += tuple(errors[1:])
        raise errors[0]
    return scorers


def scorer_digests(metrics: Mapping[str, str]) -> list[str]:
    """Identifies the code of all scorers, so that changed code is another point.

    Raises:
        UserFormError: If a scorer cannot be loaded.
    """
    sources = {
        scorer: source_digest(scorer.location, f"metrics.{scorer.key}")
        if ":" in scorer.location
        else f"scikit-learn {version('scikit-learn')}"
        for scorer in load_scorers(metrics)
    }
    return [f"{each.key} {each.location} {source}" for each, source in sources.items()]


def try_scorers(metrics: Mapping[str, str], answers: Answers) -> None:
    """Scores answers once, such as trivial ones, so that most mistakes show before training.

    Raises:
        UserFormError: If a scorer fails.
    """
    for scorer in load_scorers(metrics):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndefinedMetricWarning)
                float(scorer.score(answers))  # type: ignore[arg-type]
        except Exception as error:  # any exception of the user's code
            given = f"{scorer.location!r}, which fails: {describe_error(error)}"
            expected = "a scorer that returns a number for these targets"
            raise UserFormError(f"metrics.{scorer.key}", given, expected) from error


def _named_scorer(name: str, field: str) -> object:
    if name in get_scorer_names():
        return get_scorer(name)
    close = difflib.get_close_matches(name, get_scorer_names(), n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    expected = f"a scorer of scikit-learn, as balanced_accuracy, or module:function{hint}"
    raise UserFormError(field, repr(name), expected)


def _by_estimator(scorer: Any) -> Score:
    def score(answers: Answers) -> object:
        estimator = (_Regressor if answers.labels is None else _Classifier)(answers)
        return scorer(estimator, np.arange(len(answers.y))[:, None], answers.y)

    return score
