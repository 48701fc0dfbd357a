"""A benchmark that is ended takes along what it started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

_BENCHMARK = """
import subprocess, sys, time
from tests.benchmarks.cleanup import run

def main():
    # A server in a session of its own whose own child outlasts it.
    server = "import subprocess, sys; p = subprocess.Popen(['sleep', '100']); "
    server += "print(p.pid, flush=True); p.wait()"
    subprocess.Popen([sys.executable, "-c", server], start_new_session=True)
    try:
        time.sleep(100)
    finally:
        print("in order", flush=True)

run(main)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux alone")
def test_a_benchmark_that_is_ended_leaves_no_process() -> None:
    code = "import tests.benchmarks.cleanup as it; it._PATIENCE = 0.5\n" + _BENCHMARK
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
    ) as benchmark:  # fmt: skip
        assert benchmark.stdout is not None
        orphan = psutil.Process(int(benchmark.stdout.readline()))
        server = orphan.parent()
        assert server is not None
        benchmark.send_signal(signal.SIGTERM)
        assert benchmark.stdout.read() == "in order\n"
        assert benchmark.wait() == 143
    assert has_ended(orphan)
    assert has_ended(server)


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, even if its parent has not waited for it."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
