"""Exposure of this machine to others: ports of real processes and modes of directories."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cluster.exposure import is_open_to_others, open_ports

_LISTEN = """
import socket, sys
server = socket.create_server((sys.argv[1], 0), family=socket.AF_INET6 if ":" in sys.argv[1] else 2)
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def find_server(address: str, *words: str, program: str = sys.executable) -> str | None:
    """Name under which the port of a process is found that has these words in its command line."""
    with subprocess.Popen(
        [program, "-c", _LISTEN, address, *words],
        executable=sys.executable, env={"PYTHONHOME": sys.base_prefix},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        port = int(process.stdout.readline())
        names = [name for name, ports in open_ports().items() if port in ports]
        process.kill()
    return names[0] if names else None


@pytest.mark.parametrize(
    ("address", "is_open"), [("0.0.0.0", True), ("::", True), ("127.0.0.2", False), ("::1", False)]
)
def test_ports_beyond_loopback_are_found_with_their_server(address: str, is_open: bool) -> None:
    found = find_server(address, "-m", "mlflow", "server")
    assert found == ("MLflow" if is_open else None)


@pytest.mark.parametrize(
    ("name", "program", "words"),
    [
        ("MLflow", "/opt/mlflow/bin/mlflow", ["server"]),
        ("MLflow", sys.executable, ["-m", "uvicorn", "mlflow.server.fastapi_app:app"]),
        ("MLflow", sys.executable, ["-m", "gunicorn", "-w", "4", "mlflow.server:app"]),
        ("Ray's client server", sys.executable, ["-m", "ray.util.client.server", "--port=10001"]),
        ("Ray's dashboard agent", "ray::DashboardAgent", []),
        (None, sys.executable, ["doctor", "--tracking-uri", "http://mlflow:5000"]),
        (None, sys.executable, ["run", "--tracking-uri", "https://host/mlflow", "--name", "x"]),
        (None, sys.executable, ["jobs.py", "mlflow"]),
    ],
)
def test_a_server_is_told_by_its_command_line(
    name: str | None, program: str, words: list[str]
) -> None:
    assert find_server("0.0.0.0", *words, program=program) == name


def test_a_directory_is_open_if_others_can_enter_it_and_all_above() -> None:
    with TemporaryDirectory() as outer:  # pytest's own directories are not open
        inner = Path(outer, "inner")
        inner.mkdir(mode=0o777)
        assert not is_open_to_others(inner)
        Path(outer).chmod(0o711)
        assert is_open_to_others(inner)
        inner.chmod(0o700)
        assert not is_open_to_others(inner)
