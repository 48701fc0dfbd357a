"""Who takes part in a sweep: this machine alone, or the driver and all nodes of a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, final

from sweeps.doctor.bounded import Background, Trouble, at_once

if TYPE_CHECKING:
    from cluster.connection import Machine

T = TypeVar("T")

DRIVER: Final = "driver"
# For a process to start on a node whose processors are all at work.
_START_SECONDS: Final = 40.0


class Parties(ABC):
    """Everybody who takes part, each known by a mark, and called by a name.

    Attributes:
        machines: Mark to what it is taken to have.
        called: Mark to name; empty for a machine alone.
        leader: The mark of the one who leads.
    """

    machines: Mapping[str, Machine]
    called: Mapping[str, str]
    leader: str

    @abstractmethod
    def ask(
        self, function: Callable[..., T], *args: object, seconds: float
    ) -> dict[str, T | Trouble]:
        """Have everybody do the same at once.

        Args:
            function: Of a module; takes the party's own mark and `args`.
            args: Plain values.
            seconds: That it may take.

        Returns:
            Mark to what it returned, or why it did not.
        """

    def nodes(self) -> Sequence[str]:
        """The marks of those who train."""
        return list(self.machines)


@final
class Alone(Parties):
    """This machine."""

    def __init__(self, machine: Machine) -> None:
        """Begin.

        Args:
            machine: What it has.
        """
        self.leader = "here"
        self.machines = {self.leader: machine}
        self.called = {self.leader: ""}

    def ask(
        self, function: Callable[..., T], *args: object, seconds: float
    ) -> dict[str, T | Trouble]:
        """Do it in a thread."""
        return at_once({self.leader: lambda: function(self.leader, *args)}, seconds)


@final
class Cluster(Parties):
    """This process, which leads, and all nodes of the Ray that it is connected to."""

    def __init__(self, machines: Sequence[Machine], environment: Mapping[str, str]) -> None:
        """Begin.

        Args:
            machines: The nodes that are alive now; those that join later are not asked.
            environment: Variables to set on them.
        """
        from cluster.nodes import node_names

        self.leader = DRIVER
        self.machines = {machine.node: machine for machine in machines}
        self.called = {m.node: name for m, name in node_names(machines).items()} | {DRIVER: DRIVER}
        self._environment = environment

    def ask(
        self, function: Callable[..., T], *args: object, seconds: float
    ) -> dict[str, T | Trouble]:
        """Do it in a thread here, and in a process on each node."""
        from cluster.nodes import NoAnswer, on_every_node

        own = Background(lambda: function(DRIVER, *args))
        told = on_every_node(
            _on_node,
            function,
            *args,
            seconds=seconds + _START_SECONDS,
            environment=self._environment,
        )
        found: dict[str, T | Trouble] = {
            machine.node: Trouble(said.reason) if isinstance(said, NoAnswer) else said
            for machine, said in told.items()
            if machine.node in self.machines
        }
        lost = {mark: Trouble("the node is gone") for mark in self.machines if mark not in found}
        return {**found, **lost, DRIVER: own.result(seconds, seconds)}


def _on_node(function: Callable[..., T], *args: object) -> T:
    import ray

    return function(ray.get_runtime_context().get_node_id(), *args)
