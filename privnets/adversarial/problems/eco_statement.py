"""What ECO states of itself; see `privnets.adversarial.problems.eco`."""

from __future__ import annotations

from typing import ClassVar

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems.fields_statement import idle, releaser_among
from privnets.adversarial.problems.windows import SIDE_FEATURES
from privnets.adversarial.statement import Sizes, Statement
from privnets.contract import InvalidField
from privnets.data import eco
from privnets.data.eco import STEPS

# Windows of household 2, aggregated, in either resolution.
_SIZES = (443, 336, 100, 12)
_IDLE = ("dependence", "utility_weight", "tradeoff", "estimator", "squaring")


class EcoStatement(Statement):
    """Of daily windows of household power."""

    name: ClassVar[str] = "eco"
    secret_classes: ClassVar[int] = 2
    utility_classes: ClassVar[int] = 0
    sequential: ClassVar[bool] = True
    side_features: ClassVar[int] = SIDE_FEATURES
    idle: ClassVar[tuple[str, ...]] = _IDLE

    def invalid_fields(self, config: AdversarialConfig) -> list[InvalidField]:
        """Fields that mean nothing without a utility label, and sizes beyond the data at hand."""
        found = idle(config, self.idle) + releaser_among(config, ("recurrent",))
        if config.scenario == "fixed-utility":
            allowed = "joint or fixed-both, as eco has no utility label"
            found.append(InvalidField("scenario", config.scenario, allowed))
        if eco.source() == "aggregated":
            limits = zip(("train_size", "attack_size"), _SIZES, strict=False)
            found += [f for name, limit in limits for f in above(config, name, limit)]
        return found

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Of the source of the recordings and its contents."""
        return eco.Eco().fingerprint()

    def sizes(self, config: AdversarialConfig) -> Sizes:
        """Numbers of windows of the aggregated household; published ones give more."""
        train, attack, validation, test = _SIZES
        return Sizes(
            config.train_size or train,
            config.attack_size or attack,
            validation,
            test,
            (STEPS[config.resolution], 1),
        )


def above(config: AdversarialConfig, name: str, limit: int) -> list[InvalidField]:
    """A size that is beyond the recordings."""
    value = getattr(config, name)
    if value is None or value <= limit:
        return []
    return [InvalidField(name, str(value), f"at most {limit} with the recordings of eco")]
