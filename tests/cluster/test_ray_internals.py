"""The private parts of Ray that this project uses exist, and none of them is necessary."""

from __future__ import annotations

import os

import pytest

from cluster import ray_internals


def test_this_version_of_ray_has_every_private_part() -> None:
    constants = ray_internals._find("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    with ray_internals.loopback_only():
        assert constants.ENABLE_RAY_CLUSTER is False
    assert constants.ENABLE_RAY_CLUSTER is before
    assert ray_internals.reload_authentication()
    assert ray_internals._find("ray._private.worker")._worker_logs_enabled is True


def test_the_resources_of_this_machine_are_counted_without_starting_ray() -> None:
    resources = ray_internals.count_local_resources(2**27)
    assert 0 < resources["CPU"] <= (os.cpu_count() or 1)
    assert resources["memory"] > 0
    assert resources.get("GPU", 0) >= 0


def test_a_ray_without_the_private_parts_is_used_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_internals, "_find", lambda module: None)
    with ray_internals.loopback_only(), ray_internals.without_messages():
        assert not ray_internals.reload_authentication()
    assert ray_internals.count_local_resources(2**27) == {"CPU": os.cpu_count()}
