"""Environment of a campaign: a Ray cluster on several hosts, MLflow on PostgreSQL, disk, clocks."""

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

from campaigns.chaos.experiment.privnets_chaos import TRACE
from campaigns.chaos.network import Host
from campaigns.chaos.nodes import CLOCK, Cluster, Node, clock_file, environment, title, tree
from campaigns.chaos.servers import Database, DelayProxy, Tracking
from campaigns.chaos.world import HEAD, call

NODES = 2
HOSTS = 4

_DISK = "24m"


class Lab:
    """Cluster, tracking server, database and disk of a sweep; all that it needs but its driver.

    Attributes:
        folder: Directory for all files.
        hosts: Network namespaces, some with a node.
        cluster: Cluster that drivers join now.
        lost_clusters: Clusters without a head whose nodes still run.
        database: Database of the tracking server.
        tracking: The tracking server.
        proxy: Proxy in front of the tracking server.
        trace: File to which the experiment appends each training that starts.
        clocks: Whether clocks can be shifted on this machine.
        temporary: Directory for temporary files of drivers only.
    """

    def __init__(self, folder: Path, nodes: int = NODES, jumping_clocks: bool = True) -> None:
        """Starts a head, its nodes and the servers.

        Args:
            folder: Empty directory with a short path.
            nodes: Nodes of a new cluster.
            jumping_clocks: Whether to shift clocks, where that is possible.
        """
        self.folder = folder
        self._nodes = nodes
        # Mounted before the nodes start, so that their mount namespaces contain it.
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
        self.lost_clusters: list[Cluster] = []
        self.database = Database(folder / "p")
        self.database.start()
        self.tracking = Tracking(folder / "m", self.database)
        self.tracking.start()
        self.proxy = DelayProxy(self.tracking.port)
        self._starting: threading.Thread | None = None
        self.cluster = self._cluster(0)

    @property
    def tracking_uri(self) -> str:
        """URI of the tracking server through its proxy."""
        return f"http://127.0.0.1:{self.proxy.port}"

    def command(self, *arguments: str) -> list[str]:
        """Returns the words of a `sweeps` command."""
        return [sys.executable, "-c", "from sweeps.cli.main import main; main()", *arguments]

    def drive(self, said: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
        """Starts a `sweeps` command beside the head; appends its output to a file."""
        own = {"TMPDIR": str(self.temporary), CLOCK: str(clock_file(self.folder, HEAD))}
        with said.open("ab") as file:
            return subprocess.Popen(
                self.command(*arguments), cwd=self.folder, env={**self._environment, **own},
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip

    def disk(self) -> Path:
        """Empties the small disk that all hosts share, and returns its path."""
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
        """Returns the connected hosts without a node of this cluster."""
        taken = {node.address for node in self.cluster.nodes}
        return [host for host in self.hosts if host.connected and host.address not in taken]

    def running_nodes(self) -> list[Node]:
        """Returns the running nodes; removes those that ended by themselves."""
        for node in list(self.cluster.nodes):
            if not node.running():
                self.drop(node)
        return self.cluster.nodes

    def drop(self, node: Node) -> None:
        """Kills a node of the cluster."""
        node.kill()
        self.cluster.nodes.remove(node)

    def lose_head(self) -> None:
        """Kills the head; its nodes keep running until they time out."""
        if self.cluster.head is not None:
            self.cluster.head.kill()
            self.cluster.head = None
        self.lost_clusters.append(self.cluster)

    def new_cluster(self) -> None:
        """Starts a new cluster beside the nodes of lost ones."""
        self.cluster = self._cluster(self.cluster.generation + 1)

    def kill_lost_clusters(self) -> None:
        """Kills the nodes of lost clusters."""
        for cluster in self.lost_clusters:
            cluster.kill()
        self.lost_clusters.clear()

    def restart_tracking(self) -> None:
        """Restarts the tracking server in a thread."""
        self._starting = threading.Thread(target=self._serve)
        self._starting.start()

    def wait_for_tracking(self) -> None:
        """Waits until database and tracking server answer."""
        if not self.database.pid:
            self.database.start()
        if self._starting is not None:
            self._starting.join()
            self._starting = None

    def workers(self) -> list[psutil.Process]:
        """Returns the actor processes of this cluster."""
        return [process for node in self.cluster.nodes for process in node.actors()]

    def unowned_processes(self) -> list[str]:
        """Returns processes of this namespace that belong neither to the lab nor to a driver."""
        own = [
            os.getpid(),
            self.database.pid,
            self.tracking.pid,
            *(h.keeper_pid for h in self.hosts),
        ]
        for cluster in (self.cluster, *self.lost_clusters):
            own += [node.process.pid for node in cluster.all_nodes()]
        known = {1, *(p.pid for pid in own[1:] if pid for p in tree(pid)), own[0]}
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                if process.pid not in known and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {title(process)[:120]}")
        return found

    def close(self) -> None:
        """Kills all processes of the lab."""
        self.kill_lost_clusters()
        self.cluster.kill()
        self.tracking.kill()
        self.database.kill()

    def _serve(self) -> None:
        while not self.tracking.pid:
            with suppress(TimeoutError):  # the database may be down, too
                self.tracking.start()

    def _cluster(self, generation: int) -> Cluster:
        cluster = Cluster(self.folder, self._environment, generation)
        cluster.start_head()
        self.cluster = cluster
        cluster.wait(self._has_all_nodes)
        return cluster

    def _has_all_nodes(self) -> bool:
        """Returns whether the cluster has all nodes; starts missing ones."""
        for host in self.free_hosts()[: max(self._nodes - len(self.running_nodes()), 0)]:
            self.cluster.start_node(host)
        return len(self.cluster.alive()) > self._nodes


def clocks_can_jump() -> bool:
    """Returns whether a C compiler for the clock library exists."""
    return shutil.which("cc") is not None


def _clock_library(folder: Path) -> str:
    library = folder / "clock.so"
    source = Path(__file__).with_name("clock.c")
    call("cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl")
    return str(library)


def is_true_within(seconds: float, condition: Callable[[], object]) -> bool:
    """Polls a condition; returns whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True
