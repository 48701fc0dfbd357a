"""Privacy experiments: configurations in, trade-off points out.

Importing this package loads neither torch nor anything else that is slow; an experiment's module
loads when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from privnets.points import Curve, Replicate, TradeoffPoint, merge_replicates

if TYPE_CHECKING:
    from privnets.contract import Experiment

__all__ = ["Curve", "Replicate", "TradeoffPoint", "experiment", "experiments", "merge_replicates"]

_EXPERIMENTS = {
    "adversarial": ("privnets.adversarial.experiment", "Adversarial"),
    "membership": ("privnets.membership.experiment", "Membership"),
}


def experiments() -> dict[str, Experiment]:
    """Every experiment by name."""
    return {name: experiment(name) for name in _EXPERIMENTS}


def experiment(name: str) -> Experiment:
    """The experiment called `name`.

    Raises:
        ValueError: If there is none of that name.
    """
    if name not in _EXPERIMENTS:
        raise ValueError(f"experiment must be one of {sorted(_EXPERIMENTS)}; got {name!r}.")
    module, cls = _EXPERIMENTS[name]
    made: Experiment = getattr(import_module(module), cls)()
    return made
