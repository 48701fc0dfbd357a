"""Utilities of the user's own: each scorer judges every model at its test records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privnets import data
from privnets.membership.config import MembershipConfig, floor_key
from privnets.membership.estimates import Mean
from privnets.membership.utilities import TestOutputs, Utilities
from privnets.scorers import (
    Answers,
    Scorer,
    ScorerError,
    load_scorers,
    trivial_answers,
    try_scorers,
)

# Groups of records that are left out in turn, and the most models that are judged without them.
_GROUPS, _MODELS = 10, 32

_Model: TypeAlias = tuple[Answers, NDArray[np.int64]]
"""Outputs of a model at its test records, and the numbers of these records."""


def try_own_utilities(config: MembershipConfig, fingerprint: str) -> None:
    """Scores the trivial model of all records, once for each state of the code and the data.

    Raises:
        UserFormError: If a scorer fails.
    """
    _try(tuple((config.metrics or {}).items()), config.data_form, fingerprint)


@lru_cache(maxsize=64)
def _try(
    metrics: tuple[tuple[str, str], ...], dataset: str | data.DataReference, _fingerprint: str
) -> None:
    y, labels = data.load(dataset).y, _labels(dataset)
    y = y if labels is None else labels[y.astype(np.int64)]
    try_scorers(dict(metrics), trivial_answers(y, labels))


def own_utilities(config: MembershipConfig, test: TestOutputs, unseen_share: float) -> Utilities:
    """Mean of each scorer over models, and its floor by the trivial model."""
    values: dict[str, Mean] = {}
    floors: dict[str, Mean] = {}
    notes: dict[str, str] = {}
    models = _judged_models(config, test) if config.metrics else []
    for scorer in load_scorers(config.metrics or {}):
        try:
            scores = [scorer(answers) for answers, _ in models]
        except ScorerError as error:
            return Utilities({}, {}, {}, str(error))
        values[scorer.key] = _mean(scores, unseen_share * _variance_of_records(scorer, models))
        trivial = [scorer.of_trivial_model(answers) for answers, _ in models]
        if np.isfinite(trivial).all():
            floors[scorer.key] = _mean(trivial, 0.0)
        else:
            notes[floor_key(scorer.key)] = "the scorer has no value for the trivial model"
    return Utilities(values, floors, notes)


def _judged_models(config: MembershipConfig, test: TestOutputs) -> list[_Model]:
    """Outputs of all models in the user's own labels or units."""
    labels, scale = _labels(config.data_form), _units(config)
    y, predicted, counted = (
        tensor.cpu().numpy() for tensor in (test.y, test.predicted, test.counted)
    )
    if test.log_p is None:
        y, predicted = scale(y), scale(predicted)
    else:
        assert labels is not None
        y, predicted = labels[y.astype(np.int64)], labels[predicted.astype(np.int64)]
    models = []
    for j, own in enumerate(counted):
        p = None if test.log_p is None else test.log_p[j].exp().cpu().numpy()[own]
        kinds = labels if p is not None else None
        models.append((Answers(y[own], predicted[j, own], kinds, p), np.flatnonzero(own)))
    return models


def _labels(dataset: str | data.DataReference) -> NDArray[Any] | None:
    """Labels of the classes, sorted; numbers from 0 for packaged data, None without classes."""
    info = data.info(dataset)
    if info.task == "regression":
        return None
    return np.array(info.labels) if info.labels else np.arange(info.classes)


def _units(config: MembershipConfig) -> Any:
    """Function that returns scaled targets to their own units."""
    if data.info(config.data_form).task != "regression":
        return lambda values: values
    y = data.load(config.data_form).y
    return lambda values: y.mean() + values * (y.std() or 1.0)


def _mean(scores: Sequence[float], variance: float) -> Mean:
    """Mean over models, with a variance that their training sets do not explain."""
    own = float(np.var(scores)) / len(scores)
    return Mean(float(np.mean(scores)), math.sqrt(own + variance))


def _variance_of_records(scorer: Scorer, models: Sequence[_Model]) -> float:
    """Variance of the mean score by the choice of records: a jackknife that drops groups.

    It is NaN, for unknown, if the scorer has no value without one of the groups.
    """
    some = models[:: math.ceil(len(models) / _MODELS)]
    means = np.zeros(_GROUPS)
    try:
        for group in range(_GROUPS):
            kept = (answers.select(record % _GROUPS != group) for answers, record in some)
            means[group] = np.mean([scorer(each) for each in kept])
    except ScorerError:
        return math.nan
    return float((_GROUPS - 1) * means.var())
