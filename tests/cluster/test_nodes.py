"""Every node of a real cluster is asked, each for itself, and none is waited for without end."""

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

_ASK = """
import json, os, sys, time
import cluster
from cluster.nodes import NoAnswer, on_every_node

with cluster.connect(sys.argv[1]):
    told = eval(sys.argv[2])
print(json.dumps({
    machine.node: {"silent" if found.is_lost else "failed": found.reason}
    if isinstance(found, NoAnswer) else found
    for machine, found in told.items()
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


def ask(head: Head, call: str) -> list[Any]:
    asked = subprocess.run(
        [sys.executable, "-c", _ASK, head.gcs, call],
        env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": head.token},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    return list(json.loads(asked.stdout.splitlines()[-1]).values())


def test_each_node_answers_for_itself(head: Head, node: int) -> None:
    told = ask(head, "on_every_node(os.getenv, 'WHO')")
    assert sorted(told) == ["the head", "the other"]


def test_variables_that_are_given_reach_every_node(head: Head, node: int) -> None:
    told = ask(head, "on_every_node(os.getenv, 'WHO', environment={'WHO': 'told'})")
    assert told == ["told", "told"]


def test_what_is_raised_on_a_node_comes_back_as_words(head: Head, node: int) -> None:
    told = ask(head, "on_every_node(os.listdir, '/there/is/none')")
    reason = "FileNotFoundError: [Errno 2] No such file or directory: '/there/is/none'"
    assert told == [{"failed": reason}, {"failed": reason}]


def test_a_process_that_is_lost_on_a_node_is_no_failure_of_the_node(head: Head, node: int) -> None:
    told = ask(head, "on_every_node(os._exit, 1)")
    assert [list(said) for said in told] == [["silent"], ["silent"]]


def test_a_node_that_takes_too_long_is_not_waited_for(head: Head, node: int) -> None:
    began = time.monotonic()
    told = ask(head, "on_every_node(time.sleep, 300, seconds=5)")
    assert told == [{"silent": "no answer within 5 s"}] * 2
    assert time.monotonic() - began < 120


@pytest.mark.slow  # a node takes long to be given up
def test_a_node_that_hangs_does_not_keep_others_from_answering(head: Head, node: int) -> None:
    hanging = psutil.Process(node).children(recursive=True)
    for process in hanging:
        process.send_signal(signal.SIGSTOP)
    try:
        told = ask(head, "on_every_node(os.getenv, 'WHO', seconds=20)")
    finally:
        for process in hanging:
            if process.is_running():
                process.send_signal(signal.SIGCONT)
    assert "the head" in told
    assert "the other" not in told


def test_nodes_of_one_host_are_told_apart() -> None:
    alone, first, second = (
        Machine(1, 0, host=host, node=node)
        for host, node in (("a", "1" * 56), ("b", "2" * 56), ("b", "3" * 56))
    )
    assert node_names([alone, first, second]) == {
        alone: "a",
        first: "b (22222222)",
        second: "b (33333333)",
    }
