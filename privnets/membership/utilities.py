"""Utilities of models on test records: the value of each model, and the influence of each record.

The influence of record k on a value is its derivative with respect to the record's weight. Standard
errors follow from it (`two_way_mean`); it is exact for means and linearises the other statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from privnets.config import floor_key
from privnets.membership.estimates import two_way_mean
from privnets.statistics.estimates import Estimate
from privnets.statistics.roc import Ranking

UTILITY_MODELS: Final = 32
"""Models of a configuration whose predictions are judged by all utilities.

The choice of test records, which all models share, is then most of their error. Accuracy and mean
squared error, which cost nothing further, are those of all models.
"""

Statistic: TypeAlias = tuple[Tensor, Tensor]
"""Value of each model [J], and influence of each record on it [J, K]."""


@dataclass(frozen=True, eq=False)
class TestOutputs:
    """Predictions of J models at K test records.

    Attributes:
        y: Numbers, or indices of classes, shape [K].
        counted: Whether a record is outside the model's training set, shape [J, K].
        predicted: Number, or index of the predicted class, shape [J, K].
        log_p: Logarithm of the probability of each class, shape [J, K, C]; None for numbers.
    """

    __test__ = False  # no class of tests

    y: Tensor
    counted: Tensor
    predicted: Tensor
    log_p: Tensor | None = None

    def of_trivial_model(self, y: Tensor) -> TestOutputs:
        """The same for models that know only the targets of all records, `y` [N].

        They predict the mean; or the most frequent class, with the shares of classes as
        probabilities. As they differ by the records that count alone, a few stand for all.
        """
        counted = self.counted[:_TRIVIAL_MODELS]
        if self.log_p is None:
            return TestOutputs(self.y, counted, y.mean().expand(counted.shape))
        shares = torch.bincount(y.long(), minlength=self.log_p.shape[-1]) / len(y)
        log_p = shares.double().log().expand(*counted.shape, len(shares))
        return TestOutputs(self.y, counted, shares.argmax().expand(counted.shape), log_p)

    @property
    def utilities(self) -> Sequence[str]:
        """Names of the utilities of such predictions."""
        return tuple(_OF_NUMBERS if self.log_p is None else _OF_CLASSES)

    def statistic(self, name: str) -> Statistic | str:
        """A utility by its name, or the reason why it is undefined."""
        if name not in _MEANS and self._absent_class:
            return self._absent_class
        value, influence = (_OF_NUMBERS if self.log_p is None else _OF_CLASSES)[name](self)
        if bool(value.isfinite().all()):
            return value, influence
        return _INFINITE.get(name, "it is not finite")

    @cached_property
    def ranking(self) -> tuple[Statistic, Statistic]:
        """Area under the ROC curve and average precision, means over the scored classes."""
        areas, averages = zip(*(_ranking(self, c) for c in _scored_classes(self)), strict=True)
        return _macro(areas), _macro(averages)

    @cached_property
    def _absent_class(self) -> str:
        """Reason if the test records of a model lack a class, or have no other; else empty."""
        if self.log_p is None:
            return ""
        for label in range(self.log_p.shape[-1]):
            counts = (self.counted & (self.y == label)).sum(1)
            if lacking := int((counts == 0).sum()):
                return (
                    f"{lacking} of {len(counts)} models have no test record of class {label}, "
                    "counted from 0"
                )
        return ""


@dataclass(frozen=True)
class Utilities:
    """Utilities of the models of one configuration, and of the trivial model.

    Attributes:
        values: Means over models, by key.
        floors: Means for the trivial model, by key of the utility.
        notes: Reasons why values or floors are undefined, by key of the metric.
        failure: Reason if the user's code failed; the others are then empty.
    """

    values: Mapping[str, Estimate]
    floors: Mapping[str, Estimate]
    notes: Mapping[str, str]
    failure: str | None = None

    def __or__(self, other: Utilities) -> Utilities:
        """Utilities of both."""
        return Utilities(
            {**self.values, **other.values},
            {**self.floors, **other.floors},
            {**self.notes, **other.notes},
            self.failure or other.failure,
        )


def measure(test: TestOutputs, y: Tensor, unseen_share: float) -> Utilities:
    """Measures all utilities that are not the user's own; `y` [N] are the targets of all records.

    `unseen_share` is as in `two_way_mean`.
    """
    values, reasons = means(test, unseen_share)
    floors, unknown = means(test.of_trivial_model(y), unseen_share)
    return Utilities(values, floors, reasons | {floor_key(key): unknown[key] for key in unknown})


def mean_utility(values: Tensor, counted: Tensor, unseen_share: float) -> Estimate:
    """Mean over models and counted records of values [J, K] of all models."""
    return two_way_mean(*_mean(values, counted), counted, unseen_share)


def means(test: TestOutputs, unseen_share: float) -> tuple[dict[str, Estimate], dict[str, str]]:
    """Means of the utilities over models, and reasons for those that are undefined, by key."""
    values, reasons = {}, {}
    for name in test.utilities:
        key, statistic = f"utility/test_{name}", test.statistic(name)
        if isinstance(statistic, str):
            reasons[key] = statistic
        else:
            values[key] = two_way_mean(*statistic, test.counted, unseen_share)
    return values, reasons


def _mean(values: Tensor, counted: Tensor) -> Statistic:
    """Mean of values [J, K] over the counted records."""
    total = counted.sum(1)
    mean = torch.where(counted, values, 0.0).sum(1) / total
    return mean, torch.where(counted, values - mean[:, None], 0.0) / total[:, None]


def _ratio(numerator: Tensor, denominator: Tensor, counted: Tensor) -> Statistic:
    """Ratio of sums over the counted records."""
    total = torch.where(counted, denominator, 0.0).sum(1)
    ratio = torch.where(counted, numerator, 0.0).sum(1) / total
    influence = numerator - ratio[:, None] * denominator
    return ratio, torch.where(counted, influence, 0.0) / total[:, None]


def _balanced_accuracy(test: TestOutputs) -> Statistic:
    right = (test.predicted == test.y).double()
    return _macro([_mean(right, test.counted & (test.y == c)) for c in _all_classes(test)])


def _log_loss(test: TestOutputs) -> Statistic:
    assert test.log_p is not None
    true = test.y.long().expand(test.counted.shape)[..., None]
    return _mean(-test.log_p.gather(-1, true)[..., 0], test.counted)


def _f1(test: TestOutputs) -> Statistic:
    values = []
    for c in _scored_classes(test):
        predicted, true = (test.predicted == c).double(), (test.y == c).double()
        values.append(_ratio(2 * predicted * true, predicted + true, test.counted))
    return _macro(values)


def _r2(test: TestOutputs) -> Statistic:
    """One minus the squared error relative to that of the mean of the test records."""
    centre, _ = _mean(test.y.expand(test.counted.shape), test.counted)
    deviation = (test.y - centre[:, None]).square()
    ratio, influence = _ratio((test.predicted - test.y).square(), deviation, test.counted)
    return 1 - ratio, -influence


def _all_classes(test: TestOutputs) -> range:
    assert test.log_p is not None
    return range(test.log_p.shape[-1])


def _scored_classes(test: TestOutputs) -> range:
    """The second of two classes, which is the positive one, or all of more."""
    classes = _all_classes(test)
    return classes[1:] if len(classes) == 2 else classes


def _macro(statistics: Sequence[Statistic]) -> Statistic:
    values, influences = zip(*statistics, strict=True)
    return torch.stack(values).mean(0), sum(influences) / len(influences)


def _ranking(test: TestOutputs, label: int) -> tuple[Statistic, Statistic]:
    """Area under the ROC curve and average precision of one class against the others.

    Ties count half in the former; in the latter they share a threshold.
    """
    assert test.log_p is not None
    ranking = Ranking(test.log_p[..., label].double().cpu().numpy())
    counted = ranking.sort(test.counted.cpu().numpy())
    is_label = np.broadcast_to((test.y == label).cpu().numpy(), counted.shape)
    positive = counted & ranking.sort(is_label)
    negative = counted & ~positive
    positives, negatives = (side.sum(1, keepdims=True) for side in (positive, negative))
    # Records that score at least as high, of the class and of all.
    hits = positives - ranking.sums_below(positive)[0]
    chosen = np.maximum(hits + negatives - ranking.sums_below(negative)[0], 1)
    precision, placed = hits / chosen, ranking.placements(positive, negative)
    # A further record at a score changes the precision at all thresholds down to it.
    rises, falls = (ranking.sums_below(positive * weight / chosen)[1] for weight in (1, precision))
    area, average = (
        np.where(positive, values, 0.0).sum(1, keepdims=True) / positives
        for values in (placed, precision)
    )
    of_area = np.where(positive, placed - area, 0.0) / positives
    of_area += np.where(negative, placed - area, 0.0) / negatives
    of_average = np.where(positive, precision - average, 0.0)
    of_average += np.where(counted, positive * rises - falls, 0.0)
    influences = (ranking.restore(each) for each in (of_area, of_average / positives))
    device = test.log_p.device
    first, second = (
        (torch.from_numpy(value[:, 0]).to(device), torch.from_numpy(each).to(device))
        for value, each in zip((area, average), influences, strict=True)
    )
    return first, second


_OF_CLASSES: Final[Mapping[str, Callable[[TestOutputs], Statistic]]] = {
    "accuracy": lambda test: _mean((test.predicted == test.y).double(), test.counted),
    "balanced_accuracy": _balanced_accuracy,
    "auc": lambda test: test.ranking[0],
    "average_precision": lambda test: test.ranking[1],
    "log_loss": _log_loss,
    "f1": _f1,
}
_OF_NUMBERS: Final[Mapping[str, Callable[[TestOutputs], Statistic]]] = {
    "mse": lambda test: _mean((test.predicted - test.y).square(), test.counted),
    "mae": lambda test: _mean((test.predicted - test.y).abs(), test.counted),
    "r2": _r2,
}
_TRIVIAL_MODELS: Final = 8
_MEANS: Final = frozenset({"accuracy", "log_loss"})
_INFINITE: Final = {"log_loss": "a model gives the true class of a record the probability 0"}
