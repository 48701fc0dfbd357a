"""The head monitor reports a head that ended, while its block runs."""

from __future__ import annotations

import queue

import pytest

from cluster.probe import monitor_head


def test_a_head_that_ended_is_reported() -> None:
    silences: queue.Queue[float] = queue.Queue()
    with monitor_head("127.0.0.1:1", None, silences.put, silent_seconds=1.0):
        assert silences.get(timeout=240) >= 1.0


def test_nothing_is_reported_after_the_block() -> None:
    silences: queue.Queue[float] = queue.Queue()
    with monitor_head("127.0.0.1:1", None, silences.put, silent_seconds=0.0):
        pass
    with pytest.raises(queue.Empty):
        silences.get(timeout=4)
