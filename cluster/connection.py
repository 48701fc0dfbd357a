"""A connection to Ray: one started here and taken away again, or one that others run."""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Any

from cluster.admission import UNPROTECTED, check, is_beyond, is_protected, located, parts
from cluster.errors import ConnectionFailed
from cluster.ports import is_loopback
from cluster.restraint import bare, loopback_only, quiet, signals_kept
from cluster.secrets import RAY_MODE, RAY_TOKEN, ray_token
from cluster.vigil import vigil

_OBJECT_STORE_BYTES = 128 * 2**20
_REAPER_SECONDS = 15.0
_ACCELERATOR = "accelerator_type:"
_MODULES = "RAY_preload_python_modules"
# How often a driver tries to reach a head, 40 seconds each; Ray's own default is 20 times.
_ATTEMPTS = "RAY_gcs_server_port_wait_time_s"


@dataclass(frozen=True, slots=True)
class Machine:
    """What one machine lends to Ray.

    Attributes:
        cpus: As Ray counts them.
        gpus: As Ray counts them.
        memory: Bytes that Ray may give to work; 0 where it does not say.
        accelerator: The kind of its GPUs, as Ray calls it; empty without one.
        host: Its name.
        node: Ray's own name for it.
    """

    cpus: float
    gpus: float
    memory: int = 0
    accelerator: str = ""
    host: str = ""
    node: str = ""

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Machine:
        """A node as `ray.nodes` describes it."""
        offer: Mapping[str, float] = node["Resources"]
        kinds = [name for name in offer if name.startswith(_ACCELERATOR)]
        return cls(
            offer.get("CPU", 0),
            offer.get("GPU", 0),
            int(offer.get("memory", 0)),
            kinds[0].removeprefix(_ACCELERATOR) if kinds else "",
            node["NodeManagerHostname"],
            node["NodeID"],
        )


