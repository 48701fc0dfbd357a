"""Attackers from scikit-learn: boosted trees, nearest neighbours and a linear model.

Sizes were chosen on raw AMNIST thickness with 11,427 training images. Boosted trees lose two
points of balanced accuracy on 64 principal components against pixels; so they get pixels, and a
tenth of them at each split. Nearest neighbours lose nothing there and are eight times as fast.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import sklearn.linear_model
from numpy.typing import NDArray
from scipy.spatial import KDTree
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors as NeighbourIndex

from privnets.adversarial.attackers.attacker import (
    Matrix,
    Posterior,
    ReleaseAttacker,
    ReleaseView,
    Tables,
)
from privnets.adversarial.attackers.convergence import CONVERGED_GAIN
from privnets.adversarial.problem import class_frequencies
from privnets.randomness import generator

Probabilities = NDArray[np.float64]

MAX_TREE_COLUMNS = 4
"""Columns up to which a search tree beats comparing all pairs; measured with 8,192 records."""

_SMALLEST_PROBABILITY = 1e-12
_MIN_DRAW_GAIN = 1e-3  # nats of validation loss that twice as many releases must gain
_SPLIT_COLUMNS = 80  # among which a split of a tree chooses
_TREES, _IMAGE_TREES = 300, 150
_MAX_CLASS_TREES = 3_000  # over all classes; each iteration fits a tree per class
_TREE_RATE, _IMAGE_TREE_RATE = 0.1, 0.2
_PATIENCE = 10  # trees without gain before training stops
_NEIGHBOURS = (1, 3, 7, 15, 31, 63, 127, 255, 511)
_MAX_NEIGHBOUR_RECORDS = 65_536
_COMPONENTS = 64
_INVERSE_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_ITERATIONS = 500


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A model of tables: class probabilities [n, C] on validation, and on test when called for.

    `remaining_gain` is that of `Posterior`.
    """

    validation: Probabilities
    predict_test: Callable[[], Probabilities]
    remaining_gain: float = 0.0


class TableAttacker(ReleaseAttacker):
    """An attacker that learns from the release as tables, of at most `most_draws` per record."""

    most_draws: ClassVar[int] = 64

    def fit(self, view: ReleaseView, seed: int) -> Posterior:
        """Trains on as many releases of each record as improve validation, doubling their number.

        See `ReleaseAttacker.fit`.
        """
        name = self.metric_name(view)
        purpose = f"attacker:{name}"
        best, draws = self.train(view.tables, generator(seed, purpose)), 1
        most = min(view.most_draws, self.most_draws)
        truth = view.tables.validation.rows.secret
        while 2 * draws <= most:
            model = self.train(view.redrawn(2 * draws), generator(seed, purpose))
            gain = _loss(best.validation, truth) - _loss(model.validation, truth)
            if gain > 0:
                best, draws = model, 2 * draws
            if gain < _MIN_DRAW_GAIN:
                break
        return replace(_posterior(name, best), draws=draws, is_frozen=most < 2)

    def fit_tables(self, name: str, tables: Tables, seed: int) -> Posterior:
        """Trains on the attack part, where every class occurs, and tunes on validation.

        `name` is that of the posterior and of its random draws.
        """
        return _posterior(name, self.train(tables, generator(seed, f"attacker:{name}")))

    @abstractmethod
    def train(self, tables: Tables, random: np.random.Generator) -> FittedModel:
        """Trains on the attack part and tunes on validation."""


