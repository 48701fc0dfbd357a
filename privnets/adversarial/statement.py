"""What a problem states of itself: all that can be said without its records or a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from privnets.adversarial.config import AdversarialConfig
from privnets.contract import InvalidField


@dataclass(frozen=True)
class Sizes:
    """How many records a configuration uses, and of what shape; known without reading any."""

    train: int
    attack: int
    validation: int
    test: int
    record: tuple[int, ...]


class Statement(ABC):
    """Of a source of records with a secret and something of use."""

    name: ClassVar[str]
    secret_classes: ClassVar[int]
    utility_classes: ClassVar[int]
    """0 when there is no utility label."""

    sequential: ClassVar[bool] = False
    side_features: ClassVar[int] = 0
    """Columns of side information; 0 when there is none."""

    copies: ClassVar[bool] = True
    """Whether a release is to resemble its record, so that the difference means something."""

    idle: ClassVar[tuple[str, ...]] = ()
    """Fields that mean nothing with it."""

    analytic: ClassVar[tuple[str, ...]] = ()
    """Names of the attackers that only this problem has."""

    @abstractmethod
    def invalid_fields(self, config: AdversarialConfig) -> list[InvalidField]:
        """What this problem forbids; reads no file."""

    @abstractmethod
    def fingerprint(self, config: AdversarialConfig) -> str:
        """Of the data and the way it is read; DataError when absent or altered."""

    @abstractmethod
    def sizes(self, config: AdversarialConfig) -> Sizes:
        """Numbers of records; reads no file."""

    def exact(self, config: AdversarialConfig) -> bool:
        """Whether the exact information of releases is known, so that none need be attacked."""
        return False

    def extra_metric_keys(self, config: AdversarialConfig) -> tuple[str, ...]:
        """Metrics that this problem reports beside those of every problem."""
        return ()
