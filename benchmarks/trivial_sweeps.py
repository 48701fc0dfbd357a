"""One sweep of the trivial experiment in a process of its own, and when its points came.

`measure` starts the process; what it runs is below. Times are the ledger's own: of the points, when
their trainings ended, and of the files, when packs were committed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sweeps.planning.plan import Plan, make_plan
from sweeps.store.ledger import Ledger
from sweeps.study.spec import Study

_SWEEP = "trivial"
_FOLDER = Path(__file__).parent / "trivial"
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Order:
    """Sweep to run.

    Attributes:
        points: How many.
        replicates: Of each.
        seconds: That each training sleeps.
        busy: Processor time of each training, seconds.
        pack: Trainings in a pack; 0 has them sized as usual.
        nodes: Ray nodes of one CPU each on this machine; 0 is one Ray as usual.
        cpus: Logical CPUs of each node.
        tracking_uri: Where to publish to; None publishes nothing.
    """

    points: int
    replicates: int = 1
    seconds: float = 0.0
    busy: float = 0.0
    pack: int = 0
    nodes: int = 0
    cpus: int = 1
    tracking_uri: str | None = None


@dataclass(frozen=True)
class Times:
    """When what happened, in seconds since the process was started.

    Attributes:
        ends: Of the trainings, sorted.
        commits: Of the packs, sorted.
        end: Of the process.
    """

    ends: list[float]
    commits: list[float]
    end: float

    @property
    def running(self) -> float:
        """Trainings per second in the middle eight tenths."""
        tenth = len(self.ends) // 10
        first, last = self.ends[tenth], self.ends[-1 - tenth]
        return (len(self.ends) - 1 - 2 * tenth) / (last - first)


def measure(order: Order) -> Times:
    """Run a sweep in a fresh process and a fresh folder.

    Raises:
        CalledProcessError: If it fails.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        began = time.time()
        path = os.pathsep.join(filter(None, (str(_FOLDER), os.environ.get("PYTHONPATH"))))
        code = f"import {__name__} as it; it.main()"
        command = [sys.executable, "-c", code, folder, json.dumps(asdict(order))]
        environment = {**os.environ, "PYTHONPATH": path}
        subprocess.run(command, cwd=_ROOT, env=environment, check=True, stdout=sys.stderr)
        end = time.time()
        ledger = Ledger(folder, _SWEEP)
        ends = sorted(r.finished_at - began for p in ledger.read_points() for r in p.replicates)
        files = Path(folder, _SWEEP, "ledger").glob("*.parquet")
        commits = sorted(file.stat().st_mtime - began for file in files)
    return Times(ends, commits, end - began)


def main() -> None:
    """Run what the command line says."""
    folder, text = sys.argv[1:]
    order = Order(**json.loads(text))
    if not order.nodes:
        _run(order, folder, None)
        return
    os.environ["RAY_AUTH_MODE"] = "disabled"
    from ray.cluster_utils import Cluster

    node = {"num_cpus": order.cpus, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    for _ in range(order.nodes - 1):
        cluster.add_node(**node)
    cluster.wait_for_nodes()
    try:
        _run(order, folder, cluster.address)
    finally:
        cluster.shutdown()


def _run(order: Order, folder: str, address: str | None) -> None:
    from sweeps.engine.executor import execute
    from sweeps.engine.progress import ProgressTracker, SweepCounter
    from sweeps.engine.scheduler import run_pending_packs
    from sweeps.engine.signals import catch_stop_signals
    from sweeps.engine.sweep_run import SweepRun
    from sweeps.store.lease import acquire_lease

    planned = _plan(order)
    if order.tracking_uri is not None:
        uri = order.tracking_uri
        outcome = execute(planned, sweep=_SWEEP, storage=folder, tracking_uri=uri, address=address)
        assert outcome.exit_code == 0, outcome.problems
        return
    ledger = Ledger(folder, _SWEEP)
    counter = SweepCounter(ledger, planned.seed_rule, planned.objectives)
    with catch_stop_signals() as stop, acquire_lease(ledger.directory) as lease:
        own = Ledger(folder, _SWEEP, lease.directory.run_id)
        run_pending_packs(
            SweepRun(
                plan=planned,
                ledger=own,
                lease=lease,
                stop=stop,
                tracker=ProgressTracker(counter),
                address=address,
                resume_command="",
            )
        )


def _plan(order: Order) -> Plan:
    study: dict[str, Any] = {
        "name": _SWEEP,
        "experiment": "trivial",
        "fixed": {"seconds": order.seconds, "busy": order.busy},
        "space": {"x": {"uniform": [0.0, 1.0]}, "y": {"uniform": [0.1, 1.0]}},
        "replicates": order.replicates,
        "search": {"algorithm": "random", "num_points": order.points},
        "resources": {"pack": order.pack or "auto"},
    }
    return make_plan(Study.model_validate(study))
