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
        "amnist.thickness_learned": "privnets.adversarial.attackers.thickness:LearnedThickness",
        "amnist.thickness_random": "privnets.adversarial.attackers.thickness:RandomThickness",
        "amnist.thickness_thin": "privnets.adversarial.attackers.thickness:ThinThickness",
        "amnist.thickness_thick": "privnets.adversarial.attackers.thickness:ThickThickness",
    },
)


def added_names() -> tuple[str, ...]:
    """Registered names of the attackers that packages add."""
    return tuple(name for name in ATTACKERS.names() if name not in ATTACKERS.builtin)


def panel_members(spec: ProblemSpec) -> dict[str, str]:
    """Registered names of a panel's attackers, by name in metric keys; loads no attacker."""
    general = [name for name in ATTACKERS.names() if "." not in name]
    informed = {name + SIDE: name for name in general} if spec.side_features else {}
    own = [name for name in ATTACKERS.names() if name.startswith(f"{spec.name}.")]
    specific = {name.split(".", 1)[1]: name for name in own}
    return {name: name for name in general} | informed | specific
