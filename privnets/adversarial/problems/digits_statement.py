"""What scikit-learn's digits state of themselves; see `privnets.adversarial.problems.digits`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from privnets import data
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems.images_statement import DigitImagesStatement
from privnets.adversarial.problems.splits import dealt
from privnets.adversarial.statement import Sizes

SHARES: Final = (8, 7, 2, 3)
"""Of train, attack, validation and test: 40, 35, 10 and 15%."""

_RECORDS = 1_797
_FIELDS = ("train_size", "attack_size")


class DigitsStatement(DigitImagesStatement):
    """Of 1,797 digits."""

    name: ClassVar[str] = "digits"
    side: ClassVar[int] = 8

    def limits(self) -> Mapping[str, int]:
        """The parts that the seed deals out."""
        return dict(zip(_FIELDS, dealt(_RECORDS, SHARES), strict=False))

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Of the digits that scikit-learn ships."""
        return data.fingerprint("digits")

    def sizes(self, config: AdversarialConfig) -> Sizes:
        """Numbers of records."""
        train, attack, validation, test = dealt(_RECORDS, SHARES)
        return Sizes(
            config.train_size or train,
            config.attack_size or attack,
            validation,
            test,
            (1, self.side, self.side),
        )
