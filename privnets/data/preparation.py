"""Public preprocessing: z-scored columns, rotated onto principal components."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privnets import cache
from privnets.data.catalog import (
    DataReference,
    Dataset,
    Target,
    fingerprint,
    info,
    load,
)
from privnets.data.files import DatasetInfo, Task

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PreparedData:
    """A data set ready for training.

    The arrays are shared and read-only: copy them (as `torch.tensor` does) before changing them.

    Attributes:
        x: Scores on the principal components, float64, C-contiguous, shape [N, p]. Each column
            has mean 0; an intercept has no column. Without rotation they are the scaled
            attributes; those of images are float32.
        y: Targets, shape [N]: float64 0 or 1 (binary), float64 with mean 0 and variance 1
            (regression), or int64 from 0 to `classes` - 1 (multiclass).
        classes: Number of classes; 0 for regression.
        explained_variance: Variance (divisor N) of each column of `x`, decreasing, shape [p].
            Over all components it sums to the number of attributes that are not constant.
            Not sorted where `x` holds attributes.
    """

    x: Array | NDArray[np.float32]
    y: Target
    classes: int
    task: Task
    fingerprint: str
    explained_variance: NDArray[np.float64]


def prepare(
    name: str | DataReference, features: int | None = None, *, rotates: bool = True
) -> PreparedData:
    """Returns a data set, z-scored and projected onto its leading principal components.

    A user's data set is scaled as its reference says, and projected only if `features` is given.

    Means, standard deviations (divisor N) and components come from all N records, members of a
    training set and others alike. This is *public* preprocessing, known to every attacker; no
    leakage measure includes the information that it reveals about a record. A constant column
    becomes zeros. The largest loading of a component is positive. Components beyond the data's
    rank are exactly zero.

    Args:
        features: Number of principal components, p; None keeps one for each attribute.
        rotates: Whether the attributes of a packaged data set are rotated without `features`.

    Raises:
        ValueError: If `features` is not in [1, attributes].
        DataError: If no data set has this name, or a file is absent, truncated or altered.
    """
    dataset = info(name)
    attributes = dataset.attributes
    components = attributes if features is None else features
    if not 1 <= components <= attributes:
        raise ValueError(
            f"features must be in [1, {attributes}] for data set {dataset.name!r}; got {features}."
        )
    if features is None and (isinstance(name, DataReference) or not rotates):
        return _load_scaled(name, fingerprint(name))
    return _leading_components(name, fingerprint(name), components)


@lru_cache(maxsize=4)
def _load_scaled(name: str | DataReference, identity: str) -> PreparedData:
    dataset, about = load(name), info(name)
    x: NDArray[Any] = dataset.x.astype(np.float32 if about.shape else np.float64)
    if _is_scaled(name) and about.shape:  # the pixels of each channel share one scale
        pixels = x.reshape(len(x), about.shape[0], -1)
        mean = pixels.mean(axis=(0, 2), keepdims=True, dtype=np.float64)
        deviation = pixels.std(axis=(0, 2), keepdims=True, dtype=np.float64).clip(1e-12)
        x = ((pixels - mean.astype(np.float32)) / deviation.astype(np.float32)).reshape(x.shape)
    elif _is_scaled(name):
        x = z_scores(x)
    return _freeze(about, x, _target(dataset), x.var(axis=0, dtype=np.float64), identity)


@lru_cache(maxsize=16)
def _leading_components(name: str | DataReference, identity: str, features: int) -> PreparedData:
    # A user's records are not written to the cache on disk.
    components = _rotate if isinstance(name, DataReference) else _cached_components
    x, y, variance = components(name, identity)
    return _freeze(info(name), x[:, :features], y, variance[:features], identity)


def _freeze(
    dataset: DatasetInfo, x: NDArray[Any], y: Target, variance: Array, identity: str
) -> PreparedData:
    x = np.array(x, order="C")
    for array in (x, y, variance):
        array.setflags(write=False)
    return PreparedData(x, y, dataset.classes, dataset.task, identity, variance)


@lru_cache(maxsize=4)
def _cached_components(name: str, identity: str) -> tuple[Array, Target, Array]:
    path = cache.directory() / f"{name}-{identity}.prepared"
    arrays = cache.read(path)
    if arrays is None:
        arrays = dict(zip(("x", "y", "variance"), _rotate(name, identity), strict=True))
        cache.write(path, arrays)
    return arrays["x"], arrays["y"], arrays["variance"]


@lru_cache(maxsize=4)
def _rotate(name: str | DataReference, _identity: str) -> tuple[Array, Target, Array]:
    dataset = load(name)
    x = dataset.x.astype(np.float64)
    centred = z_scores(x) if _is_scaled(name) else x - x.mean(axis=0)
    x, variance = principal_components(centred)
    return x, _target(dataset), variance


def _is_scaled(name: str | DataReference) -> bool:
    return not isinstance(name, DataReference) or name.scale == "standard"


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
    if dataset.task != "regression":
        return dataset.y
    return z_scores(dataset.y[:, None].astype(np.float64))[:, 0]
