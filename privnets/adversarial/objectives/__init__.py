"""Registry of objectives: one module per objective, and the objectives that packages add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from privnets.registry import Registry

if TYPE_CHECKING:
    from privnets.adversarial.objective import Objective

WEIGHTS: Final = frozenset(
    {
        "privacy_weight",
        "gradient",
        "distortion_weight",
        "utility_weight",
        "tradeoff",
        "estimator",
        "squaring",
    }
)
"""Fields of a configuration that only objectives read."""


OBJECTIVES: Final[Registry[Objective]] = Registry(
    "objective",
    "privnets.objectives",
    "privnets.adversarial.objective:Objective",
    {
        "alpha": "privnets.adversarial.objectives.alpha:AlphaObjective",
        "squared-kl": "privnets.adversarial.objectives.squared_kl:SquaredKLObjective",
    },
)
