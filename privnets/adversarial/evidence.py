"""Releases as attackers receive them, and their guesses; this module loads without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.config import AdversarialConfig
from privnets.contract import Tensor
from privnets.points import Curve

PARTS = ("attack", "validation", "test")

Redraw: TypeAlias = Callable[[str], Tensor]
"""Releases the same records again with the noise of a named stream, [n, ...]."""

Parameters: TypeAlias = Sequence[Tensor]
"""Parameters of the releasers of a stack, each of shape [S, ...]."""


@dataclass(frozen=True, eq=False)
class AttackView:
    """One split as attackers receive it: n records of a `Pool`.

    `z` has the released records, or raw ones for a baseline, in the form of `Pool.x`.
    """

    z: Tensor
    secret: Tensor
    utility: Tensor | None = None
    side: Tensor | None = None
    present: Tensor | None = None
    group: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Tensors by the name of their field."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, eq=False)
class Evidence:
    """The three splits of one release that attackers learn from, tune on and are scored on.

    Attributes:
        other_test: Test records labelled by another rule, on which attackers are scored too; None
            if there is one rule.
        is_random: Whether another release of the same records would differ.
        redraw: Releases the attack split again; None if that is not possible.
    """

    attack: AttackView
    validation: AttackView
    test: AttackView
    other_test: AttackView | None = field(default=None, kw_only=True)
    is_random: bool = field(default=False, kw_only=True)
    redraw: Redraw | None = field(default=None, kw_only=True)

    @property
    def splits(self) -> tuple[AttackView, AttackView, AttackView]:
        """All splits, in the order of `PARTS`."""
        return self.attack, self.validation, self.test


@dataclass(frozen=True, eq=False)
class Release:
    """One configuration's release, with everything that its evaluation needs.

    Attributes:
        original: The raw records of the attack, validation and test split.
        released: The same records after release.
        parameters: The releaser's parameters, without the stack's dimension.
        adversary: In-loop adversary's log probabilities on test, shape [n, C] or [n, T, C].
        utility: In-loop utility network's log probabilities on test, shape [n, C], or None.
        raw_utility: Log probabilities of the utility network that was trained on raw records:
            on raw and on released test records, shape [n, C] each; None without one.
    """

    config: AdversarialConfig
    original: Evidence
    released: Evidence
    parameters: list[Tensor]
    curves: dict[str, Curve]
    adversary: Tensor
    utility: Tensor | None
    raw_utility: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Known secrets of one split: a row per record, or per step of a sequence.

    Attributes:
        secret: Classes, shape [k].
        record: Record of each row, shape [k].
        step: Step of each row in its record, shape [k]; 0 if records are not sequences.
        cluster: Common origin of rows: the group, or else the record, shape [k].
    """

    secret: NDArray[np.int64]
    record: NDArray[np.int64]
    step: NDArray[np.int64]
    cluster: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AttackerGuesses:
    """An attacker's guesses of the known secrets of test, in the order of `KnownRows`.

    Attributes:
        decision: Classes, for balanced accuracy, shape [k].
        log_p: Calibrated log probabilities, shape [k, C].
    """

    decision: NDArray[np.int64]
    log_p: NDArray[np.float64]
