"""A sweep is submitted, followed, stopped and continued from a machine that has only its study."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pytest
from ray_head import Head
from small_sweeps import rows, study_file
from support import run_command
from typer.testing import CliRunner

import sweeps
from cluster.errors import JobError
from cluster.jobs import Job, JobClient
from sweeps.cli.main import app
from sweeps.errors import InputError, StudyError
from sweeps.planning.plan import set_num_points
from sweeps.remote.commands import parse_reply, run_remotely
from sweeps.remote.status import SweepOverview, read_overview
from sweeps.remote.submission import (
    SweepJob,
    default_sweep_name,
    find_job,
    job_id,
    validate_remote_study,
)
from sweeps.store.ledger import Ledger
from sweeps.store.status import ResourceUse, read_status
from sweeps.study.loader import load

T = TypeVar("T")

_SECONDS = 240.0
# Goes no further than its tickets, so that it is stopped in the middle however fast it trains.
_STUDY = """\
name: small
experiment: turnstile
fixed:
  dataset: {table: t.csv, target: outcome}
  model: {sklearn: "own_tree:tree"}
  train_size: 8
  draws: 32
  records: 4
space: {model.params.depth: {grid: [1, 2, 3]}}
replicates: 1
resources: {pack: 1}
"""
_OWN_FILES = {
    "t.csv": "\n".join(["age,outcome", *(f"{age},{age % 2}" for age in range(40))]),
    "own_tree.py": "from own_parts import make\ndef tree(depth): return make(max_depth=depth)\n",
    "own_parts.py": "from sklearn.tree import DecisionTreeClassifier as make\n",
}
_POINTS, _PACKS, _TICKETS = 3, 3, 1
_EXPERIMENT = Path(__file__).parents[1] / "turnstile"
_PYTHONPATH = f"{_EXPERIMENT}:{Path(__file__).parents[3]}"

pytestmark = pytest.mark.ray


class Laptop:
    """Machine with a study, its data and modules, a home with a token, and its experiment."""

    def __init__(self, folder: Path, head: Head, tracking_uri: str) -> None:
        self.folder, self.home, self.storage = folder / "work", folder / "home", folder / "shared"
        for made in (self.folder, self.home / ".ray", self.storage):
            made.mkdir(parents=True)
        token = self.home / ".ray" / "auth_token"
        token.touch(0o600)
        token.write_text(head.token)
        study = study_file(self.folder, _STUDY)
        for name, text in _OWN_FILES.items():
            (self.folder / name).write_text(text)
        self.sweep = default_sweep_name(load(study).to_dict())
        self.ledger = Ledger(str(self.storage), self.sweep)
        self.address = head.address
        self._tracking_uri = tracking_uri

    @contextmanager
    def used(self, **changes: str) -> Iterator[None]:
        """Gives this process the directory and the variables of a user of the machine."""
        with pytest.MonkeyPatch.context() as patch:
            for name in os.environ:
                if name.startswith(("RAY_", "MLFLOW_TRACKING", "PRIVNETS_DATA")):
                    patch.delenv(name)
            own = {"HOME": str(self.home), "RAY_ADDRESS": self.address, "PYTHONPATH": _PYTHONPATH}
            for name, value in {**own, **changes}.items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            yield

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        with self.used():
            return subprocess.Popen(
                [sys.executable, "-m", "sweeps", *arguments], text=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip

    def run(self, *arguments: str, code: int = 0, **changes: str) -> tuple[str, str]:
        """Standard output and error of a command."""
        with self.used(**changes):
            ended = run_command(*arguments)
        assert ended.exit_code == code, ended.stdout + ended.stderr
        return ended.stdout, ended.stderr

    def submission(self) -> list[str]:
        """The command's arguments."""
        where = ("--storage", str(self.storage), "--tracking-uri", self._tracking_uri)
        return ["submit", "small.yaml", *where]

    def written(self) -> dict[str, int]:
        """Pack in the ledger to when it was written."""
        assert self.ledger.directory.local_path is not None
        files = (self.ledger.directory.local_path / "ledger").glob("[!.]*.parquet")
        return {file.stem: file.stat().st_mtime_ns for file in files}


