"""Tracking stores of tests, copied from one that MLflow made: its migrations take seconds."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import tracking


def new_store(folder: Path, name: str = "mlflow.db") -> str:
    """Creates an empty SQLite store in an existing folder; returns its URI."""
    (folder / name).write_bytes(_empty_store())
    return f"sqlite:///{folder}/{name}"


@cache
def _empty_store() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        tracking.create(f"sqlite:///{folder}/mlflow.db")
        return Path(folder, "mlflow.db").read_bytes()
