"""The head monitor reports a head that ended or hangs, and no other."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Iterator

import psutil
import pytest
from ray_head import Head, ray_head

from cluster.head_monitor import monitor_head

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with ray_head(cpus=1) as started:
        yield started


def gcs_server(head: Head) -> psutil.Process:
    """The head's own process, found by the port that it listens on."""
    port = int(head.gcs.rpartition(":")[2])
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "gcs_server" and any(
            connection.laddr.port == port for connection in process.net_connections("tcp")
        ):
            return process
    raise AssertionError(f"no gcs_server listens on port {port}")


def test_a_head_that_hangs_is_reported_once_and_again_after_it_answered(head: Head) -> None:
    """A stopped process accepts connections, but answers nothing."""
    process = gcs_server(head)
    silences: queue.Queue[float] = queue.Queue()
    with monitor_head(head.gcs, head.token, silences.put, silent_seconds=1.0):
        with pytest.raises(queue.Empty):
            silences.get(timeout=5)
        for _ in range(2):
            os.kill(process.pid, signal.SIGSTOP)
            try:
                assert silences.get(timeout=60) >= 1.0
                with pytest.raises(queue.Empty):
                    silences.get(timeout=8)
            finally:
                os.kill(process.pid, signal.SIGCONT)
            time.sleep(8)  # two probes


def test_a_head_that_ended_is_reported() -> None:
    silences: queue.Queue[float] = queue.Queue()
    with monitor_head("127.0.0.1:1", None, silences.put, silent_seconds=1.0):
        assert silences.get(timeout=60) >= 1.0


def test_nothing_is_reported_after_the_block() -> None:
    silences: queue.Queue[float] = queue.Queue()
    with monitor_head("127.0.0.1:1", None, silences.put, silent_seconds=0.0):
        pass
    with pytest.raises(queue.Empty):
        silences.get(timeout=4)
