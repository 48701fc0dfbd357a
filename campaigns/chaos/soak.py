"""Many points through several nodes into MLflow on PostgreSQL, and what memory that takes.

Run as `python -m campaigns.chaos.soak --points 20000 --nodes 3`. The figures go to
`results/soak.csv`: for each role the memory that is its own (USS), which no other process shares.
Exit code 0 if everything was published, the front is exact and no memory grew beyond its bound.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import psutil
import psycopg2
from rich.console import Console
from rich.table import Table

from campaigns.chaos import world
from campaigns.chaos.lab import Lab
from campaigns.chaos.nodes import is_actor, tree
from sweeps.analysis.results import Result, open_result

RESULTS = Path(__file__).parent / "results" / "soak.csv"
# Limit of a role's growth per thousand points. The driver keeps ids and objectives for its
# progress, the publisher those of published points, and Tune 60 KiB for each of fifty trials.
MOST_GROWTH_MIB = 6.0

_SWEEP = "soak"
_EVERY_SECONDS = 10.0
_WARM = 0.2
_MIB = 2**20
_STUDY = """
name: soak
experiment: trivial
fixed: {{seconds: 0.005}}
space: {{x: {{uniform: [0.0, 1.0]}}, y: {{uniform: [0.1, 1.0]}}}}
replicates: 1
search: {{algorithm: random, num_points: {points}}}
resources: {{pack: 20}}
"""


@dataclass(frozen=True)
class Sample:
    """Progress and memory at one moment.

    Attributes:
        seconds: Seconds since the start.
        committed: Points in the ledger.
        published: Finished runs in MLflow's database.
        memory: Own memory by role, in MiB.
    """

    seconds: float
    committed: int
    published: int
    memory: Mapping[str, float]


@dataclass(frozen=True)
class Figure:
    """Memory of a role over the sweep.

    Attributes:
        role: Name of the role.
        first: Memory after a fifth of the points, in MiB.
        last: Memory at the end, in MiB.
        most: Maximum, in MiB.
        growth: Least-squares slope, in MiB per thousand points.
    """

    role: str
    first: float
    last: float
    most: float
    growth: float


def main() -> int:
    """Runs the soak in namespaces of its own."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.chaos.soak", description=__doc__)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=3, choices=range(1, 5))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if world.FOLDER not in os.environ:
        if reason := world.missing_support():
            print(f"a soak needs namespaces of Linux: {reason}", file=sys.stderr)
            return 2
        return world.run_inside("campaigns.chaos.soak", sys.argv[1:])
    lab = Lab(world.enter_namespace(), nodes=options.nodes, jumping_clocks=False)
    try:
        return _soak(lab, options)
    finally:
        lab.close()


def _soak(lab: Lab, options: argparse.Namespace) -> int:
    study = lab.folder / "soak.yaml"
    study.write_text(_STUDY.format(points=options.points))
    storage = lab.folder / "s"
    storage.mkdir()
    where = ["--storage", str(storage), "--tracking-uri", lab.tracking.uri]
    run = ["run", str(study), "--name", _SWEEP, *where, "--address", lab.cluster.address, "--yes"]
    said = lab.folder / "said"
    driver = lab.drive(said, run)
    samples = list(_samples(lab, driver, storage))
    code = int(driver.wait())
    print(said.read_text(errors="replace")[-1500:], file=sys.stderr)
    result = open_result(_SWEEP, str(storage))
    problems = _problems(result, options.points)
    problems += [f"the driver ended with {code}"] if code else []
    if lab.drive(said, ["verify", _SWEEP, *where]).wait():
        problems.append("verify did not pass")
    figures = _figures(samples, options.points)
    problems += [f"{f.role} grows" for f in figures if f.growth > MOST_GROWTH_MIB]
    _publish(figures, samples, options)
    print("\n".join(problems or ["everything published, the front exact, memory bounded"]))
    return 1 if problems else 0


