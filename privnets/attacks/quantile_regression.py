"""Quantile-regression attack (Bertran et al. 2023, arXiv 2307.03694): no model but the target."""

from __future__ import annotations

import numpy as np

from privnets.attacks.base import NO_POPULATION, Attack
from privnets.attacks.view import Array, AttackerView

_RIDGE = 1e-6
_RECORDS_PER_COEFFICIENT = 2
_TINY = 1e-12


class QuantileRegression(Attack):
    """Signal beside the quantiles of such records outside the training set.

    In sweeps, records are alike by their features. Each quantile of the signal is a location plus
    a multiple of a scale (He, American Statistician 51, 1997); both are linear in the regressors,
    and fitted to the target's signals at records of the population by least squares. In audits,
    records are alike by their classes and other outputs, and trees are fitted to the known ones.
    """

    name = "quantile_regression"
    family = "learned"
    paper = "Bertran et al., NeurIPS 2023, arXiv 2307.03694"
    bounds = ("bound/advantage",)

    def why_unavailable(self, view: AttackerView) -> str | None:
        """The judged models must have signals at enough other records for the regression."""
        if view.outputs is not None:
            from privnets.attacks.learned import why_nothing_to_learn  # scikit-learn loads slowly

            return why_nothing_to_learn(view.outputs)
        if view.population is None or view.features is None:
            return NO_POPULATION
        return view.population.why_too_small(_RECORDS_PER_COEFFICIENT * view.features.shape[1])

    def score(self, view: AttackerView) -> Array:
        """Scores the signal at the record, in units of its predicted scale."""
        if view.outputs is not None:
            from privnets.attacks.learned import exceedance_of_outputs  # scikit-learn loads slowly

            return exceedance_of_outputs(view, view.outputs)
        assert view.population is not None  # by `why_unavailable`
        population, features, at = view.population, view.population.features, view.features
        assert features is not None
        assert at is not None
        weight = population.is_known.astype(float)
        count = features.shape[1]
        # Most products are 0, as each record has regressors of its own class alone.
        first, second = np.nonzero((features != 0).astype(float).T @ (features != 0))
        gram = np.zeros((len(weight), count, count))
        gram[:, first, second] = weight @ (features[:, first] * features[:, second])
        penalty = _RIDGE * np.trace(gram, axis1=1, axis2=2) / count
        gram[:, range(count), range(count)] += penalty[:, None]

        def fit(values: Array) -> Array:
            moments = (weight * values) @ features
            return np.asarray(np.linalg.solve(gram, moments[..., None])[..., 0], dtype=float)

        signal = _one_sided(population.signal, view.two_sided)
        location = fit(signal)
        distance = np.log(np.maximum(np.abs(signal - location @ features.T), _TINY))
        scale = np.exp(fit(distance) @ at.T)
        scores: Array = (_one_sided(view.signal, view.two_sided) - location @ at.T) / scale
        return scores


def _one_sided(signal: Array, two_sided: bool) -> Array:
    """Signal that is larger for members: of a residual, minus its logarithmic size."""
    return -np.log(np.maximum(np.abs(signal), _TINY)) if two_sided else signal
