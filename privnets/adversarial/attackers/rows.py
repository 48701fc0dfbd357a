"""The rows of a split that count: records, or steps of sequences, whose secret is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.records import MISSING, Evidence, Exposure


@dataclass(frozen=True, eq=False)
class Rows:
    """Known secrets of one split, in the order of its records and steps.

    Attributes:
        secret: Classes, shape [k].
        record: Which record each row is of, shape [k].
        step: Which step of it, shape [k]; 0 where records are no sequences.
        cluster: What rows share an origin (a group, or else a record), shape [k].
    """

    secret: NDArray[np.int64]
    record: NDArray[np.int64]
    step: NDArray[np.int64]
    cluster: NDArray[np.int64]


def known_secret(exposure: Exposure) -> Tensor:
    """The secret, `MISSING` also at absent steps; shape as given."""
    if exposure.present is None:
        return exposure.secret
    return torch.where(exposure.present, exposure.secret, MISSING)


def known_rows(exposure: Exposure) -> Rows:
    """The rows that count."""
    table = known_secret(exposure).view(len(exposure.secret), -1).cpu().numpy()
    record, step = np.nonzero(table != MISSING)
    cluster = record if exposure.group is None else exposure.group.cpu().numpy()[record]
    return Rows(table[record, step], record, step, cluster)


def frequencies(secret: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """Shares of the classes, with half a count added to each (Krichevsky and Trofimov).

    Args:
        secret: Classes, shape [k].
        classes: How many there are.

    Returns:
        Positive, shape [classes], summing to 1.
    """
    counts = np.bincount(secret, minlength=classes) + 0.5
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares


def unusable(evidence: Evidence, classes: int) -> str | None:
    """Why no attacker can be judged on a release; None if it can."""
    for name in ("attack", "validation", "test"):
        exposure: Exposure = getattr(evidence, name)
        z = exposure.z if exposure.present is None else exposure.z[exposure.present]
        if not bool(torch.isfinite(z).all()):
            return f"the release of the {name} split is not finite"
        seen = np.unique(known_rows(exposure).secret)
        if len(seen) < classes:
            return f"the {name} split knows {len(seen)} of the secret's {classes} classes"
    return None