def _samples(lab: Lab, driver: subprocess.Popen[bytes], storage: Path) -> Iterator[Sample]:
    began = time.monotonic()
    ledger = storage / _SWEEP / "ledger"
    while driver.poll() is None:
        committed = 20 * len(list(ledger.glob("[!.]*.parquet")))
        sample = Sample(
            time.monotonic() - began, committed, _count_published(lab), _memory(lab, driver.pid)
        )
        print(sample, file=sys.stderr, flush=True)
        yield sample
        with suppress(subprocess.TimeoutExpired):
            driver.wait(_EVERY_SECONDS)


def _count_published(lab: Lab) -> int:
    with psycopg2.connect(host=str(lab.folder / "p"), user="postgres") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT count(*) FROM runs WHERE status = 'FINISHED'")
        (count,) = cursor.fetchone() or (0,)
    connection.close()
    return int(count)


def _memory(lab: Lab, driver: int) -> dict[str, float]:
    """Returns the own memory of each role, summed over its processes."""
    processes = {
        "driver": tree(driver),
        "workers": lab.workers(),
        "server": tree(lab.tracking.pid),
        "database": tree(lab.database.pid),
        "Ray": [p for n in lab.cluster.all_nodes() for p in n.tree() if not is_actor(p)],
    }
    return {role: sum(map(_own_bytes, found)) / _MIB for role, found in processes.items()}


def _own_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return 0


def _figures(samples: Sequence[Sample], points: int) -> list[Figure]:
    return [figure for role in samples[0].memory if (figure := _figure(role, samples, points))]


def _figure(role: str, samples: Sequence[Sample], points: int) -> Figure | None:
    """Returns the growth over published points, or over committed points for driver and workers.

    Samples after the last point are left out, as the summary runs then.
    """
    training = role in ("workers", "driver")
    count = [sample.committed if training else sample.published for sample in samples]
    pairs = [
        (done, sample.memory[role])
        for done, sample in zip(count, samples, strict=True)
        if _WARM * points <= done < points and sample.memory[role]
    ]
    if len(pairs) < 3:
        return None
    points, memory = np.array(pairs, dtype=np.float64).T
    growth = float(np.polyfit(points, memory, 1)[0]) * 1000
    most = max(sample.memory[role] for sample in samples)
    return Figure(role, float(memory[0]), float(memory[-1]), most, growth)


def _problems(result: Result, points: int) -> list[str]:
    """Returns the differences from directly computed values."""
    found = []
    if len(result.points) != points:
        found.append(f"{len(result.points)} points of {points}")
    frame = result.points
    leakage = frame["config/x"].astype(float) + math.sin(1) / 100
    error = 1 - frame["config/x"].astype(float) ** frame["config/y"].astype(float)
    expected = set(frame["point_id"][_is_undominated(leakage.to_numpy(), error.to_numpy())])
    if set(result.front()["point_id"]) != expected:
        found.append("the front differs from the directly computed one")
    return found


def _is_undominated(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns which points no other point dominates, computed point by point."""
    kept = [
        not np.any((first <= a) & (second <= b) & ((first < a) | (second < b)))
        for a, b in zip(first, second, strict=True)
    ]
    return np.array(kept)


def _publish(
    figures: Sequence[Figure], samples: Sequence[Sample], options: argparse.Namespace
) -> None:
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "points": options.points,
        "nodes": options.nodes,
        "seconds": round(samples[-1].seconds),
    }
    rows = [
        {**about, "role": f.role, "first_mib": f"{f.first:.1f}", "last_mib": f"{f.last:.1f}",
         "most_mib": f"{f.most:.1f}", "growth_mib_per_1000": f"{f.growth:.3f}"}
        for f in figures
    ]  # fmt: skip
    table = Table(*rows[0], title="own memory by role")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=120).print(table)
    fresh = not options.results.exists()
    with options.results.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
