"""The only use of Ray's private interfaces; each has a reason, and all depend on Ray's version.

The block functions replace a part of Ray while they run and restore it at their end.
`tests/cluster/test_ray_internals.py` fails when an upgrade of Ray removes what this module uses.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, Final

import ray
from ray import _raylet
from ray._private import node, parameter, ray_constants, services, utils, worker
from ray._private.resource_and_label_spec import ResourceAndLabelSpec
from ray.core.generated import autoscaler_pb2
from ray.exceptions import RpcError
from ray.experimental import internal_kv

from cluster.errors import ConnectError, UnreachableError

SUPPORTED_VERSION: Final = "2.60"

# Ray's agent without its modules, most of whose start is spent on loading them.
_BARE_AGENT: Final = (
    "import runpy, sys, ray.dashboard.modules as modules; modules.__path__ = []; "
    "del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
_POLL_SECONDS: Final = 0.02
_NOTICE_SECONDS: Final = 10.0
_GCS_SECONDS: Final = 5


def check_version() -> None:
    """Checks that the installed Ray is of the version that this module was written for.

    Raises:
        ConnectError: If it is another one.
    """
    if ray.__version__.split(".")[:2] != SUPPORTED_VERSION.split("."):
        raise ConnectError(
            f"Ray {SUPPORTED_VERSION} is required, and Ray {ray.__version__} is installed: pip "
            f"install 'ray=={SUPPORTED_VERSION}.*'"
        )


def find_local_address() -> str:
    """Returns `HOST:PORT` of the Ray that this machine is a part of, or of RAY_ADDRESS.

    Ray resolves "auto" only inside `ray.init`, after which it is too late to probe the head.

    Raises:
        UnreachableError: If this machine runs none.
    """
    services.find_gcs_addresses.cache_clear()  # type: ignore[attr-defined]
    try:
        return str(services.get_ray_address_from_environment("auto", None))
    except ConnectionError as error:
        raise UnreachableError(f"this machine runs no Ray: {error}") from error


def count_local_resources(object_store_bytes: int) -> Mapping[str, float]:
    """Returns the resources that Ray would detect on this machine, without starting it."""
    spec = ResourceAndLabelSpec(object_store_memory=object_store_bytes)
    spec.resolve(is_head=True, node_ip_address="127.0.0.1")
    resources: Mapping[str, float] = spec.to_resource_dict()  # type: ignore[no-untyped-call]
    return resources


def owns_head() -> bool:
    """Returns whether this process started the Ray that it is connected to."""
    return worker._global_node is not None and worker._global_node.is_head()


def dead_processes() -> list[str]:
    """Returns the names of processes that died of the Ray that this process started."""
    head = worker._global_node
    return [name for name, _ in head.dead_processes()] if head is not None else []


def old_autoscaler_report() -> Mapping[str, Any]:
    """Returns the report of Ray's older autoscaler, which has no public form; empty without one."""
    report = internal_kv._internal_kv_get("__autoscaling_status")
    return (json.loads(report).get("autoscaler_report") or {}) if report else {}


def write_cluster_value(key: str, value: bytes) -> None:
    """Stores a value in the cluster's key-value store, which has no public interface."""
    internal_kv._internal_kv_put(key, value)


def read_cluster_values(prefix: str) -> dict[str, bytes]:
    """Returns the values in the cluster's key-value store whose keys begin with a prefix."""
    keys = internal_kv._internal_kv_list(prefix)
    values = {key.decode(): internal_kv._internal_kv_get(key) for key in keys}
    return {key: value for key, value in values.items() if value is not None}


def delete_cluster_value(key: str) -> None:
    """Deletes a value in the cluster's key-value store, if there is one."""
    internal_kv._internal_kv_del(key)


