"""A function is called on every node of a real cluster, within a bounded time.

So every node fetches data sets for itself, and a sweep does not start if one lacks them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname
from typing import Any

import psutil
import pytest
from ray_pair import Pair
from support import Ended, requires_data

from privnets import data

NAME = "location30"
# Before any test names another data directory.
WHOLE = data.directory()
(FILE,) = (file.name for file in data.info(NAME).files)

pytestmark = pytest.mark.ray
needs_data = requires_data(NAME)


@pytest.fixture
def empty_pair(pair: Pair) -> Pair:
    """Both without data."""
    for root in pair.data:
        shutil.rmtree(root, ignore_errors=True)
    return pair


_COMMANDS = """
import json, os, sys, time
import cluster
from cluster.nodes import NoAnswer, on_every_node
from support import run_command

def call(expression):
    began = time.monotonic()
    answers = [
        {"lost" if answer.is_lost else "failed": answer.reason}
        if isinstance(answer, NoAnswer) else answer
        for answer in eval(expression).values()
    ]
    return answers, time.monotonic() - began

with cluster.connect(sys.argv[1]):
    for line in sys.stdin:
        words = json.loads(line)
        answer = call(words) if isinstance(words, str) else run_command(*words)._asdict()
        print(json.dumps(answer), flush=True)
