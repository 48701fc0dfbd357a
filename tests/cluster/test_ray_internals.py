"""Ray's private interfaces are as `cluster.ray_internals` expects; an upgrade of Ray fails here."""

from __future__ import annotations

import inspect
import os
import signal
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import ray
from ray import _raylet
from ray._private import node, parameter, ray_constants, services, utils, worker
from ray.core.generated import autoscaler_pb2
from ray.experimental import internal_kv

from cluster import ray_internals
from cluster.errors import ConnectError

_ROOT = Path(__file__).parents[2]


def test_the_tested_version_is_the_pinned_and_the_installed_one() -> None:
    assert version("ray").startswith(f"{ray_internals.SUPPORTED_VERSION}.")
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    (pin,) = [each for each in project["dependencies"] if each.startswith("ray[")]
    assert f">={ray_internals.SUPPORTED_VERSION},<" in pin


def test_another_version_of_ray_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_internals.check_version()
    monkeypatch.setattr(ray, "__version__", "2.61.0")
    with pytest.raises(ConnectError, match=r"Ray 2\.60 is required, and Ray 2\.61\.0"):
        ray_internals.check_version()


def test_every_private_interface_exists() -> None:
    assert callable(services.find_gcs_addresses.cache_clear)
    assert [*inspect.signature(services.get_ray_address_from_environment).parameters] == [
        "addr",
        "temp_dir",
    ]
    assert callable(_raylet.Config.initialize)
    assert callable(_raylet.AuthenticationTokenLoader.instance().reset_cache)
    assert isinstance(ray_constants.ENABLE_RAY_CLUSTER, bool)
    options = inspect.signature(parameter.RayParams).parameters
    assert {"no_monitor", "include_log_monitor"} <= set(options)
    assert callable(node.Node.start_api_server)
    assert callable(services.get_node)
    assert callable(services._build_python_executable_command_memory_profileable)
    assert utils.get_dashboard_dependency_error() is None
    assert callable(utils.set_sigterm_handler)
    assert callable(node.Node.dead_processes)
    for action in ("get", "put", "list", "del"):
        assert callable(getattr(internal_kv, f"_internal_kv_{action}"))
    assert callable(_raylet.GcsClient)
    status = autoscaler_pb2.GetClusterStatusReply().autoscaling_state
    assert list(status.infeasible_gang_resource_requests) == []
    assert worker._worker_logs_enabled is True
    assert worker._global_node is None or callable(worker._global_node.is_head)


def test_the_resources_of_this_machine_are_counted_without_starting_ray() -> None:
    resources = ray_internals.count_local_resources(2**27)
    assert 0 < resources["CPU"] <= (os.cpu_count() or 1)
    assert resources["memory"] > 0
    assert resources.get("GPU", 0) >= 0


def test_replaced_parts_of_ray_are_restored() -> None:
    def parts() -> tuple[object, ...]:
        return (
            ray_constants.ENABLE_RAY_CLUSTER,
            parameter.RayParams,
            node.Node.start_api_server,
            services.get_node,
            services._build_python_executable_command_memory_profileable,
            utils.get_dashboard_dependency_error,
            worker._worker_logs_enabled,
            utils.set_sigterm_handler,
            signal.getsignal(signal.SIGTERM),
        )

    before = parts()
    with (
        ray_internals.loopback_only(),
        ray_internals.noticing_its_node(),
        ray_internals.without_extra_servers(),
        ray_internals.without_worker_messages(),
        ray_internals.keeping_sigterm(),
    ):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert not set(parts()[:-1]) & set(before[:-1])
    assert parts() == before
