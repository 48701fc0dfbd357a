"""Public preprocessing: z-scored columns, rotated onto principal components."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privnets.data import cache
from privnets.data.catalog import Dataset, Target, fingerprint, info, load
from privnets.data.files import Task


@dataclass(frozen=True, eq=False)
class PreparedData:
    """A data set ready for training.

    The arrays are shared and read-only: copy them (as `torch.tensor` does) before changing them.

    Attributes:
        x: Scores on the principal components, float64, C-contiguous, shape [N, p]. Each column
            has mean 0; an intercept has no column.
        y: Targets, shape [N]: float64 0 or 1 (binary), float64 with mean 0 and variance 1
            (regression), or int64 from 0 to `classes` - 1 (multiclass).
        classes: Number of classes; 0 for regression.
        explained_variance: Variance (divisor N) of each column of `x`, decreasing, shape [p].
            Over all components it sums to the number of attributes that are not constant.
    """

    x: NDArray[np.float64]
    y: Target
    classes: int
    task: Task
    fingerprint: str
    explained_variance: NDArray[np.float64]


def prepare(name: str, features: int | None = None) -> PreparedData:
    """Returns a data set, z-scored and projected onto its leading principal components.

    Means, standard deviations (divisor N) and components come from all N records, members of a
    training set and others alike. This is *public* preprocessing, known to every attacker; no
    leakage measure includes the information that it reveals about a record. A constant column
    becomes zeros. The largest loading of a component is positive. Components beyond the data's
    rank are exactly zero.

    Args:
        name: Data set.
        features: Number of principal components, p; None keeps one for each attribute.

    Raises:
        ValueError: If `features` is not in [1, attributes].
        DataError: If no data set has this name, or a file is absent, truncated or altered.
    """
    attributes = info(name).attributes
    components = attributes if features is None else features
    if not 1 <= components <= attributes:
        raise ValueError(
            f"features must be in [1, {attributes}] for data set {name!r}; got {features}."
        )
    return _leading_components(name, fingerprint(name), components)


@lru_cache(maxsize=16)
def _leading_components(name: str, identity: str, features: int) -> PreparedData:
    dataset = info(name)
    x, y, variance = _all_components(name, identity)
    leading = np.array(x[:, :features], order="C")
    leading.setflags(write=False)
    return PreparedData(leading, y, dataset.classes, dataset.task, identity, variance[:features])


@lru_cache(maxsize=4)
def _all_components(
    name: str, identity: str
) -> tuple[NDArray[np.float64], Target, NDArray[np.float64]]:
    path = cache.directory() / f"{name}-{identity}.prepared"
    arrays = cache.read(path)
    if arrays is None:
        dataset = load(name)
        x, variance = principal_components(z_scores(dataset.x))
        arrays = {"x": x, "y": _target(dataset), "variance": variance}
        cache.write(path, arrays)
    for array in arrays.values():
        array.setflags(write=False)
    return arrays["x"], arrays["y"], arrays["variance"]


def z_scores(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scales columns to mean 0 and standard deviation 1 (divisor N); constant ones become zeros."""
    # Equality, since the computed deviation of a constant column may be rounding noise.
    constant = (x == x[:1]).all(axis=0)
    scale = np.where(constant, 1.0, x.std(axis=0))
    scores: NDArray[np.float64] = np.where(constant, 0.0, (x - x.mean(axis=0)) / scale)
    return scores


def principal_components(
    z: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rotates centred columns onto their principal components, by a full SVD.

    The largest loading of a component is positive. Components beyond the numerical rank (singular
    value below max(N, d) machine epsilons times the largest) are set to zero.

    Returns:
        Scores, shape [N, d], and their variances (divisor N), decreasing, shape [d].
    """
    left, singular, loadings = np.linalg.svd(z, full_matrices=False)
    largest = np.abs(loadings).argmax(axis=1, keepdims=True)
    signs = np.sign(np.take_along_axis(loadings, largest, axis=1)).ravel()
    in_rank = singular > singular[0] * max(z.shape) * np.finfo(np.float64).eps
    singular = np.where(in_rank, singular, 0.0)
    return left * (singular * signs), singular**2 / len(z)


def _target(dataset: Dataset) -> Target:
    if info(dataset.name).task != "regression":
        return dataset.y
    return z_scores(dataset.y[:, None].astype(np.float64))[:, 0]
