"""What others reach of this machine: ports of real processes, and directories by their modes."""

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


@pytest.mark.parametrize(
    ("address", "is_open"), [("0.0.0.0", True), ("::", True), ("127.0.0.2", False), ("::1", False)]
)
def test_ports_beyond_loopback_are_found_with_their_server(address: str, is_open: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _LISTEN, address, "mlflow"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        port = int(process.stdout.readline())
        assert (port in open_ports().get("MLflow", [])) == is_open
        process.kill()


def test_a_directory_is_open_if_others_can_enter_it_and_all_above() -> None:
    with TemporaryDirectory(dir="/tmp") as outer:  # pytest's own directories are not open
        inner = Path(outer, "inner")
        inner.mkdir(mode=0o777)
        assert not is_open_to_others(inner)
        Path(outer).chmod(0o711)
        assert is_open_to_others(inner)
        inner.chmod(0o700)
        assert not is_open_to_others(inner)