@dataclass
class Story:
    """A sweep whose submitter was killed, that was stopped, and submitted again.

    Attributes:
        laptop: From where.
        use: What it worked on.
        stopped: What `stop` said, on standard output and error.
        halted: Its job after that.
        log: Of its driver by then.
        begun: Packs in the ledger by then, with the time of each.
        resubmitted: What submitting it again said.
        twice: What submitting it once more at once said.
        done: Its job at the end.
    """

    laptop: Laptop
    use: ResourceUse
    stopped: tuple[str, str]
    halted: Job | None
    log: str
    begun: dict[str, int]
    resubmitted: str
    twice: str
    done: Job


@pytest.fixture(scope="module", autouse=True)
def _experiment() -> Iterator[None]:
    """This process has the study's experiment too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(_EXPERIMENT)
        yield


@pytest.fixture(autouse=True)
def _let_in(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, which looks on, has the token too."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", head.token)


@pytest.fixture(scope="module")
def story(
    head: Head, head_folder: Path, tracking_uri: str, tmp_path_factory: pytest.TempPathFactory
) -> Story:
    tickets = head_folder / "tickets"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", head.token)
        jobs = JobClient(head.address)
        laptop = Laptop(tmp_path_factory.mktemp("laptop"), head, tracking_uri)
        job = job_id(laptop.sweep)
        issue(tickets, _TICKETS)
        with laptop.start(*laptop.submission()) as client:
            wait_until("submitted", lambda: jobs.find(job))
            client.kill()
        meanwhile = partial(assert_active, jobs, job)
        wait_until("tickets used", lambda: len(laptop.ledger.pack_ids()) == _TICKETS, meanwhile)
        use = wait_until("packs in training", lambda: _use(laptop.ledger), meanwhile)
        stopped = laptop.run("stop", laptop.sweep)
        halted, log = jobs.find(job), jobs.log(job)
        begun = laptop.written()
        issue(tickets, _PACKS)
        again, _ = laptop.run("submit", "small.yaml", "--no-check")  # it knows where it was
        twice, _ = laptop.run(*laptop.submission())
        done = list(jobs.follow(job))[-1]
    return Story(laptop, use, stopped, halted, log, begun, again, twice, done)


def issue(tickets: Path, count: int) -> None:
    for number in range(count):
        (tickets / str(number)).touch()


def assert_active(jobs: JobClient, job: str) -> None:
    found = jobs.find(job)
    assert found is not None
    assert found.is_active, f"{found.state}: {found.message}\n{jobs.log(job)}"


def wait_until(what: str, come: Callable[[], T], meanwhile: Callable[[], None] = lambda: None) -> T:
    """Repeats `come` until it returns something; `meanwhile` fails if that cannot happen."""
    deadline = time.monotonic() + _SECONDS
    while not (found := come()):
        meanwhile()
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.3)
    return found


def _use(ledger: Ledger) -> ResourceUse | None:
    """Resources of the sweep, once as many packs as possible are in training."""
    heartbeat = read_status(ledger.directory)
    use = None if heartbeat is None else heartbeat.use
    return use if use is not None and use.packs == use.cpus else None


def test_a_sweep_continues_after_its_submitter_was_killed(story: Story) -> None:
    assert len(story.begun) == _TICKETS
    assert (story.use.nodes, story.use.busy_nodes, story.use.cpus) == (1, 1, 1)
    assert story.use.packs == story.use.busy_cpus == 1


def test_stop_ends_a_sweep_in_order(story: Story) -> None:
    said, waited = story.stopped
    assert "packs in training are kept as checkpoints" in waited
    assert "Stopped. Continue with:\n  sweeps submit small.yaml --storage" in said
    assert story.halted is not None
    assert story.halted.state == "STOPPED"
    assert "Stopped. Continue with:\n  sweeps submit small.yaml --storage" in story.log


def test_a_stopped_sweep_continues_and_trains_nothing_twice(story: Story) -> None:
    assert f"sweep {story.laptop.sweep} submitted again" in story.resubmitted
    assert story.done.state == "SUCCEEDED", story.done.message
    written = story.laptop.written()
    assert {pack: written[pack] for pack in story.begun} == story.begun
    trained = rows(story.laptop.ledger)
    assert len(trained) == len(set(trained)) == _PACKS


def test_submitting_a_running_or_finished_sweep_changes_nothing(story: Story) -> None:
    laptop = story.laptop
    assert "is already running as job" in story.twice
    before = laptop.written()
    study = load(laptop.folder / "small.yaml")
    assert sweeps.submit(study, laptop.address) == f"sweep-{laptop.sweep}"
    assert sweeps.submit(laptop.folder / "small.yaml", laptop.address) == f"sweep-{laptop.sweep}"
    assert JobClient(laptop.address).find(f"sweep-{laptop.sweep}") == story.done
    assert laptop.written() == before


def test_status_and_logs_need_only_address_and_token(story: Story) -> None:
    told = json.loads(story.laptop.run("status", story.laptop.sweep, "--json")[0])
    assert (told["finished"], told["failed"], told["points"]) == (_POINTS, 0, _POINTS)
    assert (told["job"]["state"], told["heartbeat"]["phase"]) == ("SUCCEEDED", "ended")
    result = sweeps.open_result(story.laptop.sweep, str(story.laptop.storage))
    assert [row["point_id"] for row in told["front"]] == list(result.front()["point_id"])
    assert set(told["objectives"]) < set(told["front"][0])
    said, _ = story.laptop.run("logs", story.laptop.sweep, "-f")
    assert f"{_POINTS} of {_POINTS} points finished" in said


def test_results_are_read_from_the_cluster_without_its_storage(story: Story) -> None:
    laptop = story.laptop
    laptop.run("pareto", laptop.sweep, "--address", laptop.address, "-o", "front.csv")
    expected = sweeps.open_result(laptop.sweep, str(laptop.storage)).front()
    front = pd.read_csv(laptop.folder / "front.csv")
    assert list(front["point_id"]) == list(expected["point_id"])


def test_a_name_belongs_to_one_study(story: Story) -> None:
    laptop = story.laptop
    study, changes = laptop.folder / "small.yaml", ["replicates=3"]
    with pytest.raises(InputError, match="belongs to a sweep of another study"):
        sweeps.submit(study, laptop.address, overrides=changes, name=laptop.sweep)


def test_a_wrong_token_gives_one_message(story: Story) -> None:
    before = JobClient(story.laptop.address).list_jobs()
    said, complaint = story.laptop.run(
        *story.laptop.submission(), "--name", "mine", code=2, RAY_AUTH_TOKEN="0" * 64
    )
    assert said == ""
    assert complaint.startswith("Error: ")
    assert "rejects the token in RAY_AUTH_TOKEN" in complaint
    assert "Traceback" not in complaint
    assert JobClient(story.laptop.address).list_jobs() == before


def test_an_unknown_sweep_error_lists_the_known_ones(story: Story) -> None:
    message = f"has no job of sweep 'absent' .it has {story.laptop.sweep}"
    with pytest.raises(InputError, match=message):
        find_job(JobClient(story.laptop.address), "absent")


def test_a_failed_remote_command_gives_its_own_message(story: Story) -> None:
    storage = str(story.laptop.storage)
    with pytest.raises(JobError, match="sweep 'absent' does not exist"):
        run_remotely(story.laptop.address, ["status", "absent", "--storage", storage])


def test_other_addresses_in_the_environment_are_ignored(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:1")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:1")
    assert JobClient(head.address).find("absent") is None


def test_a_study_takes_its_own_data_and_models_to_the_cluster(story: Story) -> None:
    """The cluster sees neither the table nor the modules, which lie beside the study."""
    result = sweeps.open_result(story.laptop.sweep, str(story.laptop.storage))
    assert dict(result.counts) == {"finished": _POINTS, "failed": 0, "stopped": 0}
    depths = {point.config["model.params.depth"] for point in result.tradeoff_points}
    assert depths == {1, 2, 3}


def test_a_study_is_validated_without_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    assert validate_remote_study(load("adult-regularization"), False) == ()
    validate_remote_study(load("eco-alpha"), False)
    with pytest.raises(StudyError, match="train_size: got -1"):
        validate_remote_study(load("adult-regularization", ["fixed.train_size=-1"]), False)


def test_a_large_study_is_submitted_only_with_confirmation() -> None:
    study = set_num_points(load("toy-gaussian", ["search.algorithm=sobol"]), 10_001)
    with pytest.raises(InputError, match=r"10,001 points.* pass --yes"):
        validate_remote_study(study, False)
    validate_remote_study(study, True)


_GOOD: dict[str, Any] = {"study": {"name": "s"}, "name": "s", "storage": "/shared"}


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"storage": "results"}, "must be an absolute path, or a URI"),
        ({"storage": "s3://key:hush@bucket/sweeps", "tracking_uri": "http://m:1"}, "environment"),
        ({"storage": "s3://bucket/sweeps"}, "pass --tracking-uri"),
        ({"tracking_uri": "http://me:hush@server:5000"}, "MLFLOW_TRACKING_PASSWORD"),
        ({"tracking_uri": "postgresql://h/db?password=hush"}, "~/.mlflow/credentials"),
        ({"tracking_uri": "postgresql://u:hu sh@h/db"}, "MLFLOW_TRACKING_PASSWORD"),
        ({"tracking_uri": "http://server:5000/a b"}, "%20"),
        ({"storage": "//key:hush@bucket/sweeps"}, "environment"),
        ({"storage": "/shared\n--yes"}, "control characters"),
        ({"tracking_uri": "sqlite:///mlflow.db"}, "must mean the same on every node"),
        ({"data": "data"}, "must be an absolute path"),
        ({"name": "../up"}, "must be at most 200 letters"),
    ],
)
def test_secrets_and_places_of_one_machine_are_rejected(wrong: dict[str, Any], remedy: str) -> None:
    with pytest.raises(InputError, match=remedy) as refused:
        SweepJob(**{**_GOOD, **wrong})
    assert "hush" not in str(refused.value)


def test_status_of_a_sweep_in_a_storage(story: Story) -> None:
    sweep, storage = story.laptop.sweep, str(story.laptop.storage)
    ran = CliRunner().invoke(app, ["status", sweep, "--storage", storage])
    assert ran.exit_code == 0, ran.output
    assert f"sweep    {sweep} of study small: ended" in ran.output
    assert "points   3 of 3 finished, 0 failed, 0 pending" in ran.output
    front = sweeps.open_result(sweep, storage).front()
    assert all(point_id[:6] in ran.output for point_id in front["point_id"])


def test_the_front_survives_the_way_through_json(story: Story) -> None:
    result = sweeps.open_result(story.laptop.sweep, str(story.laptop.storage))
    status = read_overview(result.sweep, result.storage)
    assert parse_reply(SweepOverview, status.model_dump_json()) == status
    shown, own = status.front_frame(), result.front()
    for metric in result.objectives:
        assert list(shown[metric]) == list(own[metric])


def test_the_default_store_is_a_database_in_the_storage() -> None:
    name = "MLFLOW_TRACKING_URI"
    assert SweepJob(**_GOOD).default_variables()[name] == "sqlite:////shared/mlflow.db"
    assert name not in SweepJob(**_GOOD, tracking_uri="http://server:5000").default_variables()
