"""One sweep under fire: run, resumed until it is done, and looked at closely."""

from __future__ import annotations

import heapq
import itertools
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.evidence import Evidence
from tests.chaos.faults import FAULTS, Mending, NotNow, Scene
from tests.chaos.lab import ENOUGH, Lab, comes_about

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
_HIT_SECONDS = 8.0
_MOURNING_SECONDS = 90.0
_MOST_SECONDS = 1500.0
_TOLD_SECONDS = 18.0
# What a driver says of a head that went while it was joined to it, or before it was.
_HEAD_GONE = ("the head of Ray at", "no Ray answers at", "the server at")
_NOT_PUBLISHED = "When the tracking server answers again"


class Stuck(RuntimeError):
    """A sweep did not come to its end, however often it was resumed."""


@dataclass
class Episode:
    """A sweep and the faults that are injected into it.

    Attributes:
        lab: Where.
        name: The sweep's.
        wanted: Kinds of faults, in order.
        draw: Source of every choice.
        log: Called with a line for each event.
        done: Kinds of the faults that happened.
        evidence: What was seen of the sweep's ledger.
        troubles: What was wrong with the driver, in words.
    """

    lab: Lab
    name: str
    wanted: Sequence[str]
    draw: random.Random
    log: Callable[[str], None]
    done: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Prepare a disk and a study."""
        self.storage = self.lab.disk()
        self.study = self.lab.folder / "chaos.yaml"
        self.study.write_text(STUDY)
        self.evidence = Evidence(self.storage / self.name, self.lab.trace)
        self._left = list(self.wanted)
        self._mendings: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._began = time.monotonic()
        self._next = 0.0
        self._hit_until = 0.0

    @property
    def driver_log(self) -> Path:
        """File with the output of the drivers."""
        return self.lab.folder / f"{self.name}.driver_log"

    def run(self) -> None:
        """Run the sweep and resume it until it is done.

        Raises:
            Stuck: If it never is.
        """
        while True:
            code = self._drive()
            self.log(f"{self.name}: driver ended with {code}")
            if code == 0:
                break
            if time.monotonic() - self._began > _MOST_SECONDS:
                raise Stuck(f"{self.name} is not done after {_MOST_SECONDS:g} s")
            self._restore(code)
        self._end()

    def _drive(self) -> int:
        driver = self.lab.drive(self.driver_log, self._arguments())
        self._next = time.monotonic() + self.draw.uniform(0, 3 * _LONGEST_PAUSE)
        while driver.poll() is None:
            self._mend(time.monotonic())
            self.evidence.look()
            self._keep_enough()
            self._hit(driver)
            if self.lab.cluster.head is None:
                self._mourn(driver)
            time.sleep(_TICK_SECONDS)
            if time.monotonic() - self._began > _MOST_SECONDS:
                driver.kill()
        return int(driver.wait())

    def _arguments(self) -> list[str]:
        to = ["--storage", str(self.storage), "--tracking-uri", self.lab.tracking_uri,
              "--address", self.lab.cluster.address]  # fmt: skip
        return ["run", str(self.study), "--name", self.name, *to]

    def _hit(self, driver: subprocess.Popen[bytes]) -> None:
        """Injects the next fault if its time has come and a target exists."""
        now = time.monotonic()
        if not self._left or now < self._next:
            return
        kind = self._left[0]
        try:
            mending = FAULTS[kind](Scene(self.lab, driver, self.storage, self.draw))
        except NotNow:
            self._hit_until = self._hit_until or now + _HIT_SECONDS
            if now > self._hit_until:  # another time; the next one may come instead
                self._left.append(self._left.pop(0))
                self._hit_until = 0.0
            return
        self._note_fault(kind, mending)

    def _note_fault(self, kind: str, mending: Mending | None) -> None:
        now = time.monotonic()
        self.log(f"{self.name}: {now - self._began:5.1f} s {kind}")
        self.done.append(self._left.pop(0))
        self._hit_until, self._next = 0.0, now + self.draw.uniform(0, _LONGEST_PAUSE)
        if mending is not None:
            heapq.heappush(self._mendings, (now + mending.after, next(self._count), mending.what))

    def _mend(self, now: float) -> None:
        while self._mendings and self._mendings[0][0] <= now:
            heapq.heappop(self._mendings)[2]()

    def _keep_enough(self) -> None:
        """Start a node where too few are left."""
        hosts = self.lab.free_hosts()
        if self.lab.cluster.head is not None and len(self.lab.sift()) < ENOUGH and hosts:
            self.lab.cluster.start_node(self.draw.choice(hosts))

    def _mourn(self, driver: subprocess.Popen[bytes]) -> None:
        """Waits for the end of a driver whose cluster lost its head."""
        began = time.monotonic()
        if not comes_about(_MOURNING_SECONDS, lambda: driver.poll() is not None):
            self.troubles.append("the driver did not end when the head was gone")
            driver.kill()
        waited = time.monotonic() - began
        self.log(f"{self.name}: driver went {waited:.1f} s after the head")
        words = self._last_words()
        if waited > _TOLD_SECONDS and not any(told in words for told in _HEAD_GONE):
            self.troubles.append("the driver did not say that the head was gone")

    def _restore(self, code: int) -> None:
        """Before the sweep is resumed: what the driver cannot do without."""
        head = self.lab.cluster.head
        if head is not None and not head.running():
            self.troubles.append("the head ended by itself")
            self.lab.lose_head()
        if self.lab.cluster.head is None:
            self.lab.new_cluster()
        if code == 2:  # it said what it lacks
            while self._mendings:
                self._mend(time.monotonic())
                time.sleep(_TICK_SECONDS)
            self.lab.wait_until_served()

    def _end(self) -> None:
        """Mend everything, and have published what was not."""
        self._mend(float("inf"))
        self.lab.wait_until_served()
        self.evidence.look()
        if _NOT_PUBLISHED in self._last_words():
            self.log(f"{self.name}: to be published later")
            self._command("sync")
        if self._command("verify"):
            self.troubles.append("verify did not pass")

    def _command(self, name: str) -> int:
        uri = ["--tracking-uri", self.lab.tracking_uri]
        arguments = [name, self.name, "--storage", str(self.storage), *uri]
        return int(self.lab.drive(self.driver_log, arguments).wait())

    def _last_words(self) -> str:
        """Output of the last run."""
        return self.driver_log.read_text(errors="replace").rpartition("sweep " + self.name)[2]
