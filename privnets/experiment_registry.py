"""Experiments by name: packaged and added ones, and functions of the user."""

from __future__ import annotations

from typing import Any

from privnets.contract import Experiment
from privnets.registry import EXPERIMENTS, is_own_experiment


def experiment(name: str) -> Experiment[Any]:
    """Returns the experiment with this name, or that of the function at `module:name`.

    Raises:
        ValueError: If no experiment has this name.
        ExtensionError: If it cannot be loaded.
        UserFormError: If the function is no experiment; see `privnets.references.experiments`.
    """
    if is_own_experiment(name):
        from privnets.references.experiments import own_experiment

        return own_experiment(name)
    named: Experiment[Any] = EXPERIMENTS.get(name)
    return named


def experiments() -> dict[str, Experiment[Any]]:
    """Returns all experiments by name."""
    return {name: experiment(name) for name in EXPERIMENTS.names()}
