"""One sweep with injected faults, resumed until it is complete."""

from __future__ import annotations

import heapq
import itertools
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from campaigns.chaos.evidence import Evidence
from campaigns.chaos.faults import FAULTS, NoTarget, Repair, Scene
from campaigns.chaos.lab import NODES, Lab, is_true_within

STUDY = """
name: chaos
experiment: chaos
fixed: {stages: 3, seconds: 0.15}
space:
  x: {grid: [0.05, 0.2, 0.4, 0.6, 0.8, 0.95]}
  y: {grid: [0.3, 0.6]}
replicates: 4
resources: {pack: 3}
"""

_TICK_SECONDS = 0.2
_LONGEST_PAUSE = 2.5
_TRY_SECONDS = 8.0
_DRIVER_END_SECONDS = 90.0
_MOST_SECONDS = 1500.0
_SILENT_SECONDS = 18.0
# Messages about a lost head, and about a head or a server that is down when a driver starts.
_HEAD_GONE = (
    *("the head of Ray at", "no Ray answers at", "the server at"),
    "no MLflow server answers at",
)
_NOT_PUBLISHED = "When the tracking server answers again"


class UnfinishedError(RuntimeError):
    """Raised when a sweep is not complete after its time limit."""


@dataclass
class Episode:
    """Runs one sweep and injects faults into it.

    Attributes:
        lab: Cluster and servers.
        name: Name of the sweep.
        planned: Kinds of faults, in order.
        draw: Random generator.
        log: Called with a line for each event.
        injected: Kinds of the faults that happened.
        evidence: Observations of the sweep's ledger.
        driver_problems: Descriptions of wrong behaviour of the driver.
    """

    lab: Lab
    name: str
    planned: Sequence[str]
    draw: random.Random
    log: Callable[[str], None]
    injected: list[str] = field(default_factory=list)
    driver_problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Prepares a disk and a study."""
        self.storage = self.lab.disk()
        self.study = self.lab.folder / "chaos.yaml"
        self.study.write_text(STUDY)
        self.evidence = Evidence(self.storage / self.name, self.lab.trace)
        self._pending_faults = list(self.planned)
        self._repairs: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._began = time.monotonic()
        self._next_at = 0.0
        self._try_until = 0.0

    @property
    def driver_log(self) -> Path:
        """File with the output of the drivers."""
        return self.lab.folder / f"{self.name}.driver_log"

    def run(self) -> None:
        """Runs the sweep, and resumes it until it is complete.

        Raises:
            Stuck: If it never is.
        """
        while True:
            code = self._drive()
            self.log(f"{self.name}: driver ended with {code}")
            if code == 0:
                break
            if time.monotonic() - self._began > _MOST_SECONDS:
                raise UnfinishedError(f"{self.name} is not done after {_MOST_SECONDS:g} s")
            self._restore(code)
        self._end()

    def _drive(self) -> int:
        driver = self.lab.drive(self.driver_log, self._arguments())
        self._next_at = time.monotonic() + self.draw.uniform(0, 3 * _LONGEST_PAUSE)
        while driver.poll() is None:
            self._run_due_repairs(time.monotonic())
            self.evidence.record_packs()
            self._keep_nodes()
            self._inject_next(driver)
            if self.lab.cluster.head is None:
                self._await_driver_end(driver)
            time.sleep(_TICK_SECONDS)
            if time.monotonic() - self._began > _MOST_SECONDS:
                driver.kill()
        return int(driver.wait())

    def _arguments(self) -> list[str]:
        to = ["--storage", str(self.storage), "--tracking-uri", self.lab.tracking_uri,
              "--address", self.lab.cluster.address]  # fmt: skip
        return ["run", str(self.study), "--name", self.name, *to]

    def _inject_next(self, driver: subprocess.Popen[bytes]) -> None:
        """Injects the next fault if it is due and has a target."""
        now = time.monotonic()
        if not self._pending_faults or now < self._next_at:
            return
        kind = self._pending_faults[0]
        try:
            repair = FAULTS[kind](Scene(self.lab, driver, self.storage, self.draw))
        except NoTarget:
            self._try_until = self._try_until or now + _TRY_SECONDS
            if now > self._try_until:  # try the next one instead
                self._pending_faults.append(self._pending_faults.pop(0))
                self._try_until = 0.0
            return
        self._note_fault(kind, repair)

    def _note_fault(self, kind: str, repair: Repair | None) -> None:
        now = time.monotonic()
        self.log(f"{self.name}: {now - self._began:5.1f} s {kind}")
        self.injected.append(self._pending_faults.pop(0))
        self._try_until, self._next_at = 0.0, now + self.draw.uniform(0, _LONGEST_PAUSE)
        if repair is not None:
            heapq.heappush(self._repairs, (now + repair.after, next(self._count), repair.action))

    def _run_due_repairs(self, now: float) -> None:
        while self._repairs and self._repairs[0][0] <= now:
            heapq.heappop(self._repairs)[2]()

    def _keep_nodes(self) -> None:
        """Starts a node if too few run."""
        hosts = self.lab.free_hosts()
        if self.lab.cluster.head is not None and len(self.lab.running_nodes()) < NODES and hosts:
            self.lab.cluster.start_node(self.draw.choice(hosts))

    def _await_driver_end(self, driver: subprocess.Popen[bytes]) -> None:
        """Waits until a driver without a head ends."""
        began = time.monotonic()
        if not is_true_within(_DRIVER_END_SECONDS, lambda: driver.poll() is not None):
            self.driver_problems.append("the driver did not end when the head was gone")
            driver.kill()
        waited = time.monotonic() - began
        self.log(f"{self.name}: driver ended {waited:.1f} s after the head")
        words = self._last_output()
        if waited > _SILENT_SECONDS and not any(told in words for told in _HEAD_GONE):
            self.driver_problems.append("the driver did not say that the head was gone")

    def _restore(self, code: int) -> None:
        """Restores what a resumed driver needs: a head, and after exit code 2 the servers."""
        head = self.lab.cluster.head
        if head is not None and not head.running():
            self.driver_problems.append("the head ended by itself")
            self.lab.lose_head()
        if self.lab.cluster.head is None:
            self.lab.new_cluster()
        if code == 2:  # a server or the disk was unavailable
            while self._repairs:
                self._run_due_repairs(time.monotonic())
                time.sleep(_TICK_SECONDS)
            self.lab.wait_for_tracking()

    def _end(self) -> None:
        """Repairs everything, publishes what is missing, and verifies."""
        self._run_due_repairs(float("inf"))
        self.lab.wait_for_tracking()
        self.evidence.record_packs()
        if _NOT_PUBLISHED in self._last_output():
            self.log(f"{self.name}: to be published later")
            self._command("sync")
        if self._command("verify"):
            self.driver_problems.append("verify did not pass")

    def _command(self, name: str) -> int:
        uri = ["--tracking-uri", self.lab.tracking_uri]
        arguments = [name, self.name, "--storage", str(self.storage), *uri]
        return int(self.lab.drive(self.driver_log, arguments).wait())

    def _last_output(self) -> str:
        """Returns the output of the last driver."""
        return self.driver_log.read_text(errors="replace").rpartition("sweep " + self.name)[2]
