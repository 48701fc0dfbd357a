"""The toy sweep that `end_to_end` has every contestant run: weight on privacy x dependence.

Settings of one game are here in plain values, so that no contestant needs another's code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

Value = float | int

TRADEOFFS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
DEPENDENCES: Final = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)

EVERY = 20
"""Steps between two values of a training curve."""

CURVES: Final = (
    "loss/releaser",
    "loss/adversary",
    "loss/utility",
    "accuracy/adversary",
    "accuracy/utility",
    "distortion",
    "information/leakage",
    "information/censored",
    "exact/leakage",
    "exact/censored",
)
"""Means over steps since the value before, then what is exact of the filter at that step."""

_GAME: Final[Mapping[str, Value]] = {
    "seed": 0,
    "train_size": 8192,
    "batch_size": 128,
    "adversary_width": 64,
    "adversary_steps": 1,
    "noise_std": 1.0,
    "learning_rate": 0.05,
    "adversary_learning_rate": 0.01,
}


DEPENDENCE: Final = "problem.gaussian-mixture.dependence"
"""The axis of dependence, as this platform names it."""

JUDGED: Final[Mapping[str, Mapping[str, Value | str]]] = {
    "exact": {"evaluation": "exact"},
    "attackers": {"evaluation": "attackers", "panel": "quick"},
}
"""Ways to judge releases, as fields of this platform's experiment."""


def axes(points: int) -> tuple[Sequence[float], Sequence[float]]:
    """Weights and dependences whose grid has the given number of points; the whole one has 64.

    Raises:
        ValueError: If no part of the whole grid has that size.
    """
    for across in range(math.isqrt(points), 0, -1):
        if points % across == 0 and points // across <= len(TRADEOFFS):
            return _spread(TRADEOFFS, points // across), _spread(DEPENDENCES, across)
    raise ValueError(f"points must be the size of a grid of at most 8 x 8; got {points}.")


def games(points: int, steps: int) -> list[dict[str, Value]]:
    """Every point's game, as `plain_toy.Settings` takes it."""
    tradeoffs, dependences = axes(points)
    return [
        {"tradeoff": a, "dependence": k, "steps": steps, **_GAME}
        for a in tradeoffs
        for k in dependences
    ]


def fields(steps: int, judged: str) -> dict[str, Value | str]:
    """A game as this platform's `adversarial` experiment takes it, but for the two axes.

    Args:
        steps: Of the game.
        judged: A key of `JUDGED`.
    """
    game = {name: value for name, value in _GAME.items() if name != "seed"}
    of = {"problem": "gaussian-mixture", "objective": "squared-kl"}
    return {**of, "steps": steps, **game, **JUDGED[judged]}


def study(points: int, steps: int, judged: str) -> dict[str, object]:
    """The same sweep as a study of this platform."""
    tradeoffs, dependences = axes(points)
    return {
        "name": "toy",
        "experiment": "adversarial",
        "fixed": fields(steps, judged),
        "space": {
            "tradeoff": {"grid": list(tradeoffs)},
            DEPENDENCE: {"grid": list(dependences)},
        },
        "replicates": 1,
    }


def _spread(values: Sequence[float], count: int) -> Sequence[float]:
    """Returns a number of the values, evenly spaced from the first to the last."""
    if count == 1:
        return values[:1]
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]
