"""Connection to Ray: one that is started here and removed again, or one that runs already."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import ray

from cluster import ray_internals
from cluster.auth import MODE, TOKEN, WITH_TOKEN, WITHOUT_TOKEN, is_loopback, read_token, uses_token
from cluster.errors import ClusterError, ConnectError, UnreachableError
from cluster.local_ray import ray_directory
from cluster.probe import AUTO, check_head, is_remote

_OBJECT_STORE_BYTES = 128 * 2**20
_ACCELERATOR = "accelerator_type:"
_OWN = {"CPU", "GPU", "memory", "object_store_memory"}
# Ray's default of 15 would give background processes of niceness 19 a third of a worker's share.
_WORKER_NICENESS = {"RAY_worker_niceness": "5"}
# Ray gives its processes 30 seconds to start, which are too few at times on a busy machine.
_SLOW_START = "timed out during startup"
# Seconds between a driver's attempts to reach a head, each of 40 s; Ray's default is 20 attempts.
_ATTEMPTS = "RAY_gcs_server_port_wait_time_s"
# Names of the processes without which a Ray that was started here cannot work.
_SERVERS: Final = ("gcs_server", "raylet")


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of a Ray, with its CPUs and GPUs as Ray counts them.

    Attributes:
        memory: Bytes that Ray may give to work; 0 if unknown.
        accelerator: Kind of its GPUs, as Ray names it; empty without GPUs.
        host: Host name.
        node: Ray's id of the node.
        address: Its IP address.
        custom: Custom resources and their amounts.
    """

    cpus: float
    gpus: float
    memory: int = 0
    accelerator: str = ""
    host: str = ""
    node: str = ""
    address: str = ""
    custom: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """Host name and IP address, for people."""
        return f"{self.host} ({self.address})" if self.address else self.host

    @classmethod
    def from_node(cls, node: Mapping[str, Any]) -> Machine:
        """Returns the machine of an entry of `ray.nodes`."""
        names = (node["NodeManagerHostname"], node["NodeID"], node["NodeManagerAddress"])
        return cls.from_resources(node["Resources"], *names)

    @classmethod
    def from_resources(
        cls, resources: Mapping[str, float], host: str = "", node: str = "", address: str = ""
    ) -> Machine:
        """Returns the machine with resources by Ray's names."""
        kinds = [name for name in resources if name.startswith(_ACCELERATOR)]
        return cls(
            resources.get("CPU", 0),
            resources.get("GPU", 0),
            int(resources.get("memory", 0)),
            kinds[0].removeprefix(_ACCELERATOR) if kinds else "",
            host,
            node,
            address,
            tuple(
                (name, n) for name, n in resources.items() if name not in _OWN and ":" not in name
            ),
        )


@dataclass
class Connection(AbstractContextManager["Connection"]):
    """Connection of this process to a Ray; a context manager that closes it.

    Attributes:
        address: `HOST:PORT` of the head.
        started: Whether `connect` started the Ray, so that `close` ends it.
        dashboard: Address of Ray's dashboard, with the token that it asks for; says so without one.
    """

    address: str
    started: bool
    dashboard: str = field(default="this Ray has no dashboard", repr=False)
    _undo: ExitStack = field(default_factory=ExitStack, repr=False)

    def __post_init__(self) -> None:
        """Notes the servers of a Ray that was started here; none outside Linux."""
        paths = Path("/proc").glob("[0-9]*/stat") if self.started else ()
        names = {path: _server_name(path) for path in paths}
        self._servers = {name: path for path, name in names.items() if name is not None}

    def machines(self) -> list[Machine]:
        """Returns the machines that are alive now."""
        return [Machine.from_node(node) for node in alive_nodes()]

    def is_remote(self) -> bool:
        """Returns whether other machines can reach any of its machines."""
        return not all(is_loopback(node["NodeManagerAddress"]) for node in alive_nodes())

    def dead_processes(self) -> list[str]:
        """Returns the names of processes that died, of a Ray that was started by `connect`.

        Ray ends this process some seconds later, unless the connection is closed before.
        """
        return [name for name, path in self._servers.items() if _server_name(path) != name]

    def close(self) -> None:
        """Disconnects; ends the Ray and removes its files if `connect` started it."""
        self._undo.close()

    def __exit__(self, *error: object) -> None:
        """Closes the connection."""
        self.close()


def connect(
    address: str | None = None,
    *,
    cpus: int | None = None,
    dashboard: bool = False,
) -> Connection:
    """Starts a Ray for this process alone, or joins one.

    A Ray that is started listens on loopback only, requires a random token, sends no telemetry, has
    no dashboard, and ends with this process, however that ends. Call this from the main thread:
    Ray's processes end with the thread that started them.

    If this process is connected already, by `ray.init`, that connection is used and left open.

    Args:
        address: `HOST:PORT` of a running Ray, or `auto`; None starts one.
        cpus: Logical CPUs of a Ray that is started, by default those of the machine.
        dashboard: Whether a Ray that is started serves Ray's dashboard, on loopback.

    Raises:
        ConnectError: If Ray cannot be started, or the Ray at the address cannot be joined.
    """
    head = check_address(address)
    undo = ExitStack()
    try:
        undo.enter_context(_environment({"RAY_USAGE_STATS_ENABLED": "0"}))
        if ray.is_initialized():
            return Connection(str(ray.get_runtime_context().gcs_address), False, _undo=undo)
        with _keeping_sigterm():
            if head is None:
                page = _start(undo, cpus, dashboard)
            else:
                page = _join(undo, head, is_own=address == AUTO)
        return Connection(str(ray.get_runtime_context().gcs_address), head is None, page, undo)
    except BaseException as error:
        undo.close()
        if isinstance(error, ClusterError) or not isinstance(error, Exception):
            raise
        failure = "a local Ray did not start" if head is None else f"cannot join the Ray at {head}"
        raise ConnectError(f"{failure}: {error}") from error  # Ray raises errors of many types


