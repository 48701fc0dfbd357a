"""What the problems on images of digits state alike."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems.fields_statement import idle, releaser_among
from privnets.adversarial.statement import Statement
from privnets.contract import InvalidField

_IDLE = ("dependence", "resolution", "side_information", "sequence")


class DigitImagesStatement(Statement):
    """Of images of digits, whose strokes are thin or thick."""

    secret_classes: ClassVar[int] = 2
    utility_classes: ClassVar[int] = 10
    idle: ClassVar[tuple[str, ...]] = _IDLE
    side: ClassVar[int]
    """Of an image, in pixels."""

    def invalid_fields(self, config: AdversarialConfig) -> list[InvalidField]:
        """Fields that mean nothing on images, and sizes beyond the data."""
        found = idle(config, self.idle) + releaser_among(config, ("mlp", "convolutional"))
        for name, limit in self.limits().items():
            value = getattr(config, name)
            if value is not None and value > limit:
                found.append(InvalidField(name, str(value), f"at most {limit} with {self.name}"))
        return found

    @abstractmethod
    def limits(self) -> Mapping[str, int]:
        """The most that each field of a size can be."""
