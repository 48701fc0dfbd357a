"""Hypervolumes as averages over rays from the reference point, for any number of objectives.

The share of a ray is the volume up to where points reach along it (Deng and Zhang, IEEE
Transactions on Evolutionary Computation 23, 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import moocore
import numpy as np
from scipy.stats import norm, qmc

from sweeps.planning.frontier.unit_cube import Array

_MARGIN: Final = 0.1


@dataclass(frozen=True)
class FrontBox:
    """Box of objectives, all minimised, in which hypervolumes are measured.

    Attributes:
        ideal: Best value of each objective on the front, shape [K].
        extent: Length of the front along each objective, positive, shape [K].
    """

    ideal: Array
    extent: Array

    @property
    def reference(self) -> Array:
        """The front's worst corner, a tenth of the extent further out, shape [K]."""
        return self.ideal + (1 + _MARGIN) * self.extent

    def reach(self, values: Array, rays: Array) -> Array:
        """Volume that objectives, shape [..., K], dominate along rays, shape [R, K]: [..., R]."""
        lead = np.maximum((self.reference - values) / self.extent, 0.0)
        lengths = [lead[..., k, None] / rays[:, k] for k in range(rays.shape[1])]
        shortest: Array = np.minimum.reduce(lengths)
        return shortest ** len(lengths)


def find_front_box(values: Array) -> FrontBox:
    """Finds the box of the front of points, shape [N, K].

    The extent is at least the distance from the best value to the lower quartile, since the front
    of few points is short.
    """
    front = values[moocore.is_nondominated(values)]
    ideal = front.min(axis=0)
    extent = np.maximum(front.max(axis=0), np.quantile(values, 0.25, axis=0)) - ideal
    return FrontBox(ideal, np.where(extent > 0, extent, np.maximum(np.abs(ideal), 1.0)))


def spread_rays(objectives: int, count: int) -> Array:
    """Returns evenly spread unit vectors of positive entries, shape [count, objectives].

    Args:
        objectives: Number of entries.
        count: Number of vectors, a power of two.
    """
    if objectives == 2:
        angles = (np.arange(count) + 0.5) / count * math.pi / 2
        return np.column_stack([np.cos(angles), np.sin(angles)])
    normals = np.abs(norm.ppf(qmc.Sobol(objectives, rng=0).random(count)))
    unit: Array = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    return unit


def select_points(reach: Array, size: int) -> list[int]:
    """Selects at most `size` points, in turn the one that adds most to the hypervolume.

    Args:
        reach: Volume that each point dominates along each ray, shape [N, R].
        size: Most points to select.
    """
    chosen: list[int] = []
    best = np.zeros(reach.shape[1])
    while len(chosen) < size:
        gains = np.maximum(reach - best, 0.0).sum(axis=1)
        if gains.max() <= 0:
            break
        chosen.append(int(gains.argmax()))
        best = np.maximum(best, reach[chosen[-1]])
    return chosen
