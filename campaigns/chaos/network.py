"""Hosts as network namespaces on one bridge, which can be disconnected."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field

from campaigns.chaos.world import BRIDGE, call

_FOREVER = ("sleep", "infinity")


@dataclass
class Host:
    """Network namespace with one virtual cable to the bridge.

    Attributes:
        number: Number from 1; part of the address.
        connected: Whether the cable is up.
    """

    number: int
    connected: bool = True
    _keeper: subprocess.Popen[bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Creates the namespace, with a process that keeps it alive."""
        self._keeper = subprocess.Popen(["unshare", "--net", *_FOREVER])
        self._await_own_network()
        cable = self._cable
        pid = str(self._keeper.pid)
        call("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", pid)
        call("ip", "link", "set", cable, "master", BRIDGE, "up")
        self._inside("ip", "link", "set", "lo", "up")
        self._inside("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self._inside("ip", "link", "set", "eth0", "up")
        self._inside("ip", "route", "add", "default", "dev", "eth0")

    @property
    def address(self) -> str:
        """IP address."""
        return f"10.77.0.{10 + self.number}"

    @property
    def keeper_pid(self) -> int:
        """Process id of the process that keeps the namespace alive."""
        return self._keeper.pid

    def wrap(self, *command: str) -> list[str]:
        """Returns the command that runs a command on this host."""
        return ["nsenter", "-t", str(self._keeper.pid), "-n", *command]

    def disconnect(self) -> None:
        """Disconnects the host: packets are dropped without a notice."""
        call("ip", "link", "set", self._cable, "down")
        self.connected = False

    def mend(self) -> None:
        """Connects the host again."""
        call("ip", "link", "set", self._cable, "up")
        self.connected = True

    @property
    def _cable(self) -> str:
        return f"cable{self.number}"

    def _inside(self, *command: str) -> None:
        call(*self.wrap(*command))

    def _await_own_network(self) -> None:
        # The process is a `sleep` once it has its own namespace.
        path = f"/proc/{self._keeper.pid}/comm"
        while True:
            with open(path) as file:
                if file.read().strip() == _FOREVER[0]:
                    return
