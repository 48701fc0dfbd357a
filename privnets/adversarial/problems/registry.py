"""Problems by name."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from privnets.adversarial.problem import Problem

_PROBLEMS = {
    "gaussian-mixture": ("mixture", "GaussianMixture"),
    "digits": ("digits", "Digits"),
    "amnist": ("amnist", "Amnist"),
    "eco": ("eco", "Eco"),
}


@cache
def problem(name: str) -> Problem:
    """The problem of a configuration.

    Raises:
        KeyError: If there is none of that name.
    """
    module, cls = _PROBLEMS[name]
    made: Problem = getattr(import_module(f"privnets.adversarial.problems.{module}"), cls)()
    return made
