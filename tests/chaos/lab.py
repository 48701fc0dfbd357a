"""A lab's machines: a Ray cluster on hosts of their own, MLflow on PostgreSQL, disks and clocks."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.chaos.experiment.privnets_chaos import TRACE
from tests.chaos.network import Host
from tests.chaos.nodes import CLOCK, Cluster, Node, clock_file, environment, title, tree
from tests.chaos.servers import Database, Door, Tracking
from tests.chaos.world import HEAD, call

ENOUGH = 2
HOSTS = 4

_DISK = "24m"


class Lab:
    """Everything that a sweep needs except its driver.

    Attributes:
        folder: Everything that is written goes below it.
        hosts: Machines in miniature, some with a node.
        cluster: That drivers join now.
        lost: Clusters without a head whose nodes still run.
        database: Of the tracking server.
        tracking: The tracking server.
        door: The way to it.
        trace: Where the experiment notes the trainings that begin.
        clocks: Whether clocks can be made to jump here.
        temporary: Directory for temporary files of drivers only.
    """

    def __init__(self, folder: Path, nodes: int = ENOUGH, jumping_clocks: bool = True) -> None:
        """Start all of it: a head, its nodes, the servers.

        Args:
            folder: Short and empty.
            nodes: How many a cluster has at first.
            jumping_clocks: Whether clocks jump, where that is possible.
        """
        self.folder = folder
        self._nodes = nodes
        # Before there are nodes, which then see it too.
        self._disk = folder / "d"
        self._disk.mkdir()
        call("mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(self._disk))
        self.trace = folder / "trace"
        self.temporary = folder / "t"
        self.temporary.mkdir()
        self.clocks = jumping_clocks and clocks_can_jump()
        faked = {"LD_PRELOAD": _clock_library(folder)} if self.clocks else {}
        self._environment = environment(folder, **{TRACE: str(self.trace)}, **faked)
        os.environ["RAY_AUTH_MODE"] = self._environment["RAY_AUTH_MODE"]
        os.environ["RAY_AUTH_TOKEN"] = self._environment["RAY_AUTH_TOKEN"]
        for address in (HEAD, *(f"10.77.0.{10 + i}" for i in range(1, HOSTS + 1))):
            self.set_clock(address, 0)
        self.hosts = [Host(number) for number in range(1, HOSTS + 1)]
        self.lost: list[Cluster] = []
        self.database = Database(folder / "p")
        self.database.start()
        self.tracking = Tracking(folder / "m", self.database)
        self.tracking.start()
        self.door = Door(self.tracking.port)
        self._starting: threading.Thread | None = None
        self.cluster = self._cluster(0)

    @property
    def tracking_uri(self) -> str:
        """URI of the tracking server through its proxy."""
        return f"http://127.0.0.1:{self.door.port}"

    def command(self, *arguments: str) -> list[str]:
        """A `sweeps` command."""
        return [sys.executable, "-c", "from sweeps.cli.main import main; main()", *arguments]

    def drive(self, said: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
        """Start a `sweeps` command beside the head; what it says is added to a file."""
        own = {"TMPDIR": str(self.temporary), CLOCK: str(clock_file(self.folder, HEAD))}
        with said.open("ab") as file:
            return subprocess.Popen(
                self.command(*arguments), cwd=self.folder, env={**self._environment, **own},
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip

    def disk(self) -> Path:
        """The small disk that all machines share, emptied."""
        for path in self._disk.iterdir():
            shutil.rmtree(path)
        return self._disk

    def set_clock(self, address: str, seconds: int) -> None:
        """Sets the error of a machine's clock from now on."""
        # Overwritten in place: processes have the file mapped, and truncation would kill them.
        file = os.open(clock_file(self.folder, address), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(file, struct.pack("q", seconds))
        finally:
            os.close(file)

    def free_hosts(self) -> list[Host]:
        """Hosts that are connected and have no node of this cluster."""
        taken = {node.address for node in self.cluster.nodes}
        return [host for host in self.hosts if host.connected and host.address not in taken]

    def sift(self) -> list[Node]:
        """Forget nodes that have ended by themselves; gives those that run."""
        for node in list(self.cluster.nodes):
            if not node.running():
                self.drop(node)
        return self.cluster.nodes

    def drop(self, node: Node) -> None:
        """Kill a node of the cluster."""
        node.kill()
        self.cluster.nodes.remove(node)

    def lose_head(self) -> None:
        """Kill the head; its nodes go on without, until they give up."""
        if self.cluster.head is not None:
            self.cluster.head.kill()
            self.cluster.head = None
        self.lost.append(self.cluster)

    def new_cluster(self) -> None:
        """Start another one, beside what is left of those before."""
        self.cluster = self._cluster(self.cluster.generation + 1)

    def bury(self) -> None:
        """Kill what is left of lost clusters."""
        for cluster in self.lost:
            cluster.kill()
        self.lost.clear()

    def begin_serving(self) -> None:
        """Start the tracking server again, in a while."""
        self._starting = threading.Thread(target=self._serve)
        self._starting.start()

    def wait_until_served(self) -> None:
        """Wait until database and tracking server are there."""
        if not self.database.pid:
            self.database.start()
        if self._starting is not None:
            self._starting.join()
            self._starting = None

    def workers(self) -> list[psutil.Process]:
        """The processes that train on this cluster."""
        return [process for node in self.cluster.nodes for process in node.actors()]

    def strangers(self) -> list[str]:
        """Processes of this world that have no known owner."""
        own = [os.getpid(), self.database.pid, self.tracking.pid, *(h.keeper for h in self.hosts)]
        for cluster in (self.cluster, *self.lost):
            own += [node.process.pid for node in cluster.everything()]
        known = {1, *(p.pid for pid in own[1:] if pid for p in tree(pid)), own[0]}
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                if process.pid not in known and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {title(process)[:120]}")
        return found

    def close(self) -> None:
        """End everything."""
        self.bury()
        self.cluster.kill()
        self.tracking.kill()
        self.database.kill()

    def _serve(self) -> None:
        while not self.tracking.pid:
            with suppress(TimeoutError):  # the database may be away, too
                self.tracking.start()

    def _cluster(self, generation: int) -> Cluster:
        made = Cluster(self.folder, self._environment, generation)
        made.start_head()
        self.cluster = made
        made.wait(self._complete)
        return made

    def _complete(self) -> bool:
        """Whether the cluster has its nodes; those that are missing are started."""
        for host in self.free_hosts()[: max(self._nodes - len(self.sift()), 0)]:
            self.cluster.start_node(host)
        return len(self.cluster.alive()) > self._nodes


def clocks_can_jump() -> bool:
    """Whether there is a compiler for the library that makes them."""
    return shutil.which("cc") is not None


def _clock_library(folder: Path) -> str:
    library = folder / "clock.so"
    source = Path(__file__).with_name("clock.c")
    call("cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl")
    return str(library)


def comes_about(seconds: float, condition: Callable[[], object]) -> bool:
    """Whether something comes about in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True
