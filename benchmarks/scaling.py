"""Efficiency of a sweep on more nodes, with trainings that sleep and need no processor.

Ray nodes of one logical CPU each are started on this machine (`ray.cluster_utils.Cluster`), the
sweep joins them by their address; beyond a few nodes, one node offers as many logical CPUs in their
place. Every training sleeps; packs are sized as usual. The publisher mirrors into SQLite, or into
an `mlflow server` behind a proxy that lets every call wait.

`efficiency` is the time slept divided by nodes times the time from the start of the first training
to the last commit: it counts the start of actors, hand-over of packs, commits and the sweep's tail.
`steady` counts the middle eight tenths of the trainings alone: on one machine, all processes of
many nodes load their libraries on the same few cores, which nodes of their own would not share.

Run as `python -m benchmarks.scaling [--nodes 1 2 4] [--logical 16 64] [--per-node N]`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tracking
from benchmarks.cleanup import run
from benchmarks.harness import publish
from benchmarks.trivial_sweeps import Order, measure
from tests.mlflow_server import mlflow_server
from tests.slow_proxy import slow_proxy


def main() -> None:
    """Measure and append to the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--logical", type=int, nargs="*", default=[16, 64])
    parser.add_argument("--per-node", type=int, default=120, help="trainings for each node")
    parser.add_argument("--seconds", type=float, default=0.5, help="that a training sleeps")
    parser.add_argument("--slow", type=float, default=0.2, help="seconds that a call waits")
    options = parser.parse_args()
    for slow in (0.0, options.slow):
        rows = [_row(count, 1, slow, options) for count in options.nodes]
        rows += [_row(1, count, slow, options) for count in options.logical]
        publish("scaling", rows)


def _row(nodes: int, cpus: int, slow: float, options: argparse.Namespace) -> dict[str, object]:
    workers = nodes * cpus
    count, seconds = workers * options.per_node, options.seconds
    with _tracking(slow) as uri:
        times = measure(Order(count, seconds=seconds, nodes=nodes, cpus=cpus, tracking_uri=uri))
    slept = count * seconds / workers
    return {
        "contestant": f"{nodes} nodes" if cpus == 1 else f"{cpus} logical nodes",
        "tracking": f"{1000 * slow:.0f} ms a call" if slow else "SQLite",
        "rounds": 1,
        "trainings": count,
        "packs": len(times.commits),
        "ideal_seconds": round(slept, 1),
        "training_seconds": round(times.commits[-1] - times.ends[0] + seconds, 1),
        "whole_seconds": round(times.end, 1),
        "efficiency": round(slept / (times.commits[-1] - times.ends[0] + seconds), 3),
        "steady": round(times.running * seconds / workers, 3),
    }


@contextmanager
def _tracking(slow: float) -> Iterator[str]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        store = tracking.create(f"sqlite:///{folder}/mlflow.db")
        if slow:
            server = stack.enter_context(mlflow_server(Path(folder)))
            yield stack.enter_context(slow_proxy(server.uri, slow))
        else:
            yield store


if __name__ == "__main__":
    run(main)
