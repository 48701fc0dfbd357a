"""`sweeps ui` serves the store to this machine alone, and goes as a whole."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from mlflow_server import free_port
from support import run_command

import tracking
from privnets.points import Replicate, TradeoffPoint
from tracking.sweep_run import study_pages

STUDY = "a study to show"


@dataclass(frozen=True)
class Served:
    """A running `sweeps ui`, its output once it answered, and all of its processes."""

    process: subprocess.Popen[str]
    port: int
    said: str
    family: list[psutil.Process]


@pytest.fixture
def ui_server(tracking_uri: str, tmp_path: Path) -> Iterator[Served]:
    point = TradeoffPoint("p", "membership", {"n": 1}, (Replicate(0, {"m": 1.0}),))
    tracking.record([point], sweep="shown", study=STUDY, tracking_uri=tracking_uri)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", "from sweeps.cli.main import main; main()", "ui",
         "--tracking-uri", tracking_uri, "--port", str(port)],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    family: list[psutil.Process] = []
    try:
        assert process.stdout is not None
        said = "".join(itertools.islice(process.stdout, 2))
        family = psutil.Process(process.pid).children(recursive=True)
        yield Served(process, port, said, family)
    finally:
        for one in (process, *family):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.communicate()


def assert_gone(ui_server: Served) -> None:
    """No process is left, and another server may have the port."""
    assert psutil.wait_procs(ui_server.family, timeout=120)[1] == []
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", ui_server.port))


def test_the_store_is_served_on_loopback_until_ctrl_c(ui_server: Served) -> None:
    """The address that it prints leads to the study's runs, as that for a running server does."""
    number = ask(ui_server.port)[STUDY]
    page = f"http://127.0.0.1:{ui_server.port}/#/experiments/{number}/runs"
    assert f"  {STUDY}: {page}?workflowType=machine_learning\n" in ui_server.said
    listening = {c.laddr.ip for p in ui_server.family for c in p.net_connections("tcp")}
    assert listening == {"127.0.0.1"}
    assert_links_lead_to_pages(f"http://127.0.0.1:{ui_server.port}")
    ui_server.process.send_signal(signal.SIGINT)
    assert ui_server.process.wait(120) == 130
    assert_gone(ui_server)


def assert_links_lead_to_pages(uri: str) -> None:
    ran = run_command("ui", "--tracking-uri", uri)
    assert ran.exit_code == 0
    page = study_pages(uri, 10)[STUDY]
    assert page.endswith("/runs?workflowType=machine_learning")
    assert ran.stdout.startswith(f"A server is already running; open {uri}\n  ")
    assert f"\n  {STUDY}: {uri}/{page}\n" in ran.stdout


@pytest.mark.slow
def test_a_killed_command_leaves_no_server_behind(ui_server: Served) -> None:
    ui_server.process.kill()
    ui_server.process.wait(120)
    assert_gone(ui_server)


@pytest.mark.slow
def test_a_server_that_dies_gives_exit_code_1(ui_server: Served) -> None:
    for process in ui_server.family:
        if "mlflow" in process.cmdline():
            process.kill()
    assert ui_server.process.wait(120) == 1
    assert_gone(ui_server)


@pytest.mark.parametrize("trouble", ["a busy port", "no store"])
def test_bad_input_is_rejected(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1] if trouble == "a busy port" else free_port()
        if trouble == "a busy port":
            tracking.create(uri)
        ended = run_command("ui", "--tracking-uri", uri, "--port", str(port))
    assert ended.exit_code == 2
    said = "--port" if trouble == "a busy port" else "no tracking store exists"
    assert said in ended.stderr
    assert "--host" not in ended.stderr  # `ui` has no such option.
    assert "http://127.0.0.1" not in ended.stdout
    if trouble == "no store":
        assert list(tmp_path.iterdir()) == []


def ask(port: int) -> dict[str, str]:
    """The experiments that the server knows, name to number."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/search",
        json.dumps({"max_results": 100}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return {e["name"]: e["experiment_id"] for e in json.load(answer)["experiments"]}
