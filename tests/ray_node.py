"""A second node of a Ray cluster, on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ray_head import Head

_START_SECONDS = 300.0
_STARTED = "Ray runtime started"


@contextmanager
def ray_node(head: Head, environment: Mapping[str, str], own: Path | None = None) -> Iterator[int]:
    """Starts a node for the block; the end of the head removes its files.

    It shares the head's directory, where two agents would unpack the same packages at once. So such
    a cluster cannot run jobs with a working directory.

    Args:
        head: Head of the cluster that it joins.
        environment: Variables to add to those of this process.
        own: Directory that is empty for this node alone; None for none.

    Yields:
        Process id of the node, and id of its process group.
    """
    start = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={head.gcs}", "--block"),
        *("--node-ip-address=127.0.0.1", "--disable-usage-stats", "--num-cpus=1", "--num-gpus=1"),
        *("--object-store-memory=100000000", "--dashboard-agent-listen-port=0"),
        *("--min-worker-port=0", "--max-worker-port=0"),
    ]
    if own is not None:
        mount = f'mount -t tmpfs none {own} && exec "$@"'
        start = ["unshare", "--mount", "sh", "-c", mount, "sh", *start]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": head.token}
    log_path = head.folder.with_suffix(".node")
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            start, env={**os.environ, **token, **environment}, cwd="/",
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        _await(process, log_path)
        yield process.pid
    finally:
        process.terminate()
        process.wait()
        log_path.unlink()


def _await(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if _STARTED in log.read_text(errors="replace"):
            return
        time.sleep(0.2)
    raise TimeoutError(f"no node joined: {log.read_text(errors='replace')[-2000:]}")