def check_address(address: str | None) -> str | None:
    """Checks within seconds that `connect` can use an address; returns `HOST:PORT` of the head.

    Raises:
        ConnectError: If it cannot.
    """
    if address is None:
        return None
    if address != AUTO:
        check_head(address)
        return address
    # The Ray that this machine is a part of, from where `ray.init` reads it.
    path = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    try:
        head = os.environ.get("RAY_ADDRESS") or path.read_text().strip()
    except OSError as error:
        raise UnreachableError(
            f"this machine runs no Ray that was started by `ray start` ({path}: {error.strerror}); "
            "if it does, give the head's HOST:PORT"
        ) from error
    try:
        check_head(head, is_own=True)
    except ConnectError as error:
        raise ConnectError(f"{AUTO} is {head} on this machine: {error}") from error
    return head


def local_machine() -> Machine:
    """Returns this machine, as Ray would see it, or the first machine of a connected Ray."""
    if ray.is_initialized():
        return Machine.from_node(alive_nodes()[0])
    return Machine.from_resources(ray_internals.count_local_resources(_OBJECT_STORE_BYTES))


def alive_nodes() -> list[dict[str, Any]]:
    """Returns the entries of `ray.nodes` that are alive."""
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]]


def _start(undo: ExitStack, cpus: int | None, dashboard: bool, attempts: int = 3) -> str:
    """Starts a Ray, in several attempts; returns the address of its dashboard."""
    try:
        with ExitStack() as own:
            directory, token = own.enter_context(ray_directory()), secrets.token_hex(32)
            own.enter_context(_authentication({MODE: WITH_TOKEN, TOKEN: token}))
            own.enter_context(ray_internals.without_messages())
            with ray_internals.loopback_only(), _environment(_WORKER_NICENESS):
                own.callback(_shut_down)
                context = ray.init(
                    num_cpus=cpus,
                    include_dashboard=dashboard,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    _temp_dir=directory,
                )
            undo.push(own.pop_all())
        address = alive_nodes()[0]["NodeManagerAddress"]
        if not is_loopback(address):
            _warn(f"Ray {ray.__version__} cannot be kept on loopback: it listens on {address}")
        return f"{_page(context)} (its token: {token})" if dashboard else Connection.dashboard
    except Exception as error:  # Ray raises no type of its own here
        if _SLOW_START not in str(error) or attempts == 1:
            raise
    _warn("Ray did not start within 30 seconds; is this machine busy? Starting it again.")
    return _start(undo, cpus, dashboard, attempts - 1)


def _join(undo: ExitStack, head: str, is_own: bool) -> str:
    """Joins a Ray; returns the address of its dashboard."""
    has_token = uses_token() and bool(os.environ.get(MODE) or read_token())
    if not has_token and is_remote(head) and not is_own:
        _warn_once(f"{MODE}={WITHOUT_TOKEN}: every user who reaches {head} can run code there.")
    undo.enter_context(_authentication({MODE: WITH_TOKEN if has_token else WITHOUT_TOKEN}))
    undo.enter_context(ray_internals.without_messages())
    undo.callback(_shut_down)
    # Without this, Ray looks for a head on loopback at the machine's own address.
    own: AbstractContextManager[None]
    own = nullcontext() if is_remote(head) else ray_internals.loopback_only()
    with _environment({_ATTEMPTS: os.environ.get(_ATTEMPTS, "1")}), own:
        context = ray.init(address=head, log_to_driver=False, logging_level=logging.ERROR)
    return _page(context)


def _page(context: Any) -> str:
    page = context.dashboard_url
    return f"http://{page}" if page else Connection.dashboard


def _warn(text: str) -> None:
    print(f"Warning: {text}", file=sys.stderr, flush=True)


_warn_once = cache(_warn)


def _shut_down() -> None:
    """Shuts Ray down after collecting the garbage that refers to it.

    Ray ends this process if another thread frees such a reference while Ray shuts down, and Python
    frees those in reference cycles in whichever thread happens to collect garbage.
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        with _keeping_sigterm():
            gc.collect()
            ray.shutdown()
    finally:
        if is_enabled:
            gc.enable()


@contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Restores this process's handler of SIGTERM, which Ray replaces by one that exits.

    A SIGTERM that Ray's handler receives in the block goes to the process's own one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)

    def restore() -> None:
        if handler is not None:  # None: installed by a C library, which Python cannot restore
            signal.signal(signal.SIGTERM, handler)

    try:
        yield
    except SystemExit:
        restore()
        signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        restore()


def _server_name(path: Path) -> str | None:
    """Name of a living server that this process started, from its /proc/PID/stat."""
    with suppress(OSError):  # it has ended
        name, _, values = path.read_text().partition("(")[2].rpartition(")")
        state, parent = values.split()[:2]
        if name in _SERVERS and state != "Z" and int(parent) == os.getpid():
            return name
    return None


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    originals = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in originals.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _authentication(values: Mapping[str, str]) -> Iterator[None]:
    """Sets Ray's variables for authentication, and makes Ray read them."""
    try:
        with _environment(values):
            if not ray_internals.reload_authentication() and values[MODE] == WITH_TOKEN:
                _warn_once(
                    f"Ray {ray.__version__} cannot be made to require a token: every user who "
                    "reaches it, on this machine for a Ray on loopback, can run code in it"
                )
            yield
    finally:
        ray_internals.reload_authentication()
