"""Interface of attackers: the release they see, as tensors or tables, and their posterior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import minimum_filter1d, uniform_filter1d

from privnets.adversarial.attackers import PROFILES, SIDE, PanelProfile
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackView, Evidence, KnownRows
from privnets.adversarial.problem import Problem
from privnets.adversarial.records import known_rows
from privnets.networks.layers import Architecture
from privnets.points import Curve

Matrix = NDArray[np.float32]

_NEIGHBOUR_STEPS = 4  # steps on either side whose values are features
_WINDOW_DIVISORS = (12, 4)  # a window spans this part of a sequence on either side
_HARMONICS = 3


@dataclass(frozen=True, eq=False)
class Posterior:
    """One fitted attacker's belief about the secret, in the order of `KnownRows`.

    Attributes:
        name: The attacker's name in metric keys.
        validation: Log probabilities before calibration, shape [n_validation, C].
        test: Log probabilities before calibration, shape [n_test, C].
        remaining_gain: Validation loss, nats, that twice the training may still remove; 0 if it
            converged.
        draws: Different releases of the attack split that it was trained on.
        is_frozen: Whether it learns from noise, and had a single release of each record for that.
        curve: Lowest validation loss so far by training step, nats; None without such steps.
    """

    name: str
    validation: NDArray[np.float64]
    test: NDArray[np.float64]
    remaining_gain: float = 0.0
    draws: int = 1
    is_frozen: bool = False
    curve: Curve | None = None


@dataclass(frozen=True, eq=False)
class Part:
    """One split as a table: features `x` [k, f], and the secret and origin of each row."""

    x: Matrix
    rows: KnownRows


@dataclass(frozen=True, eq=False)
class Tables:
    """The splits of a release as tables with the same columns; of `test` attackers use only `x`.

    Where `is_image`, columns are pixels, whose proportions matter.
    """

    attack: Part
    validation: Part
    test: Part
    is_image: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, eq=False)
class ReleaseView:
    """One release, in the CPU's memory, as an attacker with or without side information sees it.

    The profile limits the releases of each record.
    """

    evidence: Evidence
    sees_side: bool = False
    profile: PanelProfile = PROFILES["full"]
    _draws: dict[int, Part] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def tables(self) -> Tables:
        """The release as tables, shared by all attackers that read tables.

        An image is its pixels and a vector its numbers. A sequence gives one row per known step:
        released values at and near the step, statistics of windows around it and of the whole
        sequence, the place in the sequence, and side information if it is seen.
        """
        parts = (released_part(split, self.sees_side) for split in self.evidence.splits)
        return Tables(*parts, is_image=self.evidence.attack.z.ndim == 4)

    @property
    def most_draws(self) -> int:
        """Most releases of each record that `redrawn` gives; 1 if they would not differ."""
        if self.evidence.redraw is None:
            return 1
        return self.profile.most_draws(self.tables.attack.x.size)

    def redrawn(self, draws: int) -> Tables:
        """The tables with several releases of each record of the attack part, one below another.

        Attackers share the releases.
        """
        for draw in range(1, draws):
            if draw not in self._draws:  # two threads may compute the same table
                assert self.evidence.redraw is not None
                z = self.evidence.redraw(f"attack draw {draw}").cpu()
                part = released_part(replace(self.evidence.attack, z=z), self.sees_side)
                self._draws[draw] = part
        first = self.tables.attack
        parts = [first, *(self._draws[draw] for draw in range(1, draws))]
        x = np.concatenate([part.x for part in parts])
        columns = (np.tile(getattr(first.rows, f.name), draws) for f in fields(KnownRows))
        return replace(self.tables, attack=Part(x, KnownRows(*columns)))


class Attacker(ABC):
    """A `NetworkAttacker` or a `ReleaseAttacker`, under the name that the registry has for it."""

    name: ClassVar[str]


class NetworkAttacker(Attacker):
    """A neural network, trained for all releases of a stack at once."""

    @abstractmethod
    def architecture(
        self, problem: Problem, config: AdversarialConfig, sees_side: bool
    ) -> Architecture:
        """The network that maps released records to logits of the secret.

        Its size must follow from the problem and the panel's profile alone, so that all points
        have the same attackers.
        """


class ReleaseAttacker(Attacker):
    """An attacker fitted to one release at a time, on the CPU."""

    @abstractmethod
    def fit(self, view: ReleaseView, seed: int) -> Posterior:
        """Trains on the attack split, tunes on validation, and predicts validation and test.

        The view can release the attack split again. Secrets of the test split must not be used.
        Random draws follow from the seed.
        """

    def metric_name(self, view: ReleaseView) -> str:
        """The attacker's name in metric keys."""
        return self.name.rpartition(".")[2] + (SIDE if view.sees_side else "")


