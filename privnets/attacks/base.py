"""Interface of membership attacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from privnets.attacks.view import Array, AttackerView

Family = Literal["threshold", "learned", "offline", "online"]
FAMILIES: Final[tuple[Family, ...]] = ("threshold", "learned", "offline", "online")

SIDES: Final[Mapping[Family, tuple[bool, ...]]] = {
    "threshold": (),
    "learned": (),
    "offline": (False,),
    "online": (False, True),
}
"""Reference models that each record needs: without the record (False), and with it (True)."""

BOUNDS_ON_OUTPUTS: Final = ("bound/advantage", "bound/advantage_output")
"""Bounds on attacks that depend on the model's output at the record alone."""

MIN_POPULATION: Final = 10
"""Least number of records in the population outside each training set, to rank among them."""

NO_POPULATION: Final = (
    "every record has models of its own, whose losses at other records are not observed"
)
"""Reason why an attack that needs losses at other records cannot be run."""

NO_TRAJECTORY: Final = (
    "the attacker sees no losses during training; torch modules with checkpoints do"
)
"""Reason why an attack that needs losses in the course of training cannot be run."""

TOO_FEW_REFERENCES: Final = "a record has too few shadow models that trained with it, or without it"
NO_PROBABILITIES: Final = "the probability of the true class is unknown"


class Attack(ABC):
    """Base class of membership attacks.

    Attributes:
        name: Name in metric keys and tables.
        family: Knowledge that the attack needs. `threshold` attacks see the judged model alone.
            `learned` attacks are fitted to outputs at other records or of other models. `offline`
            attacks have reference models trained without the record; `online` attacks also have
            reference models trained with it.
        paper: Source of the attack.
        bounds: Metrics that bound the attack's advantage, in order of preference; the first that
            is defined is checked.
        threshold: Least score of a member, if it is fixed. Otherwise other models or records
            choose the one with the largest advantage among them.
    """

    name: str
    family: ClassVar[Family]
    paper: str
    bounds: ClassVar[tuple[str, ...]] = BOUNDS_ON_OUTPUTS
    threshold: ClassVar[float | None] = None

    def why_unavailable(self, view: AttackerView) -> str | None:
        """Returns the reason why the attack cannot be run, or None."""
        return None

    @abstractmethod
    def score(self, view: AttackerView) -> Array:
        """Scores the judged models, larger for more likely members: shape [T, R].

        NaN where a record has too few reference models. Attacks of the family `learned` may use
        memberships of `SavedOutputs.known` records alone.
        """

    def choose_threshold(self, view: AttackerView) -> float | None:
        """Threshold of the judged models' scores that reference models imply, or None."""
        return self.threshold
