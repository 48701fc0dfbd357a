"""Waiting for a cluster that has no room for a single pack yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Protocol

from sweeps.remaining import places, too_small
from sweeps.spec import Resources
from sweeps.wording import counted

if TYPE_CHECKING:
    from cluster.connection import Connection, Machine

_LOOK_SECONDS: Final = 0.5
_OUTLOOK_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 120.0


class Witness(Protocol):
    """Shows what is waited for."""

    def doing(self, what: str) -> AbstractContextManager[Callable[[], None]]:
        """A block that shows what is done, once what it yields is called."""

    def tick(self) -> None:
        """A moment has passed."""


def lending(
    connection: Connection,
    resources: Resources,
    witness: Witness,
    stopping: Callable[[], bool],
    patience: float = _PATIENCE_SECONDS,
) -> Sequence[Machine]:
    """The machines that there are, as soon as one of them has room for a pack.

    Until then the cluster's autoscaler, if it has one, is asked for such a machine. There is no
    end to waiting while one may come: pods load images, and people start nodes, for a long time.

    Args:
        connection: To the cluster.
        resources: What a pack is to have.
        witness: Told what is waited for.
        stopping: Asked often; once true, there is no waiting.
        patience: Seconds after which machines that are too small, with no other on the way, or an
            autoscaler that has none to offer, are no longer waited out.

    Raises:
        InputError: If a pack will not fit.
    """
    machines = connection.machines()
    if connection.started or places(machines, resources):
        return machines
    from cluster.scaling import Demand

    with witness.doing(_words(resources)) as begun, Demand(resources.cpus, resources.gpus) as ask:
        begun()
        doubt = _Doubt(resources, patience)
        while not (places(machines, resources) or stopping()):
            ask.ask(1)
            witness.tick()
            doubt.look(machines)
            time.sleep(_LOOK_SECONDS)
            machines = connection.machines()
    return machines


def lack(machines: Sequence[Machine], resources: Resources) -> str:
    """What a sweep waits for while none of its packs is in training.

    Args:
        machines: Those that there are.
        resources: What a pack is to have.
    """
    if not places(machines, resources):
        return _words(resources)
    return f"waiting for {_amount(resources)} to become free (all are in use by others)"


class _Doubt:
    """Whether it is time to give up."""

    def __init__(self, resources: Resources, patience: float) -> None:
        self._resources = resources
        self._patience = patience
        self._looked = self._since = time.monotonic()

    def look(self, machines: Sequence[Machine]) -> None:
        """Look, now and then, at what may still come.

        Raises:
            InputError: If nothing will.
        """
        from cluster.scaling import outlook

        now = time.monotonic()
        if now - self._looked < _OUTLOOK_SECONDS:
            return
        self._looked = now
        future = outlook(self._resources.cpus, self._resources.gpus)
        lent = any(machine.cpus or machine.gpus for machine in machines)
        if future == "coming" or (future == "unknown" and not lent):
            self._since = now
        if now - self._since >= self._patience:
            raise too_small(machines, self._resources)


def _words(resources: Resources) -> str:
    return f"waiting for a node with {_amount(resources)}"


def _amount(resources: Resources) -> str:
    gpus = f" and {counted(resources.gpus, 'GPU')}" if resources.gpus else ""
    return counted(resources.cpus, "CPU") + gpus
