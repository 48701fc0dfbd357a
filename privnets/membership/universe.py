"""The records that training sets are drawn from, and those whose membership is asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets import data
from privnets.membership.config import MembershipConfig
from privnets.randomness import generator


@dataclass(frozen=True)
class Universe:
    """The records that training sets are drawn from.

    Attributes:
        x: Features, shape [N, p], float64.
        y: Target (a value, or the number of a class), shape [N], float64.
    """

    x: Tensor
    y: Tensor

    @property
    def size(self) -> int:
        """N."""
        return len(self.x)


def prepared(config: MembershipConfig, device: str) -> tuple[Universe, int]:
    """The records, and how many classes the target has: 1 where it is a number."""
    found = data.prepare(config.dataset, config.features)
    x, y = torch.tensor(found.x, device=device), torch.tensor(found.y, device=device)
    return Universe(x, y.double()), max(found.classes, 1)


def asked_records(config: MembershipConfig, population: int) -> NDArray[np.int64]:
    """The records whose membership is asked: a uniform subset that depends on the seed alone."""
    chosen = generator(config.seed, "records").permutation(population)[: config.records]
    return chosen.astype(np.int64)
