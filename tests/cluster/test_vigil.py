"""Whoever keeps vigil is told when a head no longer answers, and not before."""

from __future__ import annotations

import queue
import socket
import time

import pytest

from cluster.vigil import vigil


def listening(port: int = 0) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen()
    return made


def test_a_head_that_goes_is_told_of_once_and_again_after_it_was_back() -> None:
    head = listening()
    port = head.getsockname()[1]
    told: queue.Queue[float] = queue.Queue()
    with vigil(f"127.0.0.1:{port}", told.put, silent=1.0):
        with pytest.raises(queue.Empty):
            told.get(timeout=3)
        head.close()
        assert told.get(timeout=30) >= 1.0
        with pytest.raises(queue.Empty):
            told.get(timeout=5)
        with listening(port):
            time.sleep(3)
        assert told.get(timeout=30) >= 1.0


def test_nobody_is_told_after_the_block() -> None:
    told: list[float] = []
    with vigil("127.0.0.1:1", told.append, silent=0.0):
        pass
    time.sleep(3)
    assert told == []
