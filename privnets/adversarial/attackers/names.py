"""What attackers are called, known without fitting any."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

NETWORKS: Final = ("network", "large_network")
"""Neural attackers; `_side` is added to the names of those that also see side information."""

SIDE: Final = "_side"
"""Ends the name of an attacker that sees side information beside the release."""

Classifier = Literal["boosted_trees", "nearest_neighbours", "logistic_regression"]
CLASSIFIERS: Final[tuple[Classifier, ...]] = get_args(Classifier)
"""Attackers from scikit-learn."""

THICKNESS: Final = ("thickness_random", "thickness_thin", "thickness_thick")
"""Attackers that compute the thickness of strokes, by what they call images that are neither."""


def attacker_names(sequential: bool, side: bool, analytic: Iterable[str]) -> tuple[str, ...]:
    """The attackers of a panel, known without fitting any.

    Args:
        sequential: Whether records are sequences.
        side: Whether there is side information beside them.
        analytic: Names of the problem's own attackers.
    """
    general = (*NETWORKS, *CLASSIFIERS)
    informed = tuple(name + SIDE for name in general) if sequential and side else ()
    return (*general, *informed, *analytic)
