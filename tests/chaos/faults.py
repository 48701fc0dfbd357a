"""Faults of a sweep. Each is real; its damage is repaired later or never."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil

from tests.chaos.lab import Lab
from tests.chaos.world import HEAD

_BLOCK = bytes(2**16)
_DAY = 86_400


class NotNow(Exception):
    """There is nothing at the moment that the fault could hit."""


@dataclass(frozen=True)
class Scene:
    """Target of a fault.

    Attributes:
        lab: The machines.
        driver: The sweep's; it runs.
        disk: Of the sweep's storage.
        draw: Source of every choice.
    """

    lab: Lab
    driver: subprocess.Popen[bytes]
    disk: Path
    draw: random.Random


@dataclass(frozen=True)
class Mending:
    """End of a fault.

    Attributes:
        after: Seconds.
        what: To do then.
    """

    after: float
    what: Callable[[], None]


Fault: TypeAlias = Callable[[Scene], Mending | None]


def kill_worker(scene: Scene) -> None:
    """A process that trains is killed."""
    workers = scene.lab.workers()
    if not workers:
        raise NotNow
    with suppress(psutil.NoSuchProcess):
        scene.draw.choice(workers).kill()


def kill_node(scene: Scene) -> None:
    """A node loses its power."""
    nodes = scene.lab.sift()
    if not nodes:
        raise NotNow
    scene.lab.drop(scene.draw.choice(nodes))


def kill_driver(scene: Scene) -> None:
    """The driver is killed."""
    scene.driver.kill()


def stop_driver(scene: Scene) -> None:
    """The driver is asked to terminate, as schedulers do."""
    scene.driver.terminate()


def kill_head(scene: Scene) -> None:
    """The head loses its power; its nodes, and the driver, are left alone with that."""
    scene.lab.lose_head()


def kill_tracking(scene: Scene) -> Mending:
    """The tracking server is killed and comes back later."""
    if not scene.lab.tracking.pid:
        raise NotNow
    scene.lab.tracking.kill()
    return Mending(scene.draw.uniform(0.5, 4), scene.lab.begin_serving)


def kill_database(scene: Scene) -> Mending:
    """The tracking server's database is killed and comes back later."""
    if not scene.lab.database.pid:
        raise NotNow
    scene.lab.database.kill()
    return Mending(scene.draw.uniform(0.5, 4), scene.lab.database.start)


def join_late(scene: Scene) -> None:
    """Another node joins."""
    hosts = scene.lab.free_hosts()
    if not hosts:
        raise NotNow
    scene.lab.cluster.start_node(scene.draw.choice(hosts))


def fill_disk(scene: Scene) -> Mending:
    """The storage has no space left for a while."""
    filler = scene.disk / "filler"
    if filler.exists():
        raise NotNow
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(_BLOCK):
            pass
    return Mending(scene.draw.uniform(0.5, 4), filler.unlink)


def cut_off(scene: Scene) -> Mending:
    """A node and the head do not reach each other: shortly, or until the node is given up."""
    used = {node.address for node in scene.lab.sift()}
    hosts = [h for h in scene.lab.hosts if h.connected and h.address in used]
    if not hosts:
        raise NotNow
    host = scene.draw.choice(hosts)
    host.disconnect()
    short = scene.draw.random() < 0.5
    return Mending(scene.draw.uniform(0.5, 3) if short else scene.draw.uniform(9, 14), host.mend)


def slow_tracking(scene: Scene) -> Mending:
    """The tracking server takes its time for a while."""
    door = scene.lab.door
    if door.delay:
        raise NotNow
    door.delay = scene.draw.uniform(0.2, 1.5)
    return Mending(scene.draw.uniform(2, 6), lambda: setattr(door, "delay", 0.0))


def jump_clock(scene: Scene) -> None:
    """The clock of one machine is put forward or back: by seconds, hours or days."""
    if not scene.lab.clocks:
        raise NotNow
    addresses = [HEAD, *(node.address for node in scene.lab.sift())]
    reach = scene.draw.choice((30, 3600, 30 * _DAY))
    scene.lab.set_clock(scene.draw.choice(addresses), scene.draw.randint(-reach, reach))


FAULTS: Mapping[str, Fault] = {
    "worker": kill_worker,
    "node": kill_node,
    "driver": kill_driver,
    "stop": stop_driver,
    "head": kill_head,
    "tracking": kill_tracking,
    "database": kill_database,
    "late": join_late,
    "disk": fill_disk,
    "partition": cut_off,
    "slow": slow_tracking,
    "clock": jump_clock,
}
"""Every kind, by the name that the table has for it."""
