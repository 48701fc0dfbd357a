"""Waiting for room: as long as it may come, with words, and no longer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from cluster.connection import Connection, Machine
from sweeps.engine.waiting import wait_for_capacity
from sweeps.errors import InputError
from sweeps.study.spec import Resources


class Told:
    """What was shown, and how often a moment passed."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.ticks = 0

    @contextmanager
    def doing(self, what: str) -> Iterator[Callable[[], None]]:
        yield lambda: self.words.append(what)

    def tick(self) -> None:
        self.ticks += 1


@pytest.fixture
def joined(local_ray: Connection) -> Connection:
    """A Ray of two CPUs, as one who did not start it sees it."""
    return Connection(local_ray.address, started=False)


def test_a_cluster_with_room_is_not_waited_for(joined: Connection) -> None:
    told = Told()
    found = wait_for_capacity(joined, Resources(cpus=2), told, lambda: False)
    assert [machine.cpus for machine in found] == [2]
    assert (told.words, told.ticks) == ([], 0)


def test_who_is_stopped_waits_no_longer(joined: Connection) -> None:
    told = Told()
    wait_for_capacity(joined, Resources(cpus=1, gpus=1), told, lambda: told.ticks == 2)
    assert told.words == ["waiting for a node with 1 CPU and 1 GPU"]


def test_machines_that_are_too_small_are_not_waited_out_for_ever(joined: Connection) -> None:
    told = Told()
    with pytest.raises(InputError, match="3 CPUs and 0 GPUs, and no machine has as many"):
        wait_for_capacity(joined, Resources(cpus=3), told, lambda: False, patience=0.0)
    assert told.ticks > 1


@dataclass
class Filling(Connection):
    """A cluster that lends nothing until it has been looked at so often."""

    looks: int = 0

    def machines(self) -> list[Machine]:
        self.looks -= 1
        return [Machine(cpus=0, gpus=0)] if self.looks >= 0 else super().machines()


def test_waiting_ends_when_a_node_comes(joined: Connection) -> None:
    filling, told = Filling(joined.address, started=False, looks=3), Told()
    found = wait_for_capacity(filling, Resources(cpus=2), told, lambda: told.ticks > 3)
    assert [machine.cpus for machine in found] == [2]
    assert (told.words, told.ticks) == (["waiting for a node with 2 CPUs"], 3)


def test_nodes_of_an_empty_cluster_without_an_autoscaler_are_not_waited_for_for_ever(
    joined: Connection,
) -> None:
    empty, told = Filling(joined.address, started=False, looks=1000), Told()
    with pytest.raises(InputError, match="no node with 1 CPU came within 0 minutes"):
        wait_for_capacity(empty, Resources(cpus=1), told, lambda: False, empty=0.0)
    assert told.ticks > 1


def test_an_autoscaler_that_has_not_looked_round_yet_is_no_trouble(joined: Connection) -> None:
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put("__autoscaling_status", json.dumps({"time": 0.0}))
    try:
        assert not joined.has_autoscaler()
        with pytest.raises(InputError, match="no machine has as many"):
            wait_for_capacity(joined, Resources(cpus=3), Told(), lambda: False, patience=0.0)
    finally:
        internal_kv._internal_kv_del("__autoscaling_status")


def test_a_machine_of_ones_own_is_never_waited_for(local_ray: Connection) -> None:
    assert [
        m.cpus for m in wait_for_capacity(local_ray, Resources(cpus=3), Told(), lambda: False)
    ] == [2]


def test_a_machine_counts_only_with_all_that_a_pack_is_given() -> None:
    from sweeps.engine.capacity import slots

    cpus_alone, both = Machine(cpus=8, gpus=0), Machine(cpus=2, gpus=1)
    resources = Resources(cpus=2, gpus=1)
    assert (slots([cpus_alone], resources), slots([cpus_alone, both], resources)) == (0, 1)
