"""One Ray for all tests that train, and one uninterrupted sweep to compare with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from small_sweeps import small_plan
from stores import new_store

if TYPE_CHECKING:
    from cluster import Connection
    from sweeps.engine.executor import RunOutcome


_TURNSTILE = Path(__file__).parent / "turnstile"


@pytest.fixture(scope="session")
def turnstile_tickets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of tickets for workers of `local_ray` that train the experiment `turnstile`."""
    return tmp_path_factory.mktemp("tickets")


@pytest.fixture(scope="session")
def local_ray(turnstile_tickets: Path) -> Iterator[Connection]:
    import cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(_TURNSTILE), os.environ["PYTHONPATH"]]))
        patch.setenv("PRIVNETS_TURNSTILE", str(turnstile_tickets))
        connection = cluster.connect(cpus=2)
    with connection:
        yield connection


@pytest.fixture(scope="session")
def tracking_uri(tmp_path_factory: pytest.TempPathFactory) -> str:

    return new_store(tmp_path_factory.mktemp("tracking"))


@pytest.fixture(scope="session")
def uninterrupted(
    local_ray: Connection,
    tracking_uri: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> RunOutcome:
    """The small sweep, run without any trouble; tests must leave it as it is.

    Each pack starts a worker, which loads torch: one is enough here.
    """
    from sweeps.engine.executor import execute

    folder: Path = tmp_path_factory.mktemp("uninterrupted")
    plan = small_plan(folder, "resources.pack=8")
    return execute(plan, sweep="reference", storage=str(folder), tracking_uri=tracking_uri)
