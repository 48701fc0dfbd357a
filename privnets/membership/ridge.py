"""Ridge regression in closed form, thousands of models per call.

A model needs only sums over its training records of products of their features: the sums are
gathered once per training set and solved for any number of regularisation weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from privnets.membership.sampling import Indices

# A pivot this small beside its diagonal entry leaves no digits to trust in float64.
_SMALLEST_PIVOT = 1e-10
# Models handled at once where intermediate results are large.
_IN_CACHE = 8192


@dataclass(frozen=True)
class Moments:
    """Products of features and target of every record, one row each: xx' (upper), xy, yy.

    Attributes:
        products: Shape [N, p(p+1)/2 + p + 1], float64.
        features: p.
    """

    products: Tensor
    features: int

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Moments:
        """Tabulate records.

        Args:
            x: Features, shape [N, p].
            y: Target, shape [N].
        """
        p = x.shape[1]
        row, column = torch.triu_indices(p, p, device=x.device)
        joined = (x[:, row] * x[:, column], x * y[:, None], (y * y)[:, None])
        return cls(torch.cat(joined, dim=1).double().contiguous(), p)

    def sums(self, members: Indices) -> Tensor:
        """Sum the products over training sets, shape [count, columns].

        Args:
            members: Records of each set, shape [count, n].
        """
        if self.products.device.type == "cpu":
            return self._sparse_sums(members)
        index = torch.from_numpy(members).to(self.products.device)
        return torch.nn.functional.embedding_bag(index, self.products, mode="sum")

    def _sparse_sums(self, members: Indices) -> Tensor:
        # A sparse product of ones adds rows in cache: 3.5 times embedding_bag at n = 1,000.
        count, size = members.shape
        starts = np.arange(0, count * size + 1, size, dtype=np.int32)
        shape = (count, len(self.products))
        ones = scipy.sparse.csr_array((np.ones(count * size), members.reshape(-1), starts), shape)
        return torch.from_numpy(ones @ self.products.numpy())


@dataclass(frozen=True)
class Solution:
    """Trained parameters.

    Attributes:
        parameters: Shape [count, p].
        deficient: Whether the problem lacked full rank, shape [count]; such a model is the one of
            least norm.
    """

    parameters: Tensor
    deficient: Tensor


def solve(sums: Tensor, features: int, size: int, weight_decay: float) -> Solution:
    """Minimise mean squared error plus `weight_decay` times the squared norm.

    arXiv 2001.10648, eq. 1: theta = (X'X/n + lambda I)^-1 X'y/n, the minimum-norm solution where
    the inverse does not exist.

    Args:
        sums: From `Moments.sums`, shape [count, columns].
        features: p.
        size: n, the records behind each row of sums.
        weight_decay: lambda, at least 0.
    """
    system = _systems(sums, features)
    diagonal = torch.arange(features, device=sums.device)
    system[diagonal, diagonal] += size * weight_decay
    original = system[diagonal, diagonal].clone()
    parameters, pivots = _eliminate(system)
    deficient = (pivots <= _SMALLEST_PIVOT * original).any(dim=0) | (original <= 0).any(dim=0)
    if bool(deficient.any()):
        parameters[deficient] = _least_norm(sums[deficient], features, size * weight_decay)
    return Solution(parameters, deficient)


def squared_errors(sums: Tensor, total: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of squared residuals of each model over its training set and over other records.

    Args:
        sums: Of each model's training set, shape [count, columns].
        total: Sums over one set of records for all models, shape [columns].
        parameters: Shape [count, p].

    Returns:
        Over the training sets and over the records behind `total`, shape [count] each, at least 0.
    """
    train, overall = sums.new_empty(len(sums)), sums.new_empty(len(sums))
    for start in range(0, len(sums), _IN_CACHE):
        part = slice(start, start + _IN_CACHE)
        form = _residual_form(parameters[part])
        train[part] = torch.linalg.vecdot(sums[part], form)
        overall[part] = form @ total
    return train.clamp_min_(0), overall.clamp_min_(0)


def _residual_form(parameters: Tensor) -> Tensor:
    """What to multiply the products of a record by to get its squared residual."""
    p = parameters.shape[1]
    row, column = torch.triu_indices(p, p, device=parameters.device)
    twice = torch.where(row == column, 1.0, 2.0).to(parameters.dtype)
    pairs = parameters[:, row] * parameters[:, column] * twice
    return torch.cat([pairs, -2 * parameters, torch.ones_like(parameters[:, :1])], dim=1)


def _systems(sums: Tensor, p: int) -> Tensor:
    """Augmented systems [p, p + 1, count]: the batch last, so that every step is contiguous."""
    row, column = torch.triu_indices(p, p, device=sums.device)
    by_column = sums.T
    system = sums.new_empty(p, p + 1, len(sums))
    system[row, column] = by_column[: len(row)]
    system[column, row] = by_column[: len(row)]
    system[:, p] = by_column[len(row) : len(row) + p]
    return system


def _eliminate(system: Tensor) -> tuple[Tensor, Tensor]:
    """Gaussian elimination, which needs no pivoting for positive-definite systems."""
    p = len(system)
    for k in range(p - 1):
        factor = system[k + 1 :, k] / system[k, k]
        system[k + 1 :, k + 1 :] -= factor[:, None] * system[k, k + 1 :]
    pivots = torch.diagonal(system[:, :p], dim1=0, dim2=1).T
    solution = torch.empty_like(system[:, p])
    for k in reversed(range(p)):
        known = (system[k, k + 1 : p] * solution[k + 1 :]).sum(0)
        solution[k] = (system[k, p] - known) / system[k, k]
    return solution.T.contiguous(), pivots


def _least_norm(sums: Tensor, p: int, penalty: float) -> Tensor:
    system = _systems(sums, p).movedim(-1, 0)
    values, vectors = torch.linalg.eigh(system[:, :, :p])
    smallest = _SMALLEST_PIVOT * values.amax(dim=1, keepdim=True).clamp_min(1e-300)
    kept = values > smallest
    inverse = torch.where(kept, 1 / torch.where(kept, values + penalty, 1.0), 0.0)
    target = torch.einsum("bij,bi->bj", vectors, system[:, :, p])
    return torch.einsum("bij,bj->bi", vectors, inverse * target)
