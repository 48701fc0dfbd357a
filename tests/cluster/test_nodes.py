"""A function is called on every node of a real cluster, within a bounded time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
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

with cluster.connect(sys.argv[1]):
    answers = eval(sys.argv[2])
print(json.dumps({
    machine.node: {"lost" if answer.is_lost else "failed": answer.reason}
    if isinstance(answer, NoAnswer) else answer
    for machine, answer in answers.items()
}))
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


def call_nodes(head: Head, call: str) -> list[Any]:
    asked = subprocess.run(
        [sys.executable, "-c", _CALL, head.gcs, call],
        env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": head.token},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    return list(json.loads(asked.stdout.splitlines()[-1]).values())


def test_each_node_answers_for_itself(head: Head, node: int) -> None:
    answers = call_nodes(head, "on_every_node(os.getenv, 'WHO')")
    assert sorted(answers) == ["the head", "the other"]


def test_given_variables_reach_every_node(head: Head, node: int) -> None:
    answers = call_nodes(head, "on_every_node(os.getenv, 'WHO', environment={'WHO': 'given'})")
    assert answers == ["given", "given"]


def test_an_exception_on_a_node_comes_back_as_text(head: Head, node: int) -> None:
    answers = call_nodes(head, "on_every_node(os.listdir, '/there/is/none')")
    reason = "FileNotFoundError: [Errno 2] No such file or directory: '/there/is/none'"
    assert answers == [{"failed": reason}, {"failed": reason}]


def test_a_process_that_died_counts_as_lost(head: Head, node: int) -> None:
    answers = call_nodes(head, "on_every_node(os._exit, 1)")
    assert [list(answer) for answer in answers] == [["lost"], ["lost"]]


def test_a_slow_node_is_not_waited_for(head: Head, node: int) -> None:
    began = time.monotonic()
    answers = call_nodes(head, "on_every_node(time.sleep, 300, seconds=5)")
    assert answers == [{"lost": "no answer within 5 s"}] * 2
    assert time.monotonic() - began < 120


@pytest.mark.slow  # Ray takes long to give up a node
def test_a_node_that_hangs_does_not_delay_the_others(head: Head, node: int) -> None:
    hanging = psutil.Process(node).children(recursive=True)
    for process in hanging:
        process.send_signal(signal.SIGSTOP)
    try:
        answers = call_nodes(head, "on_every_node(os.getenv, 'WHO', seconds=20)")
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
