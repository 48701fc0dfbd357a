"""What AMNIST states of itself; see `privnets.adversarial.problems.amnist`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from privnets import data
from privnets.adversarial.attackers.names import THICKNESS
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems.images_statement import DigitImagesStatement
from privnets.adversarial.problems.splits import dealt
from privnets.adversarial.statement import Sizes

TRAIN: Final = 28_568
TEST: Final = 4_681
SHARES: Final = (5, 4, 1)
"""Of train, attack and validation: 50, 40 and 10% of the published training images."""

_FIELDS = ("train_size", "attack_size")


class AmnistStatement(DigitImagesStatement):
    """Of MNIST's thin and thick digits."""

    name: ClassVar[str] = "amnist"
    side: ClassVar[int] = 28
    analytic: ClassVar[tuple[str, ...]] = THICKNESS

    def limits(self) -> Mapping[str, int]:
        """The parts that the seed deals out."""
        return dict(zip(_FIELDS, dealt(TRAIN, SHARES), strict=False))

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Of MNIST's published files."""
        return data.fingerprint("mnist")

    def sizes(self, config: AdversarialConfig) -> Sizes:
        """Numbers of records."""
        train, attack, validation = dealt(TRAIN, SHARES)
        return Sizes(
            config.train_size or train,
            config.attack_size or attack,
            validation,
            TEST,
            (1, self.side, self.side),
        )
