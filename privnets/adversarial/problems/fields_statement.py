"""Complaints about fields that a configuration has no use for."""

from __future__ import annotations

from collections.abc import Sequence

from privnets.adversarial.config import DEFAULTS, AdversarialConfig
from privnets.contract import InvalidField


def idle(
    config: AdversarialConfig, fields: Sequence[str], choice: str = "problem"
) -> list[InvalidField]:
    """Fields that mean nothing with the value of `choice` and yet are not at their default.

    Args:
        config: What is asked for.
        fields: Their names.
        choice: The field whose value has no use for them.
    """
    found = []
    for name in fields:
        value = getattr(config, name)
        default = DEFAULTS.get(config.problem, {}).get(
            name, AdversarialConfig.model_fields[name].default
        )
        if value != default:
            allowed = f"{default}, as {choice} {getattr(config, choice)} has no use for it"
            found.append(InvalidField(name, str(value), allowed))
    return found


def releaser_among(config: AdversarialConfig, allowed: Sequence[str]) -> list[InvalidField]:
    """A releaser that the problem's records do not fit."""
    if config.releaser in allowed:
        return []
    wanted = f"{' or '.join(allowed)} with {config.problem}"
    return [InvalidField("releaser", config.releaser, wanted)]
