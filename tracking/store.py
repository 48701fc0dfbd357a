"""Tracking stores: a quick check that one can be used, and creation of SQLite stores.

Importing this module does not load MLflow.
"""

from __future__ import annotations

import os
from pathlib import Path

from tracking.database import schema
from tracking.errors import TrackingError
from tracking.uris import artifact_root, is_server, resolve_uri, sqlite_path


def check(uri: str | None = None) -> None:
    """Checks within seconds, without writing anything, that a store can be used.

    Raises:
        TrackingError: If the server does not respond, rejects the credentials or is not an MLflow
            server; if the database cannot be reached; if a SQLite file is damaged or cannot be
            created.
    """
    resolved = resolve_uri(uri)
    path = sqlite_path(resolved)
    if path is not None and not path.exists():
        _check_creatable(path)
        return
    if path is not None:
        revision = schema.read_file_revision(path)
        # Loading MLflow takes seconds; it has accepted this revision before.
        if revision is not None and revision == schema.expected_revision():
            return
    from tracking import client  # loads MLflow

    if is_server(resolved):
        client.check_server(resolved)
        return
    client.connect(resolved)
    if path is not None and revision is not None:
        schema.remember_revision(revision)


def create(uri: str | None = None) -> str:
    """Creates a SQLite store with its complete schema unless it exists; other stores stay as is.

    Returns:
        The URI, resolved by `resolve_uri`.

    Raises:
        TrackingError: If the file cannot be created.
    """
    resolved = resolve_uri(uri)
    path = sqlite_path(resolved)
    if path is None or path.exists():
        return resolved
    from tracking.database import sqlite  # loads MLflow

    sqlite.create_store(path, resolved, artifact_root(resolved))
    return resolved


def _check_creatable(path: Path) -> None:
    parent = next(folder for folder in path.parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise TrackingError(f"cannot create {path}: {parent} is not a writable directory.")