"""


class Driver:
    """A process that has joined the cluster, as joining takes seconds."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self._address = address

    def run(self, *words: str) -> Ended:
        """Runs a command of `sweeps` on the cluster."""
        return Ended(**self._answer([*words, "--address", self._address]))

    def call(self, expression: str) -> tuple[list[Any], float]:
        """Answers of all nodes to a call of `on_every_node`, and its seconds."""
        answers, seconds = self._answer(expression)
        return answers, seconds

    def _answer(self, request: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


@pytest.fixture(scope="module")
def driver(pair: Pair, head_folder: Path) -> Iterator[Driver]:
    tests = Path(__file__).parents[2]
    own = {
        "HOME": str(head_folder / "home"),
        "PRIVNETS_DATA": str(pair.data[0]),
        "PYTHONPATH": os.pathsep.join([str(tests), os.environ["PYTHONPATH"]]),
    }
    with subprocess.Popen(
        [sys.executable, "-c", _COMMANDS, pair.head.gcs], env={**os.environ, **own, **pair.token},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield Driver(process, pair.head.gcs)


def test_each_node_answers_for_itself(driver: Driver) -> None:
    """With its own variables or given ones, an exception as text, and none that died or is slow."""
    own = driver.call("on_every_node(os.getenv, 'WHO')")
    given = driver.call("on_every_node(os.getenv, 'WHO', environment={'WHO': 'given'})")
    failed = driver.call("on_every_node(os.listdir, '/there/is/none')")
    died = driver.call("on_every_node(os._exit, 1)")
    slow = driver.call("on_every_node(time.sleep, 300, seconds=5)")
    assert sorted(own[0]) == ["the head", "the other"]
    assert given[0] == ["given", "given"]
    reason = "FileNotFoundError: [Errno 2] No such file or directory: '/there/is/none'"
    assert failed[0] == [{"failed": reason}, {"failed": reason}]
    assert [list(answer) for answer in died[0]] == [["lost"], ["lost"]]
    assert slow[0] == [{"lost": "no answer within 5 s"}] * 2
    assert slow[1] < 120


def intact(root: Path) -> bool:
    return (root / NAME / FILE).read_bytes() == (WHOLE / NAME / FILE).read_bytes()


def copy_data(root: Path) -> None:
    shutil.copytree(WHOLE / NAME, root / NAME)


@needs_data
def test_every_node_copies_a_data_set_for_itself(empty_pair: Pair, driver: Driver) -> None:
    ran = driver.run("data", "fetch", NAME, "--from", str(WHOLE))
    assert ran.exit_code == 0, ran.stderr
    assert intact(empty_pair.data[0])
    assert intact(empty_pair.data[1])
    for root in (empty_pair.data[0], empty_pair.data[1]):
        assert [path.name for path in root.iterdir()] == [NAME]


@needs_data
def test_a_source_that_is_not_the_published_one_is_refused_on_every_node(
    empty_pair: Pair, driver: Driver, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_bytes((WHOLE / NAME / FILE).read_bytes()[:-1] + b"?")
    ran = driver.run("data", "fetch", NAME, "--from", str(tmp_path))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.count("is not the published file") == 2
    assert not list(empty_pair.data[0].iterdir())
    assert not list(empty_pair.data[1].iterdir())


@needs_data
def test_the_data_of_each_node_is_listed(empty_pair: Pair, driver: Driver) -> None:
    copy_data(empty_pair.data[1])
    ran = driver.run("data", "list", "--json")
    assert ran.exit_code == 0, ran.stderr
    told = json.loads(ran.stdout).values()
    assert sorted(node["sets"][NAME] for node in told) == [
        ["absent", str(empty_pair.data[0] / NAME)], ["present", str(empty_pair.data[1] / NAME)],
    ]  # fmt: skip
    assert all(node["sets"]["digits"] == ["present", "scikit-learn"] for node in told)


@needs_data
def test_a_data_directory_for_all_nodes_can_be_named(
    empty_pair: Pair, driver: Driver, tmp_path: Path
) -> None:
    copy_data(tmp_path)
    ran = driver.run("data", "list", "--data", str(tmp_path), "--json")
    assert ran.exit_code == 0, ran.stderr
    states = [node["sets"][NAME] for node in json.loads(ran.stdout).values()]
    assert states == [["present", str(tmp_path / NAME)]] * 2


@needs_data
def test_a_sweep_whose_data_one_node_lacks_does_not_begin(
    empty_pair: Pair, driver: Driver, study: str, tmp_path: Path
) -> None:
    copy_data(empty_pair.data[0])
    storage = tmp_path / "sweeps"
    tracking_uri = f"sqlite:///{tmp_path}/mlflow.db"
    where = ("--storage", str(storage), "--tracking-uri", tracking_uri)
    ran = driver.run("run", study, "--name", "places", *where)
    assert (ran.exit_code, ran.stdout) == (2, "")
    (line,) = [line for line in ran.stderr.splitlines() if line.startswith("Error: ")]
    assert "dataset_location.tgz is absent" in line
    assert str(empty_pair.data[1] / NAME) in line
    assert "sweeps data fetch" in line
    assert not list(storage.iterdir())
    assert not (tmp_path / "mlflow.db").exists()


@needs_data
def test_several_processes_of_a_machine_fetch_once(tmp_path: Path) -> None:
    """Each file keeps one inode: no process replaced the file of another."""
    code = (
        "import sys; from privnets import data; "
        "print(data.copy(sys.argv[1], sys.argv[2])[0].stat().st_ino)"
    )
    asked = [
        subprocess.Popen(
            [sys.executable, "-c", code, NAME, str(WHOLE)],
            env={**os.environ, "PRIVNETS_DATA": str(tmp_path)}, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    said = [process.communicate(timeout=240)[0] for process in asked]
    assert [process.returncode for process in asked] == [0] * 4
    assert len(set(said)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


# The data are there when the sweep begins, and gone when its first pack does.
_VANISHING = """
import json, os, shutil, sys
from sweeps.engine.executor import execute
from sweeps.study.loader import load
from sweeps.planning.plan import make_plan

folder, root = sys.argv[1], os.environ["PRIVNETS_DATA"]
outcome = execute(
    make_plan(load(f"{folder}/places.yaml", ["space.weight_decay.grid=[0.1]", "replicates=1"])),
    sweep="gone", storage=f"{folder}/sweeps",
    tracking_uri=f"sqlite:///{folder}/mlflow.db",
    on_progress=lambda progress: shutil.rmtree(root, ignore_errors=True),
)
print(json.dumps([outcome.exit_code, *outcome.failures.values()]))
"""


@needs_data
@pytest.mark.slow
def test_a_pack_that_finds_its_data_gone_says_on_which_node(study: str, tmp_path: Path) -> None:
    copy_data(tmp_path / "data")
    ran = subprocess.run(
        [sys.executable, "-c", _VANISHING, str(tmp_path)],
        env={**os.environ, "PRIVNETS_DATA": str(tmp_path / "data")},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    code, reason = json.loads(ran.stdout.splitlines()[-1])
    assert code == 1
    assert reason.startswith(f"privnets.data.files.DataError: node {gethostname()} (")
    assert "data set 'location30' cannot be used" in reason


@pytest.mark.slow  # Ray takes long to give up a node
def test_a_node_that_hangs_does_not_delay_the_others(pair: Pair, driver: Driver) -> None:
    hanging = psutil.Process(pair.node).children(recursive=True)
    for process in hanging:
        process.send_signal(signal.SIGSTOP)
    try:
        answers, _ = driver.call("on_every_node(os.getenv, 'WHO', seconds=20)")
    finally:
        for process in hanging:
            if process.is_running():
                process.send_signal(signal.SIGCONT)
    assert "the head" in answers
    assert "the other" not in answers
