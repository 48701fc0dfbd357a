"""Utilities of the user's own: each scorer judges every model at its test records."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privnets import data
from privnets.config import floor_key
from privnets.membership.config import MembershipConfig
from privnets.membership.models import predicts_classes
from privnets.membership.utilities import TestOutputs, Utilities
from privnets.references.scorers import (
    NO_FLOOR,
    Answers,
    JudgedModel,
    ScorerError,
    score_models,
    try_scorers,
)
from privnets.statistics.estimates import Estimate


def try_own_utilities(config: MembershipConfig, fingerprint: str) -> None:
    """Scores the trivial model of all records, once for each state of the code and the data.

    Raises:
        UserFormError: If a scorer fails.
    """
    metrics = tuple((config.metrics or {}).items())
    _try(metrics, config.data_form, predicts_classes(config), fingerprint)


@lru_cache(maxsize=64)
def _try(
    metrics: tuple[tuple[str, str], ...],
    dataset: str | data.DataReference,
    classifies: bool,
    _fingerprint: str,
) -> None:
    try_scorers(dict(metrics), *_known_targets(dataset, classifies))


def own_utilities(config: MembershipConfig, test: TestOutputs, unseen_share: float) -> Utilities:
    """Mean of each scorer over models, and its floor by the trivial model."""
    known, labels = _known_targets(config.data_form, predicts_classes(config))
    y, predicted, counted = (
        tensor.cpu().numpy() for tensor in (test.y, test.predicted, test.counted)
    )
    if data.info(config.data_form).task == "regression":  # models see mean 0 and variance 1
        mean, deviation = float(known.mean()), float(known.std()) or 1.0
        y, predicted = (mean + deviation * each for each in (y, predicted))
    elif labels is not None:
        y, predicted = labels[y.astype(np.int64)], labels[predicted.astype(np.int64)]
    models: list[JudgedModel] = []
    for j, own in enumerate(counted):
        p = None if test.log_p is None else test.log_p[j].exp().cpu().numpy()[own]
        models.append((Answers(y[own], predicted[j, own], labels, p), np.flatnonzero(own)))
    try:
        scores = score_models(config.metrics or {}, models, known, unseen_share)
    except ScorerError as error:
        return Utilities({}, {}, {}, str(error))
    values, floors = ({key: Estimate(*score) for key, score in each.items()} for each in scores)
    notes = {floor_key(key): NO_FLOOR for key in values if key not in floors}
    return Utilities(values, floors, notes)


def _known_targets(
    dataset: str | data.DataReference, classifies: bool
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Targets of all records as the user knows them, and all classes, sorted; None for numbers.

    Classes of packaged data are numbers from 0. A model that predicts a number for two classes
    learns 0 and 1.
    """
    y, info = data.load(dataset).y, data.info(dataset)
    if not classifies:
        return y, None
    labels = np.array(info.labels) if info.labels else np.arange(info.classes)
    return labels[y.astype(np.int64)], labels
