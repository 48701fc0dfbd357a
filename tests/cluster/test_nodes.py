"""A function is called on every node of a real cluster, within a bounded time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from ray_head import Head, ray_head
from ray_node import ray_node

from cluster.connection import Machine
from cluster.nodes import node_names

pytestmark = pytest.mark.ray

_CALL = """
import json, os, sys, time
import cluster
from cluster.nodes import NoAnswer, on_every_node

def readable(answers):
    return [
        {"lost" if answer.is_lost else "failed": answer.reason}
        if isinstance(answer, NoAnswer) else answer
        for answer in answers.values()
    ]

with cluster.connect(sys.argv[1]):
    for call in sys.argv[2:]:
        began = time.monotonic()
        answers = readable(eval(call))
        print(json.dumps([answers, time.monotonic() - began]))
"""


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHO", "the head")
        with ray_head() as started:
            yield started


@pytest.fixture(scope="module")
def node(head: Head) -> Iterator[int]:
    with ray_node(head, {"WHO": "the other"}) as pid:
        yield pid


def call_nodes(head: Head, *calls: str) -> list[tuple[list[Any], float]]:
    """Answers of all nodes to each call, and its seconds; one process makes all calls."""
    asked = subprocess.run(
        [sys.executable, "-c", _CALL, head.gcs, *calls],
        env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": head.token},
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    return [tuple(json.loads(line)) for line in asked.stdout.splitlines()[-len(calls) :]]


def test_each_node_answers_for_itself(head: Head, node: int) -> None:
    """With its own variables or given ones, an exception as text, and none that died or is slow."""
    own, given, failed, died, slow = call_nodes(
        head,
        "on_every_node(os.getenv, 'WHO')",
        "on_every_node(os.getenv, 'WHO', environment={'WHO': 'given'})",
        "on_every_node(os.listdir, '/there/is/none')",
        "on_every_node(os._exit, 1)",
        "on_every_node(time.sleep, 300, seconds=5)",
    )
    assert sorted(own[0]) == ["the head", "the other"]
    assert given[0] == ["given", "given"]
    reason = "FileNotFoundError: [Errno 2] No such file or directory: '/there/is/none'"
    assert failed[0] == [{"failed": reason}, {"failed": reason}]
    assert [list(answer) for answer in died[0]] == [["lost"], ["lost"]]
    assert slow[0] == [{"lost": "no answer within 5 s"}] * 2
    assert slow[1] < 120


@pytest.mark.slow  # Ray takes long to give up a node
def test_a_node_that_hangs_does_not_delay_the_others(head: Head, node: int) -> None:
    hanging = psutil.Process(node).children(recursive=True)
    for process in hanging:
        process.send_signal(signal.SIGSTOP)
    try:
        ((answers, _),) = call_nodes(head, "on_every_node(os.getenv, 'WHO', seconds=20)")
    finally:
        for process in hanging:
            if process.is_running():
                process.send_signal(signal.SIGCONT)
    assert "the head" in answers
    assert "the other" not in answers


def test_nodes_of_one_host_have_different_names() -> None:
    alone, first, second = (
        Machine(1, 0, host=host, node=node)
        for host, node in (("a", "1" * 56), ("b", "2" * 56), ("b", "3" * 56))
    )
    assert node_names([alone, first, second]) == {
        alone: "a",
        first: "b (22222222)",
        second: "b (33333333)",
    }