def infeasible_bundles() -> list[dict[str, float]]:
    """Returns the demands that the newer autoscaler cannot meet; its public status omits them."""
    client = _raylet.GcsClient(ray.get_runtime_context().gcs_address)  # type: ignore[attr-defined]
    reply: Any = autoscaler_pb2.GetClusterStatusReply()  # type: ignore[attr-defined]
    reply.ParseFromString(client.get_cluster_status(timeout_s=_GCS_SECONDS))
    groups = reply.autoscaling_state.infeasible_gang_resource_requests
    return [dict(request.resources_bundle) for group in groups for request in group.requests]


def reload_auth_settings() -> None:
    """Makes Ray read its variables for authentication again; it caches them when it loads."""
    _raylet.Config.initialize("")  # type: ignore[attr-defined]
    _raylet.AuthenticationTokenLoader.instance().reset_cache()  # type: ignore[attr-defined]


def loopback_only() -> AbstractContextManager[None]:
    """Makes Ray use 127.0.0.1 as its node's address, so that it listens nowhere else.

    `ray.init` replaces a loopback address by the machine's own. This constant is what keeps Ray on
    loopback on desktop systems.
    """
    return _replace(ray_constants, ENABLE_RAY_CLUSTER=False)


@contextmanager
def without_extra_servers() -> Iterator[None]:
    """Makes Ray start no autoscaler, log monitor or dashboard server, and an agent without modules.

    A Ray for one driver uses none of them. They take almost three seconds of a core. `ray.init`
    waits for the server, and workers start after the agent. A raylet refuses to run without one.
    """
    options: Any = {"no_monitor": True, "include_log_monitor": False}
    params = partial(parameter.RayParams, **options)
    build_command = services._build_python_executable_command_memory_profileable

    def build_agent_command(component: str, *arguments: Any) -> list[str]:
        command: list[str] = build_command(component, *arguments)
        is_agent = component == ray_constants.PROCESS_TYPE_DASHBOARD_AGENT
        return [*command, "-P", "-c", _BARE_AGENT] if is_agent else command

    with (
        _replace(parameter, RayParams=params),
        _replace(node.Node, start_api_server=lambda self, **options: None),
        # Without the dashboard's dependencies, an agent starts no servers.
        _replace(utils, get_dashboard_dependency_error=lambda: ImportError()),
        _replace(services, _build_python_executable_command_memory_profileable=build_agent_command),
    ):
        yield


def noticing_its_node() -> AbstractContextManager[None]:
    """Makes `ray.init` notice at once that its own node has started.

    Ray asks once a second, and nothing else happens meanwhile. After ten seconds, or where the head
    does not answer in time, Ray's own way of waiting, which knows when to give up, takes over.
    """
    get_node = services.get_node

    def wait_and_get(gcs_address: str, node_id: str) -> Any:
        with suppress(RpcError):
            client = _raylet.GcsClient(gcs_address)  # type: ignore[attr-defined]
            deadline = time.monotonic() + _NOTICE_SECONDS
            while (
                not client.get_all_node_info(timeout=_GCS_SECONDS) and time.monotonic() < deadline
            ):
                time.sleep(_POLL_SECONDS)
        return get_node(gcs_address, node_id)  # type: ignore[no-untyped-call]

    return _replace(services, get_node=wait_and_get)


def without_worker_messages() -> AbstractContextManager[None]:
    """Keeps Ray's messages about dead workers off standard output; callers report failures."""
    return _replace(worker, _worker_logs_enabled=False)


@contextmanager
def keeping_sigterm() -> Iterator[None]:
    """Keeps this process's handler of SIGTERM, which `ray.init` and `ray.shutdown` replace.

    Ray's own handler would end the process in the middle of a start.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with _replace(utils, set_sigterm_handler=lambda sigterm_handler: None):
            yield
    finally:
        if handler is not None:  # None: installed by a C library, which Python cannot restore
            signal.signal(signal.SIGTERM, handler)


@contextmanager
def _replace(owner: object, **values: Any) -> Iterator[None]:
    originals = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in originals.items():
            setattr(owner, name, value)
