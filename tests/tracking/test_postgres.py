"""PostgreSQL, reached directly or behind a server, holds the same points."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from made_points import made_points

from privnets.frames import points_frame
from tracking import check, compare, load_points, record


def test_postgres_holds_the_same_points(
    postgres_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MLflow puts artifacts into ./mlruns beside such a database
    postgres_uri = postgres_uri.replace("postgresql://", "postgresql+psycopg2://")
    points = made_points(20)
    check(postgres_uri)
    assert record(points, sweep="s", tracking_uri=postgres_uri) == 20
    assert record(points, sweep="s", tracking_uri=postgres_uri) == 0
    assert compare(points, "s", postgres_uri) == []
    read = load_points("s", postgres_uri)
    expected = points_frame(points, "s").dropna(axis="columns", how="all")
    pd.testing.assert_frame_equal(read, expected, check_exact=True)