class BoostedTrees(TableAttacker):
    """Gradient-boosted trees, stopped when validation loss stops falling."""

    name: ClassVar[str] = "boosted_trees"
    most_draws: ClassVar[int] = 8

    def train(self, tables: Tables, random: np.random.Generator) -> FittedModel:
        """Fits trees on all columns; see `TableAttacker.train`."""
        attack, validation = tables.attack, tables.validation
        trees = _IMAGE_TREES if tables.is_image else _TREES
        classes = int(attack.rows.secret.max()) + 1
        model = HistGradientBoostingClassifier(
            learning_rate=_IMAGE_TREE_RATE if tables.is_image else _TREE_RATE,
            max_iter=min(trees, max(_PATIENCE, _MAX_CLASS_TREES // classes)),
            max_features=min(1.0, _SPLIT_COLUMNS / attack.x.shape[1]),
            early_stopping=True,
            n_iter_no_change=_PATIENCE,
            random_state=int(random.integers(2**31)),
        )
        model.fit(attack.x, attack.rows.secret, X_val=validation.x, y_val=validation.rows.secret)
        scores = model.validation_score_
        gain = scores[-1] - scores[3 * len(scores) // 4]
        converged = model.n_iter_ < model.max_iter or gain < CONVERGED_GAIN
        return FittedModel(
            model.predict_proba(validation.x),
            partial(model.predict_proba, tables.test.x),
            0.0 if converged else float(scores[-1] - scores[len(scores) // 2]),
        )


class NearestNeighbours(TableAttacker):
    """Class shares among the k nearest records, k chosen by validation loss."""

    name: ClassVar[str] = "nearest_neighbours"

    def train(self, tables: Tables, random: np.random.Generator) -> FittedModel:
        """Chooses the number of neighbours on scaled columns; see `TableAttacker.train`."""
        attack, validation, test = _scale_columns(tables)
        if tables.is_image:
            components = min(_COMPONENTS, *attack.shape)
            pca = PCA(components, svd_solver="covariance_eigh").fit(attack)
            attack, validation, test = map(pca.transform, (attack, validation, test))
        # Records are in the order of their classes, which must not decide between equal distances.
        chosen = random.permutation(len(attack))[:_MAX_NEIGHBOUR_RECORDS]
        attack, secret = attack[chosen], tables.attack.rows.secret[chosen]
        counts = [k for k in _NEIGHBOURS if k <= len(attack)]
        near = secret[nearest_records(attack, validation, counts[-1])]
        prior = class_frequencies(secret, int(tables.attack.rows.secret.max()) + 1)
        truth = tables.validation.rows.secret
        best = min(counts, key=lambda k: _loss(_shares(near[:, :k], prior), truth))

        def predict_test() -> Probabilities:
            return _shares(secret[nearest_records(attack, test, best)], prior)

        return FittedModel(_shares(near[:, :best], prior), predict_test)


class LogisticRegression(TableAttacker):
    """A linear model, its penalty chosen by validation loss."""

    name: ClassVar[str] = "logistic_regression"

    def train(self, tables: Tables, random: np.random.Generator) -> FittedModel:
        """Fits a linear model on scaled columns; see `TableAttacker.train`."""
        attack, validation, test = _scale_columns(tables)
        truth = tables.validation.rows.secret
        models = [
            _fit_linear(attack, tables.attack.rows.secret, inverse_penalty)
            for inverse_penalty in _INVERSE_PENALTIES
        ]
        best = min(models, key=lambda model: _loss(model.predict_proba(validation), truth))
        beliefs, gain = best.predict_proba(validation), 0.0
        if int(best.n_iter_.max()) >= _ITERATIONS:
            half = _fit_linear(attack, tables.attack.rows.secret, best.C, _ITERATIONS // 2)
            gain = _loss(half.predict_proba(validation), truth) - _loss(beliefs, truth)
        return FittedModel(beliefs, partial(best.predict_proba, test), max(gain, 0.0))


def nearest_records(records: Matrix, x: Matrix, count: int) -> NDArray[np.int64]:
    """Indices [m, count] of the records [n, f] nearest to each row of `x` [m, f], exactly.

    Distance is Euclidean; the nearest comes first.
    """
    if records.shape[1] <= MAX_TREE_COLUMNS:
        places = KDTree(records).query(x, k=np.arange(1, count + 1))[1]
    else:
        index = NeighbourIndex(n_neighbors=count, algorithm="brute").fit(records)
        places = index.kneighbors(x, return_distance=False)
    return np.asarray(places, dtype=np.int64)


def _fit_linear(
    x: Matrix, secret: NDArray[np.int64], inverse_penalty: float, iterations: int = _ITERATIONS
) -> sklearn.linear_model.LogisticRegression:
    model = sklearn.linear_model.LogisticRegression(C=inverse_penalty, max_iter=iterations)
    with warnings.catch_warnings():  # the caller reads the number of iterations
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, secret)
    return model


def _scale_columns(tables: Tables) -> tuple[Matrix, Matrix, Matrix]:
    """Columns with mean 0 and variance 1 on the attack split; pixels share one variance."""
    x = tables.attack.x
    mean = x.mean(0, dtype=np.float64).astype(np.float32)
    variance = np.square(x - mean).mean(None if tables.is_image else 0, dtype=np.float64)
    std = np.sqrt(np.where(variance > 0, variance, 1)).astype(np.float32)
    attack, validation, test = (
        (part.x - mean) / std for part in (tables.attack, tables.validation, tables.test)
    )
    return attack, validation, test


def _posterior(name: str, model: FittedModel) -> Posterior:
    validation, test = _log(model.validation), _log(model.predict_test())
    return Posterior(name, validation, test, model.remaining_gain)


def _shares(classes: NDArray[np.int64], prior: Probabilities) -> Probabilities:
    """Class shares among neighbours [n, k] and one more that is distributed as the prior."""
    counts = np.stack([(classes == c).sum(1) for c in range(len(prior))], axis=1)
    shares: Probabilities = (counts + prior) / (classes.shape[1] + 1)
    return shares


def _loss(probability: Probabilities, secret: NDArray[np.int64]) -> float:
    """Mean cross-entropy, nats."""
    return -float(_log(probability)[np.arange(len(secret)), secret].mean())


def _log(probability: Probabilities) -> Probabilities:
    log: Probabilities = np.log(np.maximum(probability.astype(np.float64), _SMALLEST_PROBABILITY))
    return log
