"""Waiting for a cluster that has no room for a single pack yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Protocol

from sweeps.analysis.text import format_count
from sweeps.engine.capacity import slots, too_small
from sweeps.errors import InputError
from sweeps.study.spec import Resources

if TYPE_CHECKING:
    from cluster.connection import Connection, Machine

_LOOK_SECONDS: Final = 0.5
_OUTLOOK_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 120.0
_EMPTY_SECONDS: Final = 600.0


class Witness(Protocol):
    """Shows what is waited for."""

    def doing(self, what: str) -> AbstractContextManager[Callable[[], None]]:
        """A block that shows what is done, once what it yields is called."""

    def tick(self) -> None:
        """A moment has passed."""


def wait_for_capacity(
    connection: Connection,
    resources: Resources,
    witness: Witness,
    stopping: Callable[[], bool],
    patience: float = _PATIENCE_SECONDS,
    empty: float = _EMPTY_SECONDS,
) -> Sequence[Machine]:
    """The machines that there are, as soon as one of them has room for a pack.

    Until then the cluster's autoscaler, if it has one, is asked for such a machine. There is no
    end to waiting while it may bring one: pods load images for a long time. People who start nodes
    of a cluster without one are waited for as well, but not for ever: in a batch system that would
    use up an allocation for nothing.

    Args:
        connection: To the cluster.
        resources: What a pack is to have.
        witness: Told what is waited for.
        stopping: Asked often; once true, there is no waiting.
        patience: Seconds after which machines that are too small, with no other on the way, or an
            autoscaler that has none to offer, are no longer waited out.
        empty: Seconds after which a cluster is no longer waited out that lends nothing at all and
            has no autoscaler.

    Raises:
        InputError: If a pack will not fit.
    """
    machines = connection.machines()
    if connection.started or slots(machines, resources):
        return machines
    from cluster.scaling import demand

    with witness.doing(_words(resources)) as begun, demand(resources.cpus, resources.gpus):
        begun()
        doubt = _Doubt(connection, resources, patience, empty)
        while not (slots(machines, resources) or stopping()):
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
    if not slots(machines, resources):
        return _words(resources)
    return f"waiting for {_amount(resources)} to become free (all are in use by others)"


class _Doubt:
    """Whether it is time to give up."""

    def __init__(
        self, connection: Connection, resources: Resources, patience: float, empty: float
    ) -> None:
        self._connection = connection
        self._resources = resources
        self._patience = patience
        self._empty = empty
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
        untold = future == "unknown" and not any(m.cpus or m.gpus for m in machines)
        alone = untold and not self._connection.has_autoscaler()
        if future == "coming" or (untold and not alone):
            self._since = now
        if now - self._since >= (self._empty if alone else self._patience):
            raise self._deserted() if alone else too_small(machines, self._resources)

    def _deserted(self) -> InputError:
        return InputError(
            f"no node with {_amount(self._resources)} came within {self._empty / 60:g} minutes, "
            "and this Ray has no autoscaler that would bring one: start nodes (`ray start "
            "--address=HEAD:PORT`), then begin the sweep again"
        )


def _words(resources: Resources) -> str:
    return f"waiting for a node with {_amount(resources)}"


def _amount(resources: Resources) -> str:
    gpus = f" and {format_count(resources.gpus, 'GPU')}" if resources.gpus else ""
    return format_count(resources.cpus, "CPU") + gpus
