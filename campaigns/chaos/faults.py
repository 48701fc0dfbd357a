"""Faults that a campaign injects. Each returns the action that ends it, if there is one."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil

from campaigns.chaos.lab import Lab
from campaigns.chaos.world import HEAD

_BLOCK = bytes(2**16)
_DAY = 86_400


class NoTarget(Exception):
    """Raised when a fault has no target at the moment."""


@dataclass(frozen=True)
class Scene:
    """Environment that a fault acts on.

    Attributes:
        lab: Cluster and servers.
        driver: Running driver of the sweep.
        disk: Directory of the sweep's storage.
        draw: Random generator.
    """

    lab: Lab
    driver: subprocess.Popen[bytes]
    disk: Path
    draw: random.Random


@dataclass(frozen=True)
class Repair:
    """Action that ends a fault.

    Attributes:
        after: Seconds until the action.
        action: Function to call.
    """

    after: float
    action: Callable[[], None]


Fault: TypeAlias = Callable[[Scene], Repair | None]


def kill_worker(scene: Scene) -> None:
    """Kills a worker process."""
    workers = scene.lab.workers()
    if not workers:
        raise NoTarget
    with suppress(psutil.NoSuchProcess):
        scene.draw.choice(workers).kill()


def kill_node(scene: Scene) -> None:
    """Kills all processes of a node."""
    nodes = scene.lab.running_nodes()
    if not nodes:
        raise NoTarget
    scene.lab.drop(scene.draw.choice(nodes))


def kill_driver(scene: Scene) -> None:
    """Kills the driver."""
    scene.driver.kill()


def stop_driver(scene: Scene) -> None:
    """Sends SIGTERM to the driver, as schedulers do."""
    scene.driver.terminate()


def kill_head(scene: Scene) -> None:
    """Kills all processes of the head; nodes and driver keep running."""
    scene.lab.lose_head()


def kill_tracking(scene: Scene) -> Repair:
    """Kills the tracking server; it restarts later."""
    if not scene.lab.tracking.pid:
        raise NoTarget
    scene.lab.tracking.kill()
    return Repair(scene.draw.uniform(0.5, 4), scene.lab.restart_tracking)


def kill_database(scene: Scene) -> Repair:
    """Kills the database of the tracking server; it restarts later."""
    if not scene.lab.database.pid:
        raise NoTarget
    scene.lab.database.kill()
    return Repair(scene.draw.uniform(0.5, 4), scene.lab.database.start)


def join_late(scene: Scene) -> None:
    """Adds a node to the cluster."""
    hosts = scene.lab.free_hosts()
    if not hosts:
        raise NoTarget
    scene.lab.cluster.start_node(scene.draw.choice(hosts))


def fill_disk(scene: Scene) -> Repair:
    """Fills the disk of the storage for some seconds."""
    filler = scene.disk / "filler"
    if filler.exists():
        raise NoTarget
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(_BLOCK):
            pass
    return Repair(scene.draw.uniform(0.5, 4), filler.unlink)


def cut_off(scene: Scene) -> Repair:
    """Disconnects a node from the head, briefly or until the head declares it dead."""
    used = {node.address for node in scene.lab.running_nodes()}
    hosts = [h for h in scene.lab.hosts if h.connected and h.address in used]
    if not hosts:
        raise NoTarget
    host = scene.draw.choice(hosts)
    host.disconnect()
    short = scene.draw.random() < 0.5
    return Repair(scene.draw.uniform(0.5, 3) if short else scene.draw.uniform(9, 14), host.mend)


def slow_tracking(scene: Scene) -> Repair:
    """Delays the tracking server for some seconds."""
    proxy = scene.lab.proxy
    if proxy.delay:
        raise NoTarget
    proxy.delay = scene.draw.uniform(0.2, 1.5)
    return Repair(scene.draw.uniform(2, 6), lambda: setattr(proxy, "delay", 0.0))


def jump_clock(scene: Scene) -> None:
    """Shifts the clock of one host by seconds, hours or days."""
    if not scene.lab.clocks:
        raise NoTarget
    addresses = [HEAD, *(node.address for node in scene.lab.running_nodes())]
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
"""Fault by its name in the results table."""
