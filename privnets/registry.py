"""Which experiments there are: the platform's own, and those that installed packages add.

A package adds one by an entry point of the group `privnets.experiments`, whose name is the
experiment's and whose object is its class. The platform's own names cannot be taken.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from privnets.contract import Experiment

GROUP = "privnets.experiments"
_OWN = {
    "adversarial": "privnets.adversarial.experiment:Adversarial",
    "membership": "privnets.membership.experiment:Membership",
}


class ExtensionError(ImportError):
    """A package offers an experiment under that name, and it cannot be used."""


def names() -> list[str]:
    """The name of every experiment, sorted; loads none of them."""
    from importlib.metadata import entry_points

    return sorted(_OWN.keys() | {point.name for point in entry_points(group=GROUP)})


def experiments() -> dict[str, Experiment]:
    """Every experiment by name.

    Raises:
        ExtensionError: If one that a package adds cannot be used.
    """
    return {name: experiment(name) for name in names()}


@cache
def experiment(name: str) -> Experiment:
    """The experiment called `name`; always the same object, as it holds no state.

    Raises:
        ValueError: If there is none of that name.
        ExtensionError: If a package adds it, and it cannot be used, or if two add it.
    """
    from importlib.metadata import EntryPoint, entry_points

    if name in _OWN:
        return _made(EntryPoint(name, _OWN[name], GROUP))
    offers = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if len(offers) > 1:
        raise ExtensionError(
            f"experiment {name!r} is offered by more than one package: {', '.join(sorted(offers))}"
        )
    if not offers:
        raise ValueError(f"experiment must be one of {names()}; got {name!r}.")
    return _made(*offers.values())


def _made(point: EntryPoint) -> Experiment:
    from privnets.contract import Experiment

    try:
        found = point.load()
        made = found() if isinstance(found, type) and issubclass(found, Experiment) else None
    except Exception as error:  # whatever a package of others raises while it loads
        raise ExtensionError(
            f"experiment {point.name!r} ({point.value}) cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
    if made is None or made.name != point.name:
        raise ExtensionError(
            f"experiment {point.name!r} ({point.value}) must be a class of "
            f"privnets.contract.Experiment with the name {point.name!r}; got {found!r}"
        )
    return made
