"""Public preprocessing: every column z-scored, then rotated onto principal components."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privnets.data import cache
from privnets.data.catalog import Task, info
from privnets.data.datasets import Dataset, Target, fingerprint, load


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set ready for training.

    The arrays are shared and read-only: copy them (as `torch.tensor` does) before changing them.

    Attributes:
        x: Scores on the principal components, float64, C-contiguous, shape [N, p]; every column
            has mean zero, and there is no column for an intercept.
        y: Targets, shape [N]: float64 0 or 1 (binary), float64 standardised to mean zero and
            variance one (regression), or int64 from 0 to `classes` - 1 (multiclass).
        classes: Number of classes; 0 for regression.
        task: What `y` is.
        fingerprint: Of the data and of the way it is read and prepared.
        explained_variance: Variance (divisor N) of each column of `x`, decreasing, shape [p].
            Over all components it sums to the number of attributes that are not constant.
    """

    x: NDArray[np.float64]
    y: Target
    classes: int
    task: Task
    fingerprint: str
    explained_variance: NDArray[np.float64]


def prepare(name: str, features: int | None = None) -> Prepared:
    """A data set z-scored and projected onto its leading principal components.

    Means, standard deviations (divisor N) and components are taken over all N records, members of
    a training set and others alike: this is *public* preprocessing, known to every attacker, and
    what it gives away about a record is not part of any leakage measured afterwards. A constant
    column has no z-score and becomes zeros; it adds nothing to any component. A component's sign
    makes its largest loading positive. Components beyond the data's rank are exactly zero, not
    rounding noise.

    Args:
        name: The data set.
        features: Principal components kept, p; None keeps them all, one per attribute.

    Raises:
        ValueError: If `features` is not in [1, attributes].
        DataError: If there is no such data set, or a file is absent, truncated or altered.
    """
    attributes = info(name).attributes
    kept = attributes if features is None else features
    if not 1 <= kept <= attributes:
        raise ValueError(
            f"features must be in [1, {attributes}] for data set {name!r}; got {features}."
        )
    return _leading(name, fingerprint(name), kept)


@lru_cache(maxsize=16)
def _leading(name: str, identity: str, features: int) -> Prepared:
    dataset = info(name)
    x, y, variance = _rotated(name, identity)
    leading = np.array(x[:, :features], order="C")
    leading.setflags(write=False)
    return Prepared(leading, y, dataset.classes, dataset.task, identity, variance[:features])


@lru_cache(maxsize=4)
def _rotated(name: str, identity: str) -> tuple[NDArray[np.float64], Target, NDArray[np.float64]]:
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
    """Columns with mean zero and standard deviation one (divisor N); constant ones become zeros.

    Args:
        x: Shape [N, d].
    """
    # Compared with equality: a constant column's deviation may be rounding noise, not zero.
    constant = (x == x[:1]).all(axis=0)
    scale = np.where(constant, 1.0, x.std(axis=0))
    scores: NDArray[np.float64] = np.where(constant, 0.0, (x - x.mean(axis=0)) / scale)
    return scores


def principal_components(
    z: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rotate centred columns onto their principal components, by a full SVD.

    Each component's largest loading is positive. Components beyond the numerical rank
    (a singular value under max(N, d) machine epsilons of the largest) are set to zero.

    Args:
        z: Columns of mean zero, shape [N, d], N >= d.

    Returns:
        Scores, shape [N, d], and their variances (divisor N), decreasing, shape [d].
    """
    left, singular, loadings = np.linalg.svd(z, full_matrices=False)
    largest = np.abs(loadings).argmax(axis=1, keepdims=True)
    signs = np.sign(np.take_along_axis(loadings, largest, axis=1)).ravel()
    live = singular > singular[0] * max(z.shape) * np.finfo(np.float64).eps
    singular = np.where(live, singular, 0.0)
    return left * (singular * signs), singular**2 / len(z)


def _target(dataset: Dataset) -> Target:
    if info(dataset.name).task != "regression":
        return dataset.y
    return z_scores(dataset.y[:, None].astype(np.float64))[:, 0]
