"""Registry of attackers, which are fitted afresh to finished releases to measure leakage.

A name without a dot joins the panel of every problem, and once more with the suffix `_side` where
there is side information. A name `PROBLEM.NAME` joins the panel of that problem only, as `NAME`.

An attacker's network is a constant of its problem (`ProblemSpec.attacker_width`). A profile fixes
everything else, so that all points judged by one profile have the same yardstick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from privnets.registry import Registry

if TYPE_CHECKING:
    from privnets.adversarial.problem import NetworkKind, ProblemSpec

ProfileName = Literal["quick", "full"]

SIDE: Final = "_side"
"""Suffix of attackers that see side information beside the release."""

LEAST_DRAWS: Final = 4
"""Releases of each record that attackers may have, however large a release is."""


@dataclass(frozen=True)
class PanelProfile:
    """Data, size and training of all attackers of a panel.

    Attributes:
        records: Most records of the attack split that attackers learn from that are not networks.
            If validation shows one of these the strongest, it learns again from all records.
        width_divisor: Networks have the problem's width divided by this number.
        separable: Whether networks are separable where the problem's are; else convolutional.
        steps: Most training steps of each network.
        draws: Most releases of each record for attackers that are not networks.
        numbers: Most feature values in all these releases together, if they are more than
            `LEAST_DRAWS`.
    """

    records: int
    width_divisor: int
    separable: bool
    steps: int
    draws: int
    numbers: int

    def most_draws(self, size: int) -> int:
        """Most releases of each record if one release has `size` feature values."""
        return min(self.draws, max(LEAST_DRAWS, self.numbers // size))

    def width(self, problem_width: int) -> int:
        """Units or channels of a network, at least 1."""
        return max(1, problem_width // self.width_divisor)

    def network(self, spec: ProblemSpec) -> tuple[NetworkKind, int]:
        """Kind of the networks for a problem, and their units or channels.

        Convolutional ones of half the width are as strong as separable ones on 32 pixels.
        """
        width = self.width(spec.attacker_width)
        is_plain = spec.network == "separable" and not self.separable
        return ("convolutional", max(1, width // 2)) if is_plain else (spec.network, width)


PROFILES: Final[Mapping[ProfileName, PanelProfile]] = {
    "quick": PanelProfile(2_000, 2, False, 12_000, draws=8, numbers=2**23),
    "full": PanelProfile(4_000, 1, True, 12_000, draws=64, numbers=2**26),
}

# Of `privnets.adversarial.attackers.attacker.Attacker`, whose module loads torch.
ATTACKERS: Final[Registry[Any]] = Registry(
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
