"""Statements of the problems, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from privnets.adversarial.problems.amnist_statement import AmnistStatement
from privnets.adversarial.problems.digits_statement import DigitsStatement
from privnets.adversarial.problems.eco_statement import EcoStatement
from privnets.adversarial.problems.mixture_statement import GaussianMixtureStatement
from privnets.adversarial.statement import Statement

_STATEMENTS: Final[Mapping[str, Statement]] = {
    made.name: made
    for made in (GaussianMixtureStatement(), DigitsStatement(), AmnistStatement(), EcoStatement())
}


def statement(name: str) -> Statement:
    """The statement of a configuration's problem.

    Raises:
        KeyError: If there is none of that name.
    """
    return _STATEMENTS[name]
