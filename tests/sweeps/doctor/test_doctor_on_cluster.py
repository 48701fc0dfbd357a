"""The doctor finds the fault on the node that has it, and starts nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from doctor_report import doctor
from ray_head import Head
from ray_pair import Pair
from support import requires_data

from privnets import data

# Before any test names another data directory.
SOURCE = data.directory() / "location30"

pytestmark = pytest.mark.ray


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


@requires_data("location30")
def test_the_job_server_gives_the_same_report(
    head: Head, head_folder: Path, pair_folder: Path, study: str
) -> None:
    run = doctor(
        "--address", head.address, "--study", study, "--storage", str(pair_folder / "shared"),
        RAY_AUTH_TOKEN=head.token,
    )  # fmt: skip
    failed = run.failures()
    assert (run.code, set(failed)) == (1, {"data"}), run.err
    assert str(head_folder / "data") in failed["data"]["found"]
    assert [c["state"] for c in run.of("versions")] == ["ok", "ok"]
    assert list((pair_folder / "shared").iterdir()) == []


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
    with present(*pair.data):
        run = doctor(
            "--address", pair.head.gcs, "--storage", str(shared), "--study", study,
            "--tracking-uri", f"sqlite:///{pair.folder}/mlflow.db",
            PRIVNETS_DATA=str(pair.data[0]), **pair.token,
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
        with present(pair.data[0]):
            run = doctor(
                "--address", pair.head.gcs, "--study", study,
                "--storage", str(pair.folder / "split"),
                PRIVNETS_DATA=str(pair.data[0]), **pair.token,
            )  # fmt: skip
    finally:
        shutil.rmtree(fake)
        shutil.rmtree(secret.parent)
    failed = run.failures()
    assert (run.code, set(failed)) == (1, {"data", "versions", "storage", "secret files"}), run.err
    assert "numpy 0.0.1, not" in failed["versions"]["found"]
    assert "location30" in failed["data"]["found"]
    assert str(pair.data[1]) in failed["data"]["found"]
    assert "sweeps data fetch" in failed["data"]["remedy"]
    assert "another directory than the driver's" in failed["storage"]["found"]
    assert str(secret) in failed["secret files"]["found"]
    assert failed["data"]["node"] == failed["versions"]["node"] == failed["secret files"]["node"]
    assert list((pair.folder / "split").iterdir()) == []
