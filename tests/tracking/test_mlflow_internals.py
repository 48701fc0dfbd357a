"""MLflow's private interfaces have the form that `tracking.mlflow_internals` relies on."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest
from mlflow.utils import request_utils

from tracking import mlflow_internals


def test_the_pinned_minor_version_is_installed() -> None:
    """After an upgrade check every use in `mlflow_internals`, then change the version here."""
    assert mlflow.__version__.startswith("3.17.")


def test_sessions_take_their_adapter_from_the_patched_name() -> None:
    with mlflow_internals.bounded_responses():
        session = request_utils._get_request_session(0, 0, 0, (), False, False)
        assert isinstance(session.get_adapter("http://host"), mlflow_internals._BoundedAdapter)


def test_the_adapter_is_restored_after_the_last_concurrent_block() -> None:
    original = request_utils.TCPKeepAliveHTTPAdapter
    with mlflow_internals.bounded_responses():
        with pytest.raises(KeyError), mlflow_internals.bounded_responses():
            raise KeyError
        assert request_utils.TCPKeepAliveHTTPAdapter is not original
    assert request_utils.TCPKeepAliveHTTPAdapter is original
    session = request_utils._get_request_session(0, 0, 0, (), False, False)
    assert not isinstance(session.get_adapter("http://host"), mlflow_internals._BoundedAdapter)


def test_a_database_gets_the_complete_schema(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    mlflow_internals.open_database(f"sqlite:///{path}", str(tmp_path))
    assert path.stat().st_size > 0
