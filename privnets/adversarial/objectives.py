"""Registry of objectives of releasers, and the fields that they alone read."""

from __future__ import annotations

from typing import Any, Final

from privnets.registry import Registry

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

# Of `privnets.adversarial.objective.Objective`, whose configurations are made with this registry.
OBJECTIVES: Final[Registry[Any]] = Registry(
    "objective",
    "privnets.objectives",
    "privnets.adversarial.objective:Objective",
    {
        "alpha": "privnets.adversarial.objective:AlphaObjective",
        "squared-kl": "privnets.adversarial.objective:SquaredKLObjective",
    },
)
