"""Releases as tables for attackers that are no networks: one row per known secret."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.attackers.rows import Rows, known_rows
from privnets.adversarial.records import Evidence, Exposure

Matrix = NDArray[np.float32]
_NEIGHBOURS = 4  # steps on either side whose values are features
_WINDOWS = (12, 4)  # a window reaches over this part of a sequence on either side
_HARMONICS = 3


@dataclass(frozen=True, eq=False)
class Part:
    """One split as a table.

    Attributes:
        x: Features, shape [k, f].
        rows: Whose they are, and their secrets.
    """

    x: Matrix
    rows: Rows


@dataclass(frozen=True, eq=False)
class Tables:
    """The splits of a release as tables of the same columns.

    Attributes:
        attack: To learn from.
        validation: To tune on.
        test: To be judged on; only its `x` may be used.
        image: Whether columns are pixels, whose proportions matter.
    """

    attack: Part
    validation: Part
    test: Part
    image: bool = False


def tables(evidence: Evidence, *, side: bool) -> Tables:
    """What an attacker sees of a release, as tables.

    An image is its pixels and a vector its numbers. Of a sequence there is a row per known step,
    with the released values at and around it, statistics of windows around it and of the whole
    sequence, and its place in the sequence.

    Args:
        evidence: The release.
        side: Whether side information is seen beside it.
    """
    return Tables(
        _part(evidence.attack, side),
        _part(evidence.validation, side),
        _part(evidence.test, side),
        image=evidence.attack.z.ndim == 4,
    )


def without_release(evidence: Evidence) -> Tables:
    """What an attacker who sees no release knows of each step: its place, side information."""
    return Tables(_public(evidence.attack), _public(evidence.validation), _public(evidence.test))


def _part(exposure: Exposure, side: bool) -> Part:
    rows = known_rows(exposure)
    if exposure.z.ndim != 3:
        return Part(exposure.z.flatten(1).cpu().numpy()[rows.record], rows)
    steps = np.concatenate([_of_steps(exposure), _places(exposure)], axis=2)
    columns = [steps[rows.record, rows.step]]
    if side:
        columns.append(_side(exposure)[rows.record, rows.step])
    return Part(np.concatenate(columns, axis=1), rows)


def _public(exposure: Exposure) -> Part:
    rows = known_rows(exposure)
    columns = [_places(exposure)[rows.record, rows.step]]
    if exposure.side is not None:
        columns.append(_side(exposure)[rows.record, rows.step])
    return Part(np.concatenate(columns, axis=1), rows)


def _side(exposure: Exposure) -> Matrix:
    if exposure.side is None:
        raise ValueError("there is no side information.")
    side: Matrix = exposure.side.cpu().numpy()
    return side


def _places(exposure: Exposure) -> Matrix:
    """Where each step stands in its sequence: the share before it, and its harmonics."""
    records, steps = exposure.secret.shape
    share = np.arange(steps) / steps
    turns = [2 * np.pi * k * share for k in range(1, _HARMONICS + 1)]
    columns = np.stack([share, *map(np.sin, turns), *map(np.cos, turns)], axis=1)
    return np.broadcast_to(columns.astype(np.float32), (records, *columns.shape))


def _of_steps(exposure: Exposure) -> Matrix:
    """Released values around each step and their statistics, shape [n, T, features]."""
    z = exposure.z[..., 0].cpu().numpy()
    present = np.ones_like(z, dtype=bool)
    if exposure.present is not None:
        present = exposure.present.cpu().numpy()
    steps = z.shape[1]
    columns = _neighbours(z, present)
    for part in _WINDOWS:
        columns += _statistics(z, present, max(1, steps // part))
    columns += _statistics(z, present, steps)
    return np.stack(columns, axis=2).astype(np.float32)


def _neighbours(z: Matrix, present: NDArray[np.bool_]) -> list[Matrix]:
    """The values up to some steps away; the sequence's mean where there is none."""
    mean = _statistics(z, present, z.shape[1])[0]
    filled = np.pad(np.where(present, z, mean), ((0, 0), (_NEIGHBOURS, _NEIGHBOURS)), mode="edge")
    width = 2 * _NEIGHBOURS + 1
    return [filled[:, shift : shift + z.shape[1]] for shift in range(width)]


def _statistics(z: Matrix, present: NDArray[np.bool_], reach: int) -> list[Matrix]:
    """Mean, standard deviation, least and largest of the steps up to `reach` away; else 0."""
    from scipy.ndimage import minimum_filter1d, uniform_filter1d

    size = 2 * reach + 1
    values = np.where(present, z, 0).astype(np.float64)
    sums = [
        uniform_filter1d(column, size, axis=1, mode="constant") * size
        for column in (present.astype(np.float64), values, values**2)
    ]
    count = np.maximum(np.round(sums[0]), 1)
    mean = sums[1] / count
    spread = np.sqrt(np.maximum(sums[2] / count - mean**2, 0))
    least = minimum_filter1d(
        np.where(present, z, np.inf), size, axis=1, mode="constant", cval=np.inf
    )
    largest = -minimum_filter1d(
        np.where(present, -z, np.inf), size, axis=1, mode="constant", cval=np.inf
    )
    extremes = [np.where(np.isfinite(found), found, 0) for found in (least, largest)]
    return [column.astype(np.float32) for column in (mean, spread, *extremes)]
