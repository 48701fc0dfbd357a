"""Registry of attackers, which are fitted afresh to finished releases to measure leakage.

A name without a dot joins the panel of every problem, and once more with the suffix `_side` where
there is side information. A name `PROBLEM.NAME` joins the panel of that problem only, as `NAME`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from privnets.registry import Registry

if TYPE_CHECKING:
    from privnets.adversarial.attackers.attacker import Attacker
    from privnets.adversarial.problem import ProblemSpec

SIDE: Final = "_side"
"""Suffix of attackers that see side information beside the release."""

ATTACKERS: Final[Registry[Attacker]] = Registry(
    "attacker",
    "privnets.attackers",
    "privnets.adversarial.attackers.attacker:Attacker",
    {
        "network": "privnets.adversarial.attackers.neural:SmallNetwork",
        "large_network": "privnets.adversarial.attackers.neural:LargeNetwork",
        "boosted_trees": "privnets.adversarial.attackers.classical:BoostedTrees",
        "nearest_neighbours": "privnets.adversarial.attackers.classical:NearestNeighbours",
        "logistic_regression": "privnets.adversarial.attackers.classical:LogisticRegression",
        "amnist.thickness_random": "privnets.adversarial.attackers.thickness:RandomThickness",
        "amnist.thickness_thin": "privnets.adversarial.attackers.thickness:ThinThickness",
        "amnist.thickness_thick": "privnets.adversarial.attackers.thickness:ThickThickness",
    },
)


def general_names() -> tuple[str, ...]:
    """Registered names of the attackers that fit every problem."""
    return tuple(name for name in ATTACKERS.names() if "." not in name)


def specific_names(problem: str) -> tuple[str, ...]:
    """Registered names of the attackers that fit one problem only."""
    return tuple(name for name in ATTACKERS.names() if name.startswith(f"{problem}."))


def added_names() -> tuple[str, ...]:
    """Registered names of the attackers that packages add."""
    return tuple(name for name in ATTACKERS.names() if name not in ATTACKERS.builtin)


def panel_names(spec: ProblemSpec) -> tuple[str, ...]:
    """Names of a panel's attackers in metric keys; loads no attacker."""
    general = general_names()
    informed = tuple(name + SIDE for name in general) if spec.side_features else ()
    return (*general, *informed, *(n.split(".", 1)[1] for n in specific_names(spec.name)))