def released_part(exposure: AttackView, sees_side: bool) -> Part:
    """The known secrets of a split and the release as features; see `ReleaseView.tables`."""
    rows = known_rows(exposure)
    if exposure.z.ndim != 3:
        return Part(exposure.z.flatten(1).cpu().numpy()[rows.record], rows)
    steps = np.concatenate([_step_features(exposure), _step_places(exposure)], axis=2)
    return _step_table(steps, exposure, rows, sees_side)


def public_tables(evidence: Evidence) -> Tables:
    """Facts about each step that are known without a release: its place and side information."""
    return Tables(
        *(_step_table(_step_places(s), s, known_rows(s), sees_side=True) for s in evidence.splits)
    )


def _step_table(steps: Matrix, exposure: AttackView, rows: KnownRows, sees_side: bool) -> Part:
    """The rows of features [n, T, f], with side information if there is any to be seen."""
    if sees_side and exposure.side is not None:
        steps = np.concatenate([steps, exposure.side.cpu().numpy()], axis=2)
    return Part(steps[rows.record, rows.step], rows)


def _step_places(exposure: AttackView) -> Matrix:
    """Place of each step in its sequence, in [0, 1), and its harmonics; shape [n, T, 7]."""
    records, steps = exposure.secret.shape
    share = np.arange(steps) / steps
    turns = [2 * np.pi * k * share for k in range(1, _HARMONICS + 1)]
    columns = np.stack([share, *map(np.sin, turns), *map(np.cos, turns)], axis=1)
    return np.broadcast_to(columns.astype(np.float32), (records, *columns.shape))


def _step_features(exposure: AttackView) -> Matrix:
    """Released values near each step and their statistics, shape [n, T, features]."""
    z = exposure.z[..., 0].cpu().numpy()
    present = np.ones_like(z, dtype=bool)
    if exposure.present is not None:
        present = exposure.present.cpu().numpy()
    steps = z.shape[1]
    whole = _window_statistics(z, present, steps)
    # Values up to four steps away; the sequence's mean where there is none.
    margin = (_NEIGHBOUR_STEPS, _NEIGHBOUR_STEPS)
    padded = np.pad(np.where(present, z, whole[0]), ((0, 0), margin), mode="edge")
    columns = [padded[:, shift : shift + steps] for shift in range(2 * _NEIGHBOUR_STEPS + 1)]
    for divisor in _WINDOW_DIVISORS:
        columns += _window_statistics(z, present, max(1, steps // divisor))
    return np.stack([*columns, *whole], axis=2).astype(np.float32)


def _window_statistics(z: Matrix, present: NDArray[np.bool_], reach: int) -> list[Matrix]:
    """Mean, standard deviation, minimum and maximum of the steps up to `reach` away; else 0."""
    size = 2 * reach + 1
    values = np.where(present, z, 0).astype(np.float64)
    sums = [
        uniform_filter1d(column, size, axis=1, mode="constant") * size
        for column in (present.astype(np.float64), values, values**2)
    ]
    count = np.maximum(np.round(sums[0]), 1)
    mean = sums[1] / count
    spread = np.sqrt(np.maximum(sums[2] / count - mean**2, 0))
    minimum = partial(minimum_filter1d, size=size, axis=1, mode="constant", cval=np.inf)
    smallest = minimum(np.where(present, z, np.inf))
    largest = -minimum(np.where(present, -z, np.inf))
    extremes = [np.where(np.isfinite(extreme), extreme, 0) for extreme in (smallest, largest)]
    return [column.astype(np.float32) for column in (mean, spread, *extremes)]
