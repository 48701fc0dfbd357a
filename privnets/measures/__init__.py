"""Measures of information and leakage: pure functions, in nats.

Arguments are torch tensors or NumPy arrays (or what NumPy makes an array of) whose leading
dimensions are a batch. Everything is computed in float64. Tensors give a float64 tensor on the
same device, differentiable where the measure is; arrays give an array, or a NumPy float where no
batch is left; plain numbers give a float. Distributions need to sum to 1 only up to the square
root of their dtype's precision, and are then normalised. A measure raises ValueError if an
argument is out of the range stated, not a distribution, or of a shape that does not fit.

Importing this package loads no module; a measure's module loads when the measure is first used.
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
        gaussian_noise_rho_kl_bound,
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
    from privnets.measures.gaussian import gaussian_jeffreys, gaussian_kl
    from privnets.measures.mixture import DATA_STD, FilterInformation, filter_information, joint_us

__all__ = [
    "DATA_STD",
    "FilterInformation",
    "arimoto_conditional_entropy",
    "arimoto_mutual_information",
    "best_linear_loss",
    "best_loss",
    "filter_information",
    "gaussian_jeffreys",
    "gaussian_kl",
    "gaussian_mechanism_delta",
    "gaussian_mechanism_sigma",
    "gaussian_noise_advantage_bound",
    "gaussian_noise_rho_kl_bound",
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

_MODULES = {
    "DATA_STD": "privnets.measures.mixture",
    "FilterInformation": "privnets.measures.mixture",
    "arimoto_conditional_entropy": "privnets.measures.entropies",
    "arimoto_mutual_information": "privnets.measures.entropies",
    "best_linear_loss": "privnets.measures.filters",
    "best_loss": "privnets.measures.best_release",
    "filter_information": "privnets.measures.mixture",
    "gaussian_jeffreys": "privnets.measures.gaussian",
    "gaussian_kl": "privnets.measures.gaussian",
    "gaussian_mechanism_delta": "privnets.measures.bounds",
    "gaussian_mechanism_sigma": "privnets.measures.bounds",
    "gaussian_noise_advantage_bound": "privnets.measures.bounds",
    "gaussian_noise_rho_kl_bound": "privnets.measures.bounds",
    "joint_us": "privnets.measures.mixture",
    "kl_divergence": "privnets.measures.entropies",
    "membership_advantage_bound": "privnets.measures.bounds",
    "mutual_information": "privnets.measures.entropies",
    "privacy_advantage_bound": "privnets.measures.bounds",
    "release_bound": "privnets.measures.bounds",
    "release_boundary": "privnets.measures.best_release",
    "renyi_entropy": "privnets.measures.entropies",
    "sibson_mutual_information": "privnets.measures.entropies",
}


def __getattr__(name: str) -> object:
    """Loads the module that defines a measure."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
