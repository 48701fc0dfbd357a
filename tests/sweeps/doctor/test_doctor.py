"""The doctor finds what is wrong with this machine, and starts nothing."""

from __future__ import annotations

import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from doctor_report import doctor
from mlflow_server import free_port

from cluster import Machine
from sweeps.remote.doctor import Check, check_versions, merge_nodes
from sweeps.remote.examination import check_capacity
from sweeps.study.loader import load
from tracking.server import team_server


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


def test_a_sound_machine_fails_nothing_and_a_readable_token_is_a_warning(tmp_path: Path) -> None:
    token = Path.home() / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("x")
    token.chmod(0o644)  # as `ray get-auth-token --generate` makes it
    run = doctor("--storage", str(tmp_path / "s"), "--tracking-uri", f"sqlite:///{tmp_path}/m.db")
    assert (run.code, run.failures()) == (0, {}), run.err
    assert {c["subject"] for c in run.checks} >= {"versions", "storage", "tracking"}
    (check,) = run.of("secret files")
    assert (check["state"], f"chmod 600 {token}" in check["remedy"]) == ("warning", True)
    assert list(tmp_path.iterdir()) == []
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


def test_an_invalid_study_is_bad_input(study: str) -> None:
    path = Path(study)
    path.write_text(path.read_text().replace("features: 5", "features: -5"))
    run = doctor("--study", study)
    assert (run.code, run.out) == (2, "")
    assert "fixed.features: got -5" in run.err


def test_versions_that_differ_in_their_build_alone_are_a_warning() -> None:
    driver = {"torch": "2.6.0+cu126"}
    assert check_versions(driver, {"torch": "2.6.0+cpu"}, "node").state == "warning"
    check = check_versions(driver, {"torch": "2.7.0+cpu"}, "node")
    assert (check.state, check.found) == ("failed", "torch 2.7.0+cpu, not 2.6.0+cu126")


@pytest.mark.parametrize(
    ("study", "found"),
    [
        ("quickstart", "room for 4 packs in parallel, each with 4 CPUs and 0.5 GPUs"),
        ("mnist-dp-sgd", "room for 2 packs in parallel, each with 8 CPUs and 1 GPU"),
    ],
)
def test_packs_that_need_a_whole_gpu_are_counted_as_such(study: str, found: str) -> None:
    assert check_capacity([Machine(cpus=16, gpus=2)], load(study)).found == found


def test_equal_checks_of_several_nodes_become_one() -> None:
    same = [Check("memory", "ok", "enough", node=node) for node in ("a", "b")]
    other = Check("memory", "warning", "little", "more", "c")
    assert merge_nodes([*same, other], ["a", "b", "c"]) == (replace(same[0], node="a, b"), other)
    assert merge_nodes(same, ["a", "b"]) == (replace(same[0], node="all 2 nodes"),)
