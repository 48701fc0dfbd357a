"""The records nearest to others, found exactly by whatever is quickest for their dimensions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.attackers.features import Matrix

FEW = 4
"""Columns up to which a tree is quicker than comparing all with all; measured at 8,192 records."""


class Neighbours:
    """Records among which the nearest are sought, by Euclidean distance."""

    def __init__(self, records: Matrix) -> None:
        """Prepare to search records [n, f]."""
        from scipy.spatial import KDTree

        self._records = records
        self._tree = KDTree(records) if records.shape[1] <= FEW else None

    def __call__(self, x: Matrix, count: int) -> NDArray[np.int64]:
        """The places of the nearest records, the nearest first; any of those equally far.

        Args:
            x: Whose neighbours are asked for, shape [m, f].
            count: How many, up to n.

        Returns:
            Shape [m, count].
        """
        found = self._by_comparison(x, count) if self._tree is None else self._by_tree(x, count)
        return found.astype(np.int64, copy=False)

    def _by_tree(self, x: Matrix, count: int) -> NDArray[np.int64]:
        assert self._tree is not None
        places: NDArray[np.int64] = self._tree.query(x, k=np.arange(1, count + 1))[1]
        return places

    def _by_comparison(self, x: Matrix, count: int) -> NDArray[np.int64]:
        from sklearn.neighbors import NearestNeighbors

        index = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(self._records)
        places: NDArray[np.int64] = index.kneighbors(x, return_distance=False)
        return places
