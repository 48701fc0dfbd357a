"""Tracking stores: a quick check that one can be used, and creation of SQLite stores.

Importing this module does not load MLflow.
"""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory

from filelock import FileLock

from tracking.errors import TrackingError
from tracking.uris import check_file, is_server, resolve_uri, sqlite_path

_CREATION_LOCK_SECONDS = 120


def check(uri: str | None = None) -> None:
    """Checks within seconds, without writing anything, that a store can be used.

    The schema of a SQLite file is checked when MLflow first opens it, as loading MLflow takes
    seconds.

    Raises:
        TrackingError: If the server does not respond, rejects the credentials or is not an MLflow
            server; if the database cannot be reached; if a SQLite file is damaged or cannot be
            created.
    """
    resolved = resolve_uri(uri)
    path = sqlite_path(resolved)
    if path is None:
        from tracking import client  # loads MLflow

        (client.check_server if is_server(resolved) else client.check_database)(resolved)
    elif path.exists():
        check_file(path)
    else:
        parent = next(folder for folder in path.parents if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise TrackingError(f"cannot create {path}: {parent} is not a writable directory.")


def create(uri: str | None = None) -> str:
    """Creates a SQLite store with its complete schema unless it exists; other stores stay as is.

    MLflow takes some seconds for that. It does so in a temporary file, which is then moved, so that
    no process opens a store without its complete schema.

    Returns:
        The URI, resolved by `resolve_uri`.

    Raises:
        TrackingError: If the file cannot be created.
    """
    resolved = resolve_uri(uri)
    path = sqlite_path(resolved)
    if path is None or path.exists():
        return resolved
    from tracking import client  # loads MLflow

    with client.translate_errors(resolved):
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock"), timeout=_CREATION_LOCK_SECONDS):
            if not path.exists():
                with TemporaryDirectory(dir=path.parent, prefix=".creating-") as folder:
                    client.initialise(f"sqlite:///{folder}/mlflow.db")
                    os.replace(f"{folder}/mlflow.db", path)
    return resolved
