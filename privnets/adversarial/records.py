"""Records of a problem as tensors, who may use which, and what an attacker is handed."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

MISSING = -1
"""A secret that nobody wrote down; it counts in no loss and no score."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Every record that a stack draws on, on the device that trains it.

    Attributes:
        x: Observed data on the scale that networks see, float32: images [N, 1, h, w] with pixels
            in [0, 1], vectors [N, d], or sequences [N, T, 1], standardised.
        secret: Classes from 0, int64, shape [N], or [N, T] for sequences; `MISSING` where unknown.
        utility: Classes from 0, int64, shape [N]; None when closeness to the input is all.
        side: Side information known to everybody, float32, shape [N, T, c]; None if there is none.
        present: Whether a step was observed, bool, shape [N, T]; None when all were. `x` is 0 and
            `secret` missing where it was not.
        group: What records share an origin (the day a window starts on), int64, shape [N]; None
            when records are independent. Errors are clustered by it.
    """

    x: Tensor
    secret: Tensor
    utility: Tensor | None = None
    side: Tensor | None = None
    present: Tensor | None = None
    group: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Splits:
    """Which records of a pool serve what, for one configuration: disjoint indices, int64.

    Attributes:
        train: The releaser, its adversary and its utility network train on these.
        attack: Attackers train on the release of these.
        validation: Attackers are tuned on the release of these.
        test: Everything that is reported is measured on these.
    """

    train: NDArray[np.int64]
    attack: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Exposure:
    """What an attacker is handed of one split: releases, labels and what everybody knows.

    Attributes:
        z: Released records, shape as `Pool.x`.
        secret: As `Pool.secret`.
        utility: As `Pool.utility`.
        side: As `Pool.side`.
        present: As `Pool.present`.
        group: As `Pool.group`.
    """

    z: Tensor
    secret: Tensor
    utility: Tensor | None = None
    side: Tensor | None = None
    present: Tensor | None = None
    group: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Evidence:
    """One finished release, as its attackers see it."""

    attack: Exposure
    validation: Exposure
    test: Exposure


def on_host(evidence: Evidence) -> Evidence:
    """The same in the processor's memory, for attackers that touch no device."""
    parts = (evidence.attack, evidence.validation, evidence.test)
    return Evidence(*map(_on_host, parts))


def _on_host(exposure: Exposure) -> Exposure:
    parts = {f.name: getattr(exposure, f.name) for f in fields(exposure)}
    return replace(exposure, **{name: p.cpu() for name, p in parts.items() if p is not None})
