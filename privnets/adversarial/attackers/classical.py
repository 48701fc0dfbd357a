"""Attackers from scikit-learn: boosted trees, nearest neighbours and a linear model.

Sizes were chosen on raw AMNIST thickness with 11,427 training images. Boosted trees lose two
points of balanced accuracy on 64 principal components against pixels; so they get pixels, and a
tenth of them at each split. Nearest neighbours lose nothing there and are eight times as fast.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
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
from privnets.adversarial.records import class_frequencies
from privnets.randomness import generator

Probabilities = NDArray[np.float64]
Prediction = tuple[Probabilities, Probabilities, bool]
"""Class probabilities [n, C] on validation and test, and whether training converged."""

MAX_TREE_COLUMNS = 4
"""Columns up to which a search tree beats comparing all pairs; measured with 8,192 records."""

_SMALLEST_PROBABILITY = 1e-12
_SPLIT_COLUMNS = 80  # among which a split of a tree chooses
_TREES, _IMAGE_TREES = 300, 150
_TREE_RATE, _IMAGE_TREE_RATE = 0.1, 0.2
_PATIENCE = 10  # trees without gain before training stops
_NEIGHBOURS = (1, 3, 7, 15, 31, 63, 127, 255)
_MAX_NEIGHBOUR_RECORDS = 20_000
_COMPONENTS = 64
_INVERSE_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
_ITERATIONS = 500


class TableAttacker(ReleaseAttacker):
    """An attacker that learns from the release as tables."""

    def fit(self, view: ReleaseView, seed: int) -> Posterior:
        """Trains on the attack split and tunes on validation; see `ReleaseAttacker.fit`."""
        return self.fit_tables(self.metric_name(view), view.tables, seed)

    def fit_tables(self, name: str, tables: Tables, seed: int) -> Posterior:
        """Trains on the attack part, where every class occurs, and tunes on validation.

        `name` is that of the posterior and of its random draws.
        """
        random = generator(seed, f"attacker:{name}")
        validation, test, converged = self.predict(tables, random)
        return Posterior(name, _log(validation), _log(test), converged)

    @abstractmethod
    def predict(self, tables: Tables, random: np.random.Generator) -> Prediction:
        """Trains on the attack part, tunes on validation, and predicts validation and test."""


class BoostedTrees(TableAttacker):
    """Gradient-boosted trees, stopped when validation loss stops falling."""

    name: ClassVar[str] = "boosted_trees"

    def predict(self, tables: Tables, random: np.random.Generator) -> Prediction:
        """Predicts by trees on all columns; see `TableAttacker.predict`."""
        attack, validation = tables.attack, tables.validation
        model = HistGradientBoostingClassifier(
            learning_rate=_IMAGE_TREE_RATE if tables.is_image else _TREE_RATE,
            max_iter=_IMAGE_TREES if tables.is_image else _TREES,
            max_features=min(1.0, _SPLIT_COLUMNS / attack.x.shape[1]),
            early_stopping=True,
            n_iter_no_change=_PATIENCE,
            random_state=int(random.integers(2**31)),
        )
        model.fit(attack.x, attack.rows.secret, X_val=validation.x, y_val=validation.rows.secret)
        scores = model.validation_score_
        gain = scores[-1] - scores[3 * len(scores) // 4]
        converged = bool(model.n_iter_ < model.max_iter or gain < CONVERGED_GAIN)
        return model.predict_proba(validation.x), model.predict_proba(tables.test.x), converged


class NearestNeighbours(TableAttacker):
    """Class shares among the k nearest records, k chosen by validation loss."""

    name: ClassVar[str] = "nearest_neighbours"

    def predict(self, tables: Tables, random: np.random.Generator) -> Prediction:
        """Predicts by neighbours on scaled columns; see `TableAttacker.predict`."""
        attack, validation, test = _scale_columns(tables)
        secret = tables.attack.rows.secret
        if tables.is_image:
            attack, validation, test = _principal_components(attack, validation, test)
        if len(attack) > _MAX_NEIGHBOUR_RECORDS:
            chosen = random.choice(len(attack), _MAX_NEIGHBOUR_RECORDS, replace=False)
            attack, secret = attack[chosen], secret[chosen]
        counts = [k for k in _NEIGHBOURS if k <= len(attack)]
        near_validation = secret[nearest_records(attack, validation, counts[-1])]
        prior = class_frequencies(secret, int(secret.max()) + 1)
        truth = tables.validation.rows.secret
        best = min(counts, key=lambda k: _loss(_shares(near_validation[:, :k], prior), truth))
        near_test = secret[nearest_records(attack, test, best)]
        return _shares(near_validation[:, :best], prior), _shares(near_test, prior), True


class LogisticRegression(TableAttacker):
    """A linear model, its penalty chosen by validation loss."""

    name: ClassVar[str] = "logistic_regression"

    def predict(self, tables: Tables, random: np.random.Generator) -> Prediction:
        """Predicts by a linear model on scaled columns; see `TableAttacker.predict`."""
        attack, validation, test = _scale_columns(tables)
        truth = tables.validation.rows.secret
        models = [
            _fit_linear(attack, tables.attack.rows.secret, inverse_penalty)
            for inverse_penalty in _INVERSE_PENALTIES
        ]
        best = min(models, key=lambda model: _loss(model.predict_proba(validation), truth))
        converged = int(best.n_iter_.max()) < _ITERATIONS
        return best.predict_proba(validation), best.predict_proba(test), converged


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
    x: Matrix, secret: NDArray[np.int64], inverse_penalty: float
) -> sklearn.linear_model.LogisticRegression:
    model = sklearn.linear_model.LogisticRegression(C=inverse_penalty, max_iter=_ITERATIONS)
    with warnings.catch_warnings():  # the caller reads the number of iterations
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, secret)
    return model


def _scale_columns(tables: Tables) -> tuple[Matrix, Matrix, Matrix]:
    """Columns with mean 0 and variance 1 on the attack split; pixels share one variance."""
    x = tables.attack.x.astype(np.float64)
    mean = x.mean(0)
    variance = np.square(x - mean).mean(None if tables.is_image else 0)
    std = np.sqrt(np.where(variance > 0, variance, 1))
    parts = (tables.attack, tables.validation, tables.test)
    attack, validation, test = (((part.x - mean) / std).astype(np.float32) for part in parts)
    return attack, validation, test


def _principal_components(
    attack: Matrix, validation: Matrix, test: Matrix
) -> tuple[Matrix, Matrix, Matrix]:
    components = min(_COMPONENTS, *attack.shape)
    pca = PCA(components, svd_solver="covariance_eigh").fit(attack)
    return pca.transform(attack), pca.transform(validation), pca.transform(test)


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
