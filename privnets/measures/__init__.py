"""Measures of information and leakage: pure functions, in nats.

Arguments are torch tensors or NumPy arrays (or what NumPy makes an array of) whose leading
dimensions are a batch. Everything is computed in float64. Tensors give a float64 tensor on the
same device, differentiable where the measure is; arrays give an array, or a NumPy float where no
batch is left; plain numbers give a float. Distributions need to sum to 1 only up to the square
root of their dtype's precision, and are then normalised. A measure raises ValueError if an
argument is out of the range stated, not a distribution, or of a shape that does not fit.

Importing this package loads no module; they load when a measure is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privnets.measures.best_release import best_loss, release_boundary
    from privnets.measures.bounds import (
        gaussian_mechanism_delta,
        gaussian_mechanism_sigma,
        gaussian_noise_advantage_bound,
        membership_advantage_bound,
        privacy_advantage_bound,
        release_bound,
    )
    from privnets.measures.entropies import (
        arimoto_conditional_entropy,
        arimoto_mutual_information,
        kl_divergence,
        mutual_information,
        renyi_entropy,
        sibson_mutual_information,
    )
    from privnets.measures.filters import best_linear_loss
    from privnets.measures.mixture import DATA_STD, FilterInformation, filter_information, joint_us

__all__ = [
    "DATA_STD",
    "FilterInformation",
    "arimoto_conditional_entropy",
    "arimoto_mutual_information",
    "best_linear_loss",
    "best_loss",
    "filter_information",
    "gaussian_mechanism_delta",
    "gaussian_mechanism_sigma",
    "gaussian_noise_advantage_bound",
    "joint_us",
    "kl_divergence",
    "membership_advantage_bound",
    "mutual_information",
    "privacy_advantage_bound",
    "release_bound",
    "release_boundary",
    "renyi_entropy",
    "sibson_mutual_information",
]

_MODULES = ("entropies", "bounds", "mixture", "filters", "best_release")


def __getattr__(name: str) -> object:
    """Returns a measure from the module that defines it."""
    if name in __all__:
        modules = (import_module(f"{__name__}.{module}") for module in _MODULES)
        return next(getattr(module, name) for module in modules if hasattr(module, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
