"""Registry of experiments, packaged and added ones; a user's function counts as one by its path."""

from __future__ import annotations

from typing import Final

from privnets.contract import Experiment
from privnets.registry import Registry, is_own_experiment

EXPERIMENTS: Final[Registry[Experiment]] = Registry(
    "experiment",
    "privnets.experiments",
    "privnets.contract:Experiment",
    {
        "adversarial": "privnets.adversarial.experiment:Adversarial",
        "membership": "privnets.membership.experiment:Membership",
    },
)


def experiment(name: str) -> Experiment:
    """Returns the experiment with this name, or that of the function at `module:name`.

    Raises:
        ValueError: If no experiment has this name.
        ExtensionError: If it cannot be loaded.
        UserFormError: If the function is no experiment; see `privnets.references.experiments`.
    """
    if is_own_experiment(name):
        from privnets.references.experiments import own_experiment

        return own_experiment(name)
    return EXPERIMENTS.get(name)


def experiments() -> dict[str, Experiment]:
    """Returns all experiments by name."""
    return {name: experiment(name) for name in EXPERIMENTS.names()}
