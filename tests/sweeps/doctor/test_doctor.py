"""The doctor finds the fault on the node that has it, and starts nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from mlflow_server import free_port
from ray_head import Head, ray_head
from ray_node import ray_node
from support import requires_data

from privnets import data
from sweeps.doctor import Check, check_clock, check_versions, merge_nodes
from tracking.server import team_server

# Before any test names another data directory.
pytestmark = pytest.mark.ray

SOURCE = data.directory() / "location30"
STUDY = """
name: places
experiment: membership
fixed: {dataset: location30, model: logistic, train_size: 60, features: 5}
space: {weight_decay: {grid: [0.1, 1.0]}}
replicates: 2
"""


@dataclass
class Run:
    """A finished command."""

    code: int
    out: str
    err: str
    checks: list[dict[str, str]] = field(default_factory=list)

    def of(self, subject: str) -> list[dict[str, str]]:
        return [check for check in self.checks if check["subject"] == subject]

    def failures(self) -> dict[str, dict[str, str]]:
        return {c["subject"]: c for c in self.checks if c["state"] == "failed"}


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without token or credentials; the environment has none either."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


def doctor(*arguments: str, **environment: str) -> Run:
    words = [sys.executable, "-m", "sweeps", "doctor", *arguments]
    asked = subprocess.run(
        [*words, "--json"],
        env={**os.environ, **environment},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    run = Run(asked.returncode, asked.stdout, asked.stderr)
    if asked.returncode in (0, 1) and asked.stdout:
        run.checks = json.loads(asked.stdout)["checks"]
    return run


@dataclass(frozen=True)
class Pair:
    """A head and a node, which differ as tests need it.

    Attributes:
        head: The head.
        folder: Holds `shared`; `split`, which is another on the node; `head-data` and `node-data`,
            their data directories; `extra`, which the node's Python looks into first.
    """

    head: Head
    folder: Path

    @property
    def token(self) -> dict[str, str]:
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.head.token}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pair")
    for name in ("shared", "split", "head-data", "node-data", "extra", "home", "head-home"):
        (made / name).mkdir()
    return made


@pytest.fixture(scope="module")
def head(folder: Path) -> Iterator[Head]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVNETS_DATA", str(folder / "head-data"))
        patch.setenv("HOME", str(folder / "head-home"))
        with ray_head() as started:
            yield started


@pytest.fixture(scope="module")
def pair(head: Head, folder: Path) -> Iterator[Pair]:
    own = {
        "PRIVNETS_DATA": str(folder / "node-data"),
        "PYTHONPATH": f"{folder / 'extra'}:{Path(__file__).parents[3]}",
        "HOME": str(folder / "home"),
    }
    with ray_node(head, own, folder / "split"):
        yield Pair(head, folder)


@contextmanager
def present(*roots: Path) -> Iterator[None]:
    """The data set location30 in some data directories."""
    for root in roots:
        shutil.copytree(SOURCE, root / "location30")
    try:
        yield
    finally:
        for root in roots:
            shutil.rmtree(root / "location30")


@pytest.fixture
def study(tmp_path: Path) -> str:
    path = tmp_path / "places.yaml"
    path.write_text(STUDY)
    return str(path)


def test_a_sound_machine_fails_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    storage, store = tmp_path / "sweeps", tmp_path / "mlflow.db"
    run = doctor("--storage", str(storage), "--tracking-uri", f"sqlite:///{store}")
    assert (run.code, run.failures()) == (0, {}), run.err
    assert {c["subject"] for c in run.checks} >= {"versions", "storage", "tracking", "memory"}
    assert list(tmp_path.iterdir()) == []


@requires_data("location30")
def test_the_job_server_gives_the_same_report(head: Head, folder: Path, study: str) -> None:
    run = doctor(
        "--address", head.address, "--study", study, "--storage", str(folder / "shared"),
        RAY_AUTH_TOKEN=head.token,
    )  # fmt: skip
    failed = run.failures()
    assert (run.code, set(failed)) == (1, {"data"}), run.err
    assert str(folder / "head-data") in failed["data"]["found"]
    assert [c["state"] for c in run.of("versions")] == ["ok", "ok"]
    assert list((folder / "shared").iterdir()) == []


@pytest.mark.parametrize("over", [pytest.param("http", marks=pytest.mark.slow), "ray"])
def test_a_wrong_token_is_one_message(head: Head, over: str) -> None:
    address = head.address if over == "http" else head.gcs
    run = doctor("--address", address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("Error: ")
    assert run.err.count("\n") == 1
    assert "token" in run.err


@requires_data("location30")
def test_a_sound_cluster_fails_nothing_and_keeps_nothing(pair: Pair, study: str) -> None:
    shared = pair.folder / "shared"
    with present(pair.folder / "head-data", pair.folder / "node-data"):
        run = doctor(
            "--address", pair.head.gcs, "--storage", str(shared), "--study", study,
            "--tracking-uri", f"sqlite:///{pair.folder}/mlflow.db",
            PRIVNETS_DATA=str(pair.folder / "head-data"), **pair.token,
        )  # fmt: skip
    assert (run.code, run.failures()) == (0, {}), run.err
    (nodes,) = run.of("nodes")
    assert nodes["found"].startswith("2 alive")
    (authentication,) = run.of("authentication")
    assert authentication["state"] == "ok"
    stored = {check["node"]: check["found"] for check in run.of("storage")}
    assert stored.keys() == {"driver", "all 2 nodes"}
    assert all("written and read" in found for found in stored.values())
    assert list(shared.iterdir()) == []


@requires_data("location30")
def test_a_fault_of_one_node_names_that_node(pair: Pair, study: str) -> None:
    fake = pair.folder / "extra" / "numpy-0.0.1.dist-info"
    fake.mkdir()
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.0.1\n")
    secret = pair.folder / "home" / ".mlflow" / "credentials"
    secret.parent.mkdir()
    secret.write_text("[mlflow]\n")
    secret.chmod(0o644)
    try:
        with present(pair.folder / "head-data"):
            run = doctor(
                "--address", pair.head.gcs, "--study", study,
                "--storage", str(pair.folder / "split"),
                PRIVNETS_DATA=str(pair.folder / "head-data"), **pair.token,
            )  # fmt: skip
    finally:
        shutil.rmtree(fake)
        shutil.rmtree(secret.parent)
    failed = run.failures()
    assert (run.code, set(failed)) == (1, {"data", "versions", "storage", "secret files"}), run.err
    assert "numpy 0.0.1, not" in failed["versions"]["found"]
    assert "location30" in failed["data"]["found"]
    assert str(pair.folder / "node-data") in failed["data"]["found"]
    assert "sweeps data fetch" in failed["data"]["remedy"]
    assert "another directory than the driver's" in failed["storage"]["found"]
    assert str(secret) in failed["secret files"]["found"]
    assert failed["data"]["node"] == failed["versions"]["node"] == failed["secret files"]["node"]
    assert list((pair.folder / "split").iterdir()) == []


@pytest.mark.parametrize("scheme", [pytest.param("http://", marks=pytest.mark.slow), ""])
def test_an_unreachable_head_is_one_message_within_seconds(scheme: str) -> None:
    address = f"{scheme}127.0.0.1:{free_port()}"
    began = time.monotonic()
    run = doctor("--address", address, RAY_AUTH_TOKEN="0" * 64)
    assert (run.code, run.out, run.err.count("\n")) == (2, "", 1)
    assert address in run.err
    assert time.monotonic() - began < 120


@pytest.mark.slow
def test_a_wrong_tracking_password_is_found_and_the_right_one_lets_in() -> None:
    with tempfile.TemporaryDirectory(prefix="dr-", dir="/tmp") as folder:
        team = Path(folder, "team")
        with team_server(team, port=free_port()) as server:
            right = (team / "admin-password").read_text().strip()
            for password, code in (("wrong", 1), (right, 0)):
                run = doctor(
                    "--storage", folder, "--tracking-uri", server.uri,
                    MLFLOW_TRACKING_USERNAME="admin", MLFLOW_TRACKING_PASSWORD=password,
                )  # fmt: skip
                (check,) = run.of("tracking")
                assert (run.code, check["state"]) == (code, "failed" if code else "ok")
                assert ("rejects the credentials" in check["found"]) == bool(code)


def test_a_readable_token_is_a_warning_without_a_cluster(tmp_path: Path) -> None:
    token = Path.home() / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("x")
    token.chmod(0o644)  # as `ray get-auth-token --generate` makes it
    run = doctor("--storage", str(tmp_path / "s"), "--tracking-uri", f"sqlite:///{tmp_path}/m.db")
    assert (run.code, run.failures()) == (0, {}), run.err
    (check,) = run.of("secret files")
    assert (check["state"], f"chmod 600 {token}" in check["remedy"]) == ("warning", True)
    needed = doctor("--address", "http://127.0.0.1:1")
    assert (needed.code, f"chmod 600 {token}" in needed.err) == (2, True)


def test_storage_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run = doctor("--storage", str(tmp_path / "file" / "sweeps"))
    assert (run.code, set(run.failures())) == (1, {"storage"}), run.err
    assert "cannot be written" in run.failures()["storage"]["found"]


@pytest.mark.slow  # as long as storage is waited for
def test_storage_that_hangs_fails_in_time() -> None:
    """A server that accepts connections and never answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        uri = f"s3://bucket/sweeps?scheme=http&endpoint_override=127.0.0.1:{port}&region=x"
        began = time.monotonic()
        run = doctor("--storage", uri, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    assert (run.code, set(run.failures())) == (1, {"storage"}), run.err
    assert "no answer within" in run.failures()["storage"]["found"]
    assert time.monotonic() - began < 150


def test_an_invalid_study_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(STUDY.replace("features: 5", "features: -5"))
    run = doctor("--study", str(path))
    assert (run.code, run.out) == (2, "")
    assert "fixed.features: got -5" in run.err


def test_versions_that_differ_in_their_build_alone_are_a_warning() -> None:
    driver = {"torch": "2.6.0+cu126"}
    assert check_versions(driver, {"torch": "2.6.0+cpu"}, "node").state == "warning"
    check = check_versions(driver, {"torch": "2.7.0+cpu"}, "node")
    assert (check.state, check.found) == ("failed", "torch 2.7.0+cpu, not 2.6.0+cu126")


@pytest.mark.parametrize(
    ("time", "state", "found"),
    [
        (90.0, "warning", "off by 10 s or more"),
        (103.0, "ok", "within 3 s of the driver's"),
        (120.0, "warning", "off by 15 s or more"),
    ],
)
def test_a_clock_offset_leaves_out_the_time_of_the_request(
    time: float, state: str, found: str
) -> None:
    check = check_clock("node", time, before=100.0, after=105.0)
    assert (check.state, check.found) == (state, found)


def test_equal_checks_of_several_nodes_become_one() -> None:
    same = [Check("memory", "ok", "enough", node=node) for node in ("a", "b")]
    other = Check("memory", "warning", "little", "more", "c")
    assert merge_nodes([*same, other], ["a", "b", "c"]) == (replace(same[0], node="a, b"), other)
    assert merge_nodes(same, ["a", "b"]) == (replace(same[0], node="all 2 nodes"),)