@dataclass
class Connection:
    """A Ray that this process may use, until `close`.

    Attributes:
        address: Where its head is.
        started: Whether it was started here, so that closing ends it.
    """

    address: str
    started: bool
    _undo: ExitStack = field(default_factory=ExitStack, repr=False)

    def cpus(self) -> int:
        """How many CPUs it has, as Ray counts them."""
        return self._total("CPU")

    def gpus(self) -> int:
        """How many GPUs it has, as Ray counts them."""
        return self._total("GPU")

    def machines(self) -> list[Machine]:
        """The machines that it runs on now."""
        import ray

        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        return [Machine.of(node) for node in nodes if node["Alive"]]

    def is_beyond(self) -> bool:
        """Whether any of its machines can be reached from others."""
        import ray

        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        return not all(is_loopback(node["NodeManagerAddress"]) for node in nodes if node["Alive"])

    def grows(self) -> bool:
        """Whether it has an autoscaler, which may bring machines that someone asks for."""
        from cluster.scaling import managed

        return not self.started and managed()

    def close(self) -> None:
        """Leave it; if it was started here, end it and remove its files."""
        self._undo.close()

    def __enter__(self) -> Connection:
        """Use it for a block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _total(self, resource: str) -> int:
        import ray

        return int(ray.cluster_resources().get(resource, 0))  # type: ignore[no-untyped-call]


def connect(
    address: str | None = None,
    *,
    cpus: int | None = None,
    modules: Sequence[str] = (),
    remedy: str = "",
) -> Connection:
    """Start a Ray for this process alone, or join one.

    One that is started listens on loopback only, wants a token that it alone knows, sends no
    telemetry, has no dashboard, and goes with this process however that ends. Call it from the
    main thread: Ray's processes end with the thread that started them.

    Where this process already has a connection of Ray's own (`ray.init`), that is used and left
    as it is.

    Args:
        address: `host:port` of a running Ray, or `auto`; None starts one.
        cpus: Logical CPUs of a Ray that is started; as many as the machine has by default. It holds
            a process ready for each.
        modules: That processes of a Ray that is started load while nothing is asked of them yet.
        remedy: What the user can do when the head of one that was joined goes, which is told on
            standard error some seconds after it did.

    Raises:
        ConnectionFailed: If Ray cannot be started, or none answers at the address.
    """
    check(address)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    undo = ExitStack()
    try:
        if "ray" in sys.modules and _connected():
            return _borrowed(undo, remedy)
        with signals_kept():
            if address is None:
                _start(undo, cpus, modules)
            else:
                _join(undo, address, remedy)
        return Connection(_head(), address is None, undo)
    except (RuntimeError, ConnectionError, ValueError, OSError) as error:
        undo.close()
        wanted = "a local Ray did not start" if address is None else f"no Ray answers at {address}"
        raise ConnectionFailed(f"{wanted}: {error}") from error
    except BaseException:
        undo.close()
        raise


def this_machine() -> Machine:
    """What `connect()` would find: this machine, or the first of those that Ray runs on already."""
    if "ray" in sys.modules and _connected():
        return Connection(_head(), started=False).machines()[0]
    from ray._private.resource_and_label_spec import ResourceAndLabelSpec

    spec = ResourceAndLabelSpec(object_store_memory=_OBJECT_STORE_BYTES)
    spec.resolve(is_head=True, node_ip_address="127.0.0.1")
    return Machine(spec.num_cpus or 0, spec.num_gpus or 0)


def _borrowed(undo: ExitStack, remedy: str) -> Connection:
    """The connection that this process has already."""
    from ray._private import worker

    if worker._global_node is None or not worker._global_node.is_head():
        undo.enter_context(_watched(_head(), remedy))
    return Connection(_head(), False, undo)


def _start(undo: ExitStack, cpus: int | None, modules: Sequence[str]) -> None:
    # Ray's Unix sockets live below it, and their paths must stay under 108 characters.
    directory = tempfile.mkdtemp(prefix="sweeps-ray-", dir=_short_directory())
    undo.enter_context(_reaped(directory))
    undo.enter_context(_authenticated({RAY_MODE: "token", RAY_TOKEN: secrets.token_hex(32)}))
    undo.enter_context(quiet())
    with loopback_only(), bare(), _environment({_MODULES: ",".join(modules)} if modules else {}):
        import ray

        undo.callback(_shut_down)
        ray.init(
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=_OBJECT_STORE_BYTES,
            _temp_dir=directory,
        )


def _join(undo: ExitStack, address: str, remedy: str) -> None:
    protected = is_protected() and bool(os.environ.get(RAY_MODE) or ray_token())
    if not protected and is_beyond(address):
        _warn_of_openness(address)
    undo.enter_context(_authenticated({RAY_MODE: "token" if protected else UNPROTECTED}))
    undo.enter_context(quiet())
    undo.enter_context(_watched(located(address), remedy))
    import ray
    from ray.exceptions import RayError

    undo.callback(_shut_down)
    once = _environment({_ATTEMPTS: os.environ.get(_ATTEMPTS, "1")})
    # Ray would look for one that is on loopback at this machine's own address.
    with once, loopback_only() if is_loopback(parts(address)[0]) else nullcontext():
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except RayError as error:
            raise ConnectionError(str(error)) from error


@contextmanager
def _watched(address: str, remedy: str) -> Iterator[None]:
    """Say when the head is gone: Ray will end this process, without a word of use."""

    def tell(seconds: float) -> None:
        _warn(
            f"the head of Ray at {address} has not answered for {seconds:.0f} seconds. Unless it "
            f"comes back within a minute Ray ends this command. {remedy}".rstrip()
        )

    with vigil(address, tell):
        yield


@cache  # once, however often it is joined
def _warn_of_openness(address: str) -> None:
    _warn(f"{RAY_MODE}={UNPROTECTED}: whoever reaches {address} can run anything there.")


def _warn(words: str) -> None:
    print(f"Warning: {words}", file=sys.stderr, flush=True)


def _connected() -> bool:
    import ray

    return bool(ray.is_initialized())


def _head() -> str:
    import ray

    return str(ray.get_runtime_context().gcs_address)


def _short_directory() -> str:
    default = tempfile.gettempdir()
    return default if len(default) <= 24 else "/tmp"


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _authenticated(values: Mapping[str, str]) -> Iterator[None]:
    """Set how Ray authenticates, also when it has read its settings already."""
    try:
        with _environment(values):
            _reread_authentication()
            yield
    finally:
        _reread_authentication()


def _reread_authentication() -> None:
    if "ray" not in sys.modules:
        return
    from ray import _raylet

    _raylet.Config.initialize("")  # type: ignore[attr-defined]
    _raylet.AuthenticationTokenLoader.instance().reset_cache()  # type: ignore[attr-defined]


def _shut_down() -> None:
    import ray

    with signals_kept():
        ray.shutdown()


@contextmanager
def _reaped(directory: str) -> Iterator[None]:
    """Have a directory, and the processes marked with it, removed at the end or at our death."""
    reaper = subprocess.Popen(
        [sys.executable, "-m", "cluster.reaper", directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        yield
    finally:
        if reaper.stdin is not None:
            reaper.stdin.close()
        with suppress(subprocess.TimeoutExpired):  # it goes on by itself, however slow the disk
            reaper.wait(_REAPER_SECONDS)
