"""`sweeps ui` serves the store to this machine alone, and goes as a whole."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import URLError

import psutil
import pytest
from mlflow_server import free_port

import tracking
from privnets.points import Replicate, TradeoffPoint


def test_the_store_is_served_on_loopback_until_ctrl_c(tracking_uri: str, tmp_path: Path) -> None:
    point = TradeoffPoint("p", "membership", {"n": 1}, (Replicate(0, {"m": 1.0}),))
    tracking.record([point], sweep="shown", study="a study to show", tracking_uri=tracking_uri)
    port = free_port()
    command = ["ui", "--tracking-uri", tracking_uri, "--port", str(port)]
    with (tmp_path / "said").open("wb") as said:
        served = subprocess.Popen(
            [sys.executable, "-c", "from sweeps.cli import main; main()", *command],
            cwd=tmp_path, stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
        try:
            names = ask(port)
            family = [psutil.Process(served.pid), *psutil.Process(served.pid).children(True)]
            listening = {c.laddr.ip for p in family for c in p.net_connections("tcp")}
        finally:
            os.killpg(served.pid, signal.SIGINT)
            served.wait(30)
    assert "a study to show" in names
    assert listening <= {"127.0.0.1"}
    assert psutil.wait_procs(family, timeout=10)[1] == []


@pytest.mark.parametrize("trouble", ["a busy port", "no store"])
def test_what_cannot_be_served_is_refused(trouble: str, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1] if trouble == "a busy port" else free_port()
        if trouble == "a busy port":
            tracking.create(uri)
        ended = subprocess.run(
            [sys.executable, "-c", "from sweeps.cli import main; main()", "ui",
             "--tracking-uri", uri, "--port", str(port)],
            cwd=tmp_path, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert ended.returncode == 2
    said = "--port" if trouble == "a busy port" else "there is no tracking store"
    assert said in ended.stderr
    assert "http://127.0.0.1" not in ended.stdout
    if trouble == "no store":
        assert list(tmp_path.iterdir()) == []


def ask(port: int) -> set[str]:
    """The experiments that the server knows, once it answers."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/search",
        json.dumps({"max_results": 100}).encode(),
        {"Content-Type": "application/json"},
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return {found["name"] for found in json.load(answer)["experiments"]}
        except (URLError, ConnectionError, TimeoutError):
            assert time.monotonic() < deadline, "the UI did not start"
            time.sleep(0.2)
