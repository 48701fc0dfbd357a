"""Logs of sweeps, in a storage or of a cluster's job, as they grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from cluster.errors import JobError, UnreachableError
from cluster.jobs import JobClient
from sweeps.errors import InputError
from sweeps.remote.submission import find_job
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest
from sweeps.store.status import read_status

_POLL_SECONDS: Final = 2.0
_POLL_PAUSE: Final = 20.0  # The whole log is sent each time: wait 20 times as long as that takes.
_RECONNECT_SECONDS: Final = 600.0


def stored_log(ledger: Ledger, *, follow: bool) -> Iterator[str]:
    """Yields the log in a sweep's directory; to follow, also what its driver adds until it ends.

    Raises:
        InputError: If there is no such sweep, or it has no log.
    """
    read_manifest(ledger)  # raises an error if there is no such sweep
    path = ledger.log_path
    if path is None or not path.exists():
        raise InputError(
            f"the sweep {ledger.sweep!r} has no log in {ledger.directory.path}: only runs that "
            "write to a local directory have one; for a submitted sweep give --address"
        )
    with path.open(encoding="utf-8", errors="replace") as file:
        while True:
            status = read_status(ledger.directory)  # before the log, whose end it announces
            yield file.read()
            if not follow or status is None or status.is_final or status.is_abandoned:
                return
            time.sleep(_POLL_SECONDS)


def job_log(
    client: JobClient, sweep: str, notify: Callable[[str], None], *, follow: bool
) -> Iterator[str]:
    """Yields the log of a sweep's job; to follow, also what the job adds until it ends.

    A head that was replaced does not know the job until the sweep is submitted again.

    Args:
        client: Client of the job server.
        sweep: Name of the sweep.
        notify: Told when the connection is lost, and when it is restored.
        follow: Whether to wait for more; a lost connection is then restored for ten minutes.

    Raises:
        InputError: If the cluster has no job of the sweep.
        ClusterError: If it does not answer.
    """
    if not follow:
        yield client.log(find_job(client, sweep).job_id)
        return
    known, lost_at = 0, None
    while True:
        began = time.monotonic()
        try:
            job = find_job(client, sweep)
            text = client.log(job.job_id)
        except (UnreachableError, JobError, InputError) as error:
            if lost_at is None:
                notify(f"Connection lost, trying again: {error}")
            lost_at = lost_at or began
            if began - lost_at > _RECONNECT_SECONDS:
                raise
            time.sleep(_POLL_SECONDS)
            continue
        if lost_at is not None:
            notify("Connected again.")
        lost_at, known = None, known if len(text) >= known else 0
        yield text[known:]
        known = len(text)
        if not job.is_active:
            return
        time.sleep(max(_POLL_SECONDS, _POLL_PAUSE * (time.monotonic() - began)))
