"""A sweep with a cluster's token and a tracking server's password reveals neither.

The test searches the command lines of all processes while the sweep runs; afterwards the storage,
the tracking store with its artifacts, the output of the command, and Ray's session directory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from mlflow_server import mlflow_server
from ray_head import Head, ray_head

pytestmark = pytest.mark.ray

PASSWORD = "marked-password-5c1d9e"
STUDY = """
name: small
experiment: membership
fixed: {dataset: digits, model: logistic, features: 6, draws: 32, records: 30, train_size: 40}
space: {weight_decay: {grid: [0.01, 1.0]}}
replicates: 2
resources: {pack: 1}
"""


class CommandLineWatch:
    """Searches all command lines repeatedly.

    Attributes:
        seen: Command lines with a secret.
        looks: Number of searches.
    """

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self.seen: set[str] = set()
        self.looks = 0
        self._secrets = [secret.encode() for secret in secrets]
        self._done = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._look)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.2):
            self.looks += 1
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    command = path.read_bytes()
                    if any(secret in command for secret in self._secrets):
                        self.seen.add(repr(command[:200]))


def holding(folder: Path, secrets: tuple[str, ...]) -> list[Path]:
    """Files below a directory that contain a secret."""
    paths = []
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file() and not path.is_symlink():
                content = path.read_bytes()
                if any(secret.encode() in content for secret in secrets):
                    paths.append(path)
    return paths


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with ray_head() as started:
        yield started


@pytest.mark.slow
def test_neither_token_nor_password_is_left_in_any_file(head: Head, tmp_path: Path) -> None:
    tracked, storage, work = (tmp_path / name for name in ("tracked", "storage", "work"))
    for folder in (tracked, storage, work):
        folder.mkdir()
    (work / "study.yaml").write_text(STUDY)
    secrets = (head.token, PASSWORD)
    watch = CommandLineWatch(secrets)
    with mlflow_server(tracked) as server, watch.watching():
        environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": head.token,
            "MLFLOW_TRACKING_USERNAME": "ann",
            "MLFLOW_TRACKING_PASSWORD": PASSWORD,
        }
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "sweeps",
                "run",
                "study.yaml",
                "--name",
                "marked",
                "--storage",
                str(storage),
                "--tracking-uri",
                server.uri,
                "--address",
                head.gcs,
            ],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert run.returncode == 0, run.stderr[-3000:]
    assert len(list((storage / "marked" / "ledger").iterdir())) == 4
    assert watch.looks > 3
    assert watch.seen == set()
    output = run.stdout + run.stderr
    assert not any(secret in output for secret in secrets)
    for place in (storage, tracked, work, head.folder):
        assert any(path.is_file() for path in place.rglob("*"))
        assert holding(place, secrets) == []
