"""What the Gaussian mixture states of itself; see `privnets.adversarial.problems.mixture`."""

from __future__ import annotations

from typing import ClassVar, Final

from privnets.adversarial.config import DEFAULTS, AdversarialConfig
from privnets.adversarial.problems.fields_statement import idle, releaser_among
from privnets.adversarial.statement import Sizes, Statement
from privnets.contract import InvalidField

EXACT: Final = ("exact/leakage", "exact/censored", "exact/loss")
"""What a linear filter attains."""

OPTIMA: Final = ("bound/loss", "optimum/linear_loss")
"""What any release, and any linear filter, could attain."""

_VALIDATION, _TEST = 4_096, 16_384
_MOST = 2**20
_SIZES = ("train_size", "attack_size")
_IDLE = ("resolution", "side_information", "sequence")


class GaussianMixtureStatement(Statement):
    """Of two correlated bits in the plane."""

    name: ClassVar[str] = "gaussian-mixture"
    secret_classes: ClassVar[int] = 2
    utility_classes: ClassVar[int] = 2
    copies: ClassVar[bool] = False
    idle: ClassVar[tuple[str, ...]] = _IDLE

    def invalid_fields(self, config: AdversarialConfig) -> list[InvalidField]:
        """Fields that mean nothing here, and sizes that are none: records never run out."""
        found = idle(config, self.idle) + releaser_among(config, ("linear", "mlp"))
        for name in _SIZES:
            value = getattr(config, name)
            if value is None or value > _MOST:
                allowed = f"a number up to {_MOST} with {self.name}"
                found.append(InvalidField(name, "null" if value is None else str(value), allowed))
        return found

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Of the law and the way it is drawn; there is no file."""
        return "gaussian-mixture, synthetic, drawn as of version 1"

    def sizes(self, config: AdversarialConfig) -> Sizes:
        """Numbers of records."""
        train, attack = (
            int(getattr(config, name) or DEFAULTS[self.name][name] or 0) for name in _SIZES
        )
        return Sizes(train, attack, _VALIDATION, _TEST, (2,))

    def exact(self, config: AdversarialConfig) -> bool:
        """Of linear filters alone."""
        return config.releaser == "linear"

    def extra_metric_keys(self, config: AdversarialConfig) -> tuple[str, ...]:
        """What the learned filter attains, and what it could."""
        return (*EXACT, *OPTIMA)
