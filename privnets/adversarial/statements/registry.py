"""Statements of the problems, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from privnets.adversarial.statement import Statement
from privnets.adversarial.statements.amnist import AmnistStatement
from privnets.adversarial.statements.digits import DigitsStatement
from privnets.adversarial.statements.eco import EcoStatement
from privnets.adversarial.statements.mixture import GaussianMixtureStatement

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
