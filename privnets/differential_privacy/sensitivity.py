"""Sensitivity of regularised linear models: how far one record can move the trained parameters.

The objective is the mean loss over n records plus lambda |theta|^2, which is 2 lambda-strongly
convex. Let theta and theta' be the minimisers for two data sets that differ in one record. At
theta', the gradient of the first objective is the difference of that record's two loss gradients,
divided by n. Strong convexity then gives

    |theta - theta'| <= |gradient(z) - gradient(z')| / (2 lambda n),  gradients at theta'

(Chaudhuri, Monteleoni and Sarwate, JMLR 12, 2011, lemma 7). With loss gradients of norm at most G,
the right side is at most G / (lambda n) for `replace_one`. A record that is removed has loss 0 and
n stays, so `add_or_remove_one` has half of that. Features have norm at most R.
"""

from __future__ import annotations

import math

from privnets.differential_privacy.accounting import Neighbours


def ridge_sensitivity(
    row_norm: float, target: float, size: int, weight_decay: float, neighbours: Neighbours
) -> float:
    """Largest L2 change of ridge regression's parameters between neighbouring training sets.

    With s the singular values of X / sqrt(n), the minimiser has norm at most
    max s / (s^2 + lambda) times the root mean square of the targets, and s is at most R. This
    bounds a residual, and the loss gradient 2 x (x'theta - y) with it. Two minimisers are also
    no farther apart than twice their largest norm.

    Args:
        row_norm: Largest norm R of a record's features, above 0.
        target: Largest absolute target.
        size: Records of a training set, n.
        weight_decay: Lambda, above 0.
    """
    scale = min(row_norm, math.sqrt(weight_decay))
    largest = target * scale / (scale**2 + weight_decay)
    gradient = 2 * row_norm * (row_norm * largest + target)
    return min(2 * largest, _shift(gradient, size, weight_decay, neighbours))


def logistic_sensitivity(
    row_norm: float,
    classes: int,
    size: int,
    weight_decay: float,
    neighbours: Neighbours,
    gradient_error: float = 0.0,
) -> float:
    """Largest L2 change of logistic regression's coefficients between neighbouring training sets.

    The gradient is x (p - e)', with p the probabilities and e the true class as a unit vector. Its
    norm is at most R for two classes, which have one coefficient vector, and sqrt(2) R for more.

    Args:
        row_norm: Largest norm R of a record's features, above 0.
        size: Records of a training set, n.
        weight_decay: Lambda, above 0.
        gradient_error: Norm of the objective's gradient at which training stops. Each of the two
            solutions is at most this number divided by 2 lambda from its minimiser.
    """
    gradient = row_norm * (1.0 if classes == 2 else math.sqrt(2))
    return _shift(gradient, size, weight_decay, neighbours) + gradient_error / weight_decay


def _shift(gradient: float, size: int, weight_decay: float, neighbours: Neighbours) -> float:
    changes = 2 if neighbours == "replace_one" else 1
    return changes * gradient / (2 * weight_decay * size)
