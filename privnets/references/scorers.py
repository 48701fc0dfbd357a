"""Utilities of the user: scorers of scikit-learn by name, and functions of the user's own."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer, get_scorer_names

from privnets.config import did_you_mean
from privnets.data import UserFormError, raise_together
from privnets.references.user_files import describe_error, import_object, source_digest

_FORMS = (
    "a function (y_true, y_pred) of targets and predictions, a function (y_true, y_prob) of "
    "targets and probabilities [records, classes], or a scorer (estimator, X, y)"
)


NO_FLOOR = "the scorer has no value for the trivial model"
"""Note where `score_models` has no value of the trivial model."""

# Groups of origins that are left out in turn, and the most models that are judged without them.
# With fewer groups, intervals of normal quantiles would be too short.
_GROUPS, _MODELS = 40, 8


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


def trivial_answers(known: NDArray[Any], answers: Answers) -> Answers:
    """Outputs, at the same records, of a model that knows only the targets `known` [N].

    It answers the mean; or the most frequent class, with the shares of classes as probabilities.
    """
    y, labels = answers.y, answers.labels
    if labels is None:
        return replace(answers, predicted=np.full(len(y), known.mean()))
    shares = (known[:, None] == labels).mean(0)
    predicted = np.repeat(labels[shares.argmax()], len(y))
    return replace(answers, predicted=predicted, p=np.tile(shares, (len(y), 1)))


JudgedModel: TypeAlias = tuple[Answers, NDArray[np.int64]]
"""Outputs of a model, and the number of each record's origin: those of one origin depend."""
ScoreAndError: TypeAlias = tuple[float, float]
"""Score and its standard error."""
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
            if location in get_scorer_names():
                return cls(key, location, _by_estimator(get_scorer(location)))
            hint = did_you_mean(location, get_scorer_names())
            expected = f"a scorer of scikit-learn, as balanced_accuracy, or module:function{hint}"
            raise UserFormError(field, repr(location), expected)
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
    raise_together(errors)
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


def try_scorers(
    metrics: Mapping[str, str], known: NDArray[Any], labels: NDArray[Any] | None
) -> None:
    """Scores the trivial model once, so that most mistakes show before training.

    Args:
        known: Targets of all records.
        labels: All classes, sorted; None for numbers.

    Raises:
        UserFormError: If a scorer fails.
    """
    answers = trivial_answers(known, Answers(known, known, labels))
    for scorer in load_scorers(metrics):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndefinedMetricWarning)
                float(scorer.score(answers))  # type: ignore[arg-type]
        except Exception as error:  # any exception of the user's code
            given = f"{scorer.location!r}, which fails: {describe_error(error)}"
            expected = "a scorer that returns a number for these targets"
            raise UserFormError(f"metrics.{scorer.key}", given, expected) from error


def score_models(
    metrics: Mapping[str, str],
    models: Sequence[JudgedModel],
    known: NDArray[Any],
    unseen_share: float = 1.0,
) -> tuple[dict[str, ScoreAndError], dict[str, ScoreAndError]]:
    """Mean score of models by each scorer, and that of the trivial model, by key.

    The latter is absent where a scorer has no value for it.

    Args:
        known: Targets that the trivial model knows.
        unseen_share: Share of the population that was not tested, in [0, 1].

    Raises:
        ScorerError: If a scorer fails for a model.
    """
    values, floors = {}, {}
    trivial = [(trivial_answers(known, answers), origin) for answers, origin in models]
    for scorer in load_scorers(metrics):
        values[scorer.key] = _mean_score(scorer, models, unseen_share)
        with warnings.catch_warnings(), suppress(ScorerError):
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            floors[scorer.key] = _mean_score(scorer, trivial, unseen_share)
    return values, floors


def _mean_score(scorer: Scorer, models: Sequence[JudgedModel], unseen: float) -> ScoreAndError:
    scores = [scorer(answers) for answers, _ in models]
    variance = float(np.var(scores)) / len(scores) + unseen * _variance_of_records(scorer, models)
    return float(np.mean(scores)), math.sqrt(variance)


def _variance_of_records(scorer: Scorer, models: Sequence[JudgedModel]) -> float:
    """Variance of the mean score by the choice of records: a jackknife that drops random groups.

    It is NaN, for unknown, if the scorer has no value without one of the groups.
    """
    some = models[:: math.ceil(len(models) / _MODELS)]
    origins = np.unique(np.concatenate([origin for _, origin in some]))
    count = min(_GROUPS, len(origins))
    # A random order, because classes may be sorted or periodic.
    group_of = np.random.default_rng(0).permutation(len(origins)) % count
    groups = [group_of[np.searchsorted(origins, origin)] for _, origin in some]
    scores = np.zeros((len(some), count))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            for group in range(count):
                for j, ((answers, _), own) in enumerate(zip(some, groups, strict=True)):
                    scores[j, group] = scorer(answers.select(own != group))
    except ScorerError:
        return math.nan
    covariance = (count - 1) * np.atleast_2d(np.cov(scores, bias=True))
    if len(some) == len(models):
        return float(covariance.mean())
    # The other models vary, and depend on each other, as these do.
    single = covariance.trace() / len(some)
    pairs = len(some) * (len(some) - 1)
    shared = (covariance.sum() - covariance.trace()) / pairs
    return max(0.0, float(shared + (single - shared) / len(models)))


def _by_estimator(scorer: Any) -> Score:
    def score(answers: Answers) -> object:
        estimator = (_Regressor if answers.labels is None else _Classifier)(answers)
        return scorer(estimator, np.arange(len(answers.y))[:, None], answers.y)

    return score
