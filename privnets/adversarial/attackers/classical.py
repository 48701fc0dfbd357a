"""Attackers from scikit-learn: boosted trees, nearest neighbours and a linear model.

Sizes are chosen on raw AMNIST thickness (11,427 images to learn from): boosted trees lose two
points of balanced accuracy on 64 principal components against pixels, so they get pixels and a
tenth of these at each split; nearest neighbours lose nothing there and are eight times as fast.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.attackers.features import Matrix, Tables
from privnets.adversarial.attackers.names import Classifier
from privnets.adversarial.attackers.neighbours import Neighbours
from privnets.adversarial.attackers.posterior import Posterior
from privnets.adversarial.attackers.rows import frequencies
from privnets.adversarial.attackers.training import AT_REST
from privnets.randomness import generator

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

Beliefs = NDArray[np.float64]

_LEAST = 1e-12  # of a probability before its logarithm is taken
_COLUMNS = 80  # that a split of a tree chooses among
_TREES, _TREES_OF_IMAGES = 300, 150
_RATE, _RATE_OF_IMAGES = 0.1, 0.2
_PATIENCE = 10
_NEIGHBOURS = (1, 3, 7, 15, 31, 63, 127, 255)
_MOST_RECORDS = 20_000  # that nearest neighbours are sought among
_COMPONENTS = 64
_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)
_ITERATIONS = 500


def fit(name: str, tables: Tables, seed: int, classifier: Classifier) -> Posterior:
    """Fit one classifier to the attack split and tune it on validation.

    Args:
        name: The attacker's; names its random draws.
        tables: Every class of the secret occurs in the attack split.
        seed: Source of them.
        classifier: Which.
    """
    random = generator(seed, f"attacker:{name}")
    validation, test, converged = _FITTED[classifier](tables, random)
    return Posterior(name, _log(validation), _log(test), converged)


def _boosted_trees(tables: Tables, random: np.random.Generator) -> tuple[Beliefs, Beliefs, bool]:
    """Gradient-boosted trees that stop where validation loss does."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        learning_rate=_RATE_OF_IMAGES if tables.image else _RATE,
        max_iter=_TREES_OF_IMAGES if tables.image else _TREES,
        max_features=min(1.0, _COLUMNS / tables.attack.x.shape[1]),
        early_stopping=True,
        n_iter_no_change=_PATIENCE,
        random_state=int(random.integers(2**31)),
    )
    attack, validation = tables.attack, tables.validation
    model.fit(attack.x, attack.rows.secret, X_val=validation.x, y_val=validation.rows.secret)
    gains = model.validation_score_
    converged = model.n_iter_ < model.max_iter or gains[-1] - gains[3 * len(gains) // 4] < AT_REST
    return model.predict_proba(validation.x), model.predict_proba(tables.test.x), bool(converged)


def _nearest_neighbours(
    tables: Tables, random: np.random.Generator
) -> tuple[Beliefs, Beliefs, bool]:
    """Shares of the classes among the k nearest, k chosen by validation loss."""
    attack, validation, test = _scaled(tables)
    secret = tables.attack.rows.secret
    if tables.image:
        attack, validation, test = _principal(attack, validation, test)
    if len(attack) > _MOST_RECORDS:
        chosen = random.choice(len(attack), _MOST_RECORDS, replace=False)
        attack, secret = attack[chosen], secret[chosen]
    counts = [k for k in _NEIGHBOURS if k <= len(attack)]
    nearest = Neighbours(attack)
    near = secret[nearest(validation, counts[-1])]
    prior = frequencies(secret, int(secret.max()) + 1)
    truth = tables.validation.rows.secret
    best = min(counts, key=lambda k: _loss(_shares(near[:, :k], prior), truth))
    far = secret[nearest(test, best)]
    return _shares(near[:, :best], prior), _shares(far, prior), True


def _logistic_regression(
    tables: Tables, random: np.random.Generator
) -> tuple[Beliefs, Beliefs, bool]:
    """A linear model, the strength of its penalty chosen by validation loss."""
    attack, validation, test = _scaled(tables)
    truth = tables.validation.rows.secret
    models = [_linear(attack, tables.attack.rows.secret, strength) for strength in _STRENGTHS]
    best = min(models, key=lambda model: _loss(model.predict_proba(validation), truth))
    converged = int(best.n_iter_.max()) < _ITERATIONS
    return best.predict_proba(validation), best.predict_proba(test), converged


_FITTED: Final[
    Mapping[Classifier, Callable[[Tables, np.random.Generator], tuple[Beliefs, Beliefs, bool]]]
] = {
    "boosted_trees": _boosted_trees,
    "nearest_neighbours": _nearest_neighbours,
    "logistic_regression": _logistic_regression,
}
"""By name: probabilities on validation and test, and whether training came to rest."""


def _linear(x: Matrix, secret: NDArray[np.int64], strength: float) -> LogisticRegression:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=strength, max_iter=_ITERATIONS)
    with warnings.catch_warnings():  # the number of iterations tells the caller
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, secret)
    return model


def _scaled(tables: Tables) -> tuple[Matrix, Matrix, Matrix]:
    """Columns of mean 0 and variance 1 on the attack split; the pixels of an image share one."""
    x = tables.attack.x.astype(np.float64)
    mean = x.mean(0)
    variance = np.square(x - mean).mean(None if tables.image else 0)
    std = np.sqrt(np.where(variance > 0, variance, 1))
    parts = (tables.attack, tables.validation, tables.test)
    attack, validation, test = (((part.x - mean) / std).astype(np.float32) for part in parts)
    return attack, validation, test


def _principal(attack: Matrix, validation: Matrix, test: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    from sklearn.decomposition import PCA

    components = min(_COMPONENTS, *attack.shape)
    pca = PCA(components, svd_solver="covariance_eigh").fit(attack)
    return pca.transform(attack), pca.transform(validation), pca.transform(test)


def _shares(classes: NDArray[np.int64], prior: Beliefs) -> Beliefs:
    """Shares of the classes among neighbours [n, k], with one more that is drawn by the prior."""
    found = np.stack([(classes == c).sum(1) for c in range(len(prior))], axis=1)
    shares: Beliefs = (found + prior) / (classes.shape[1] + 1)
    return shares


def _loss(probability: Beliefs, secret: NDArray[np.int64]) -> float:
    return -float(_log(probability)[np.arange(len(secret)), secret].mean())


def _log(probability: Beliefs) -> Beliefs:
    log: Beliefs = np.log(np.maximum(probability.astype(np.float64), _LEAST))
    return log
