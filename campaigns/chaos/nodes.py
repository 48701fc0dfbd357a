"""Ray nodes as a lab starts them: one `ray start` per machine, with a token."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from campaigns.chaos.network import Host
from campaigns.chaos.world import HEAD
from tests.mlflow_server import free_port

PATIENCE = 900.0
CLOCK = "PRIVNETS_CHAOS_CLOCK"
EXPERIMENTS = (
    Path(__file__).parent / "experiment",
    Path(__file__).parents[2] / "benchmarks" / "trivial",
)

_NO_ACTORS = ("IDLE", "DashboardAgent", "RuntimeEnvAgent")
_OBJECT_STORE_BYTES = 80 * 2**20
# Nodes that share a folder count as one machine, and two that start at once disturb each other.
_OWN_FILES = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"')
# The head declares a disconnected node dead after about eight seconds, not half a minute; nodes
# without a head end soon, too.
_SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
    "RAY_raylet_start_wait_time_s": "150",
    "RAY_memory_monitor_refresh_ms": "0",
    "OMP_NUM_THREADS": "1",
}


class StartError(RuntimeError):
    """Raised when a process did not start in time."""


@dataclass
class Node:
    """Running `ray start`.

    Attributes:
        host: Host of the node; None for the head.
        process: Process of the command.
    """

    host: Host | None
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        """IP address."""
        return HEAD if self.host is None else self.host.address

    def running(self) -> bool:
        """Returns whether the command runs."""
        return self.process.poll() is None

    def tree(self) -> list[psutil.Process]:
        """Returns all processes of the node."""
        return tree(self.process.pid)

    def actors(self) -> list[psutil.Process]:
        """Returns the actor processes of the node."""
        return [process for process in self.tree() if is_actor(process)]

    def kill(self) -> None:
        """Kills all processes at once, as a power failure does."""
        kill(_halt_tree(self.process.pid))
        self.process.wait()


@dataclass
class Cluster:
    """Ray cluster: a head and its nodes.

    Attributes:
        folder: Directory for Ray's files.
        environment: Environment of all its processes, with the token.
        generation: Number of earlier clusters.
        head: Head, once started.
        nodes: Nodes that were started and not killed.
    """

    folder: Path
    environment: Mapping[str, str]
    generation: int = 0
    port: int = field(default_factory=free_port)
    head: Node | None = None
    nodes: list[Node] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Address that drivers join."""
        return f"{HEAD}:{self.port}"

    @property
    def _files(self) -> str:
        folder = self.folder / f"r{self.generation}"
        folder.mkdir(exist_ok=True)
        return str(folder)

    def start_head(self) -> None:
        """Starts the head, which has no CPUs, and waits until it responds."""
        self.wait(self._head_answers)

    def start_node(self, host: Host) -> Node:
        """Starts a node with one CPU, and one GPU on odd hosts; does not wait for it."""
        node = self._start(
            host, f"--address={self.address}", "--num-cpus=1", f"--num-gpus={host.number % 2}"
        )
        self.nodes.append(node)
        return node

    def alive(self) -> set[str]:
        """Returns the addresses of live nodes; empty while the head does not answer."""
        from ray._raylet import GcsClient
        from ray.core.generated.gcs_pb2 import GcsNodeInfo
        from ray.exceptions import RpcError

        try:
            found = GcsClient(self.address, cluster_id=None).get_all_node_info(timeout=5)
        except (RpcError, RuntimeError):
            return set()
        return {n.node_manager_address for n in found.values() if n.state == GcsNodeInfo.ALIVE}

    def wait(self, condition: Callable[[], object]) -> None:
        """Waits until a condition is true.

        Raises:
            Dead: If it does not in time.
        """
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise StartError(f"a Ray node did not start:\n{self.log()}")
            time.sleep(0.25)

    def kill(self) -> None:
        """Kills head and nodes."""
        for node in self.all_nodes():
            node.kill()

    def all_nodes(self) -> list[Node]:
        """Returns the head and the nodes."""
        return [node for node in (self.head, *self.nodes) if node is not None]

    def _head_answers(self) -> bool:
        """Returns whether the head answers; restarts a head that ended, as on a busy machine."""
        if self.head is None or not self.head.running():
            self.head = self._start(
                None, "--head", f"--port={self.port}", "--num-cpus=0",
                "--include-dashboard=false", f"--temp-dir={self._files}",
            )  # fmt: skip
        return HEAD in self.alive()

    def log(self) -> str:
        """Returns the end of the nodes' output."""
        return (self.folder / "ray.log").read_text(errors="replace")[-4000:]

    def _start(self, host: Host | None, *options: str) -> Node:
        address = HEAD if host is None else host.address
        command = [
            str(Path(sys.executable).with_name("ray")), "start", "--block",
            "--disable-usage-stats", "--include-log-monitor=false",
            f"--node-ip-address={address}", f"--object-store-memory={_OBJECT_STORE_BYTES}",
            *options,
        ]  # fmt: skip
        clock = str(clock_file(self.folder, address))
        with (self.folder / "ray.log").open("ab") as log:
            process = subprocess.Popen(
                command if host is None else host.wrap(*_OWN_FILES, self._files, *command),
                cwd=self.folder, env={**self.environment, CLOCK: clock}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return Node(host, process)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Environment of all processes of a cluster.

    Args:
        folder: For temporary files.
        more: Further variables.
    """
    temporary = folder / "n"
    temporary.mkdir(exist_ok=True)
    path = os.pathsep.join(filter(None, (*map(str, EXPERIMENTS), os.environ.get("PYTHONPATH"))))
    own = {"RAY_AUTH_TOKEN": secrets.token_hex(32), "TMPDIR": str(temporary), "PYTHONPATH": path}
    return {**os.environ, **_SETTINGS, **own, **more}


def clock_file(folder: Path, address: str) -> Path:
    """File with the error of a machine's clock; see `clock.c`."""
    return folder / f"clock-{address}"


def tree(pid: int) -> list[psutil.Process]:
    """Returns a process and its descendants; empty if it ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _halt_tree(pid: int) -> list[psutil.Process]:
    """Suspends a process and its descendants, so that none starts another; returns them."""
    stopped: dict[int, psutil.Process] = {}
    while fresh := [process for process in tree(pid) if process.pid not in stopped]:
        for process in fresh:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
            stopped[process.pid] = process
    return list(stopped.values())


def kill(processes: list[psutil.Process]) -> None:
    """Kills processes, and waits until they ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=20)


def is_actor(process: psutil.Process) -> bool:
    """Returns whether a process is an actor: of Ray, but neither idle nor an agent."""
    name = title(process)
    return name.startswith("ray::") and not name.removeprefix("ray::").startswith(_NO_ACTORS)


def title(process: psutil.Process) -> str:
    """Returns the command line of a process; empty if it ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""
