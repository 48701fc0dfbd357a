"""Tables written to files come back to the last bit, and never half."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from sweeps.analysis.export import check_output_path, save_frame, write_file_atomically
from sweeps.errors import InputError

READERS = {
    ".parquet": pd.read_parquet,
    ".csv": lambda path: pd.read_csv(path, parse_dates=["finished_at"]),
    ".json": lambda path: pd.DataFrame(json.loads(path.read_text())),
}


@pytest.fixture
def frame() -> pd.DataFrame:
    made = pd.DataFrame(
        {
            "point_id": ["a", 'b,"\n'],
            "finished_at": pd.to_datetime([1.7e9, 1.8e9], unit="s", utc=True),
            "config/features": [5.0, math.nan],
            "privacy/advantage": [0.1 + 0.2, 1 / 3],
            "replicates": [3, 4],
        }
    )
    return made


@pytest.mark.parametrize("suffix", READERS)
def test_every_format_keeps_floats_exact(frame, tmp_path: Path, suffix):
    path = tmp_path / f"points{suffix}"
    save_frame(frame, path)
    found = READERS[suffix](path)
    found["finished_at"] = pd.to_datetime(found["finished_at"]).astype(frame["finished_at"].dtype)
    pd.testing.assert_frame_equal(found, frame, check_exact=True, check_dtype=False)


def test_json_has_no_nan(frame, tmp_path: Path):
    frame.loc[0, "privacy/advantage"] = math.inf
    save_frame(frame, tmp_path / "p.json")
    rows = json.loads((tmp_path / "p.json").read_text(), parse_constant=pytest.fail)
    assert rows[1]["config/features"] is None
    assert rows[0]["privacy/advantage"] == "inf"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("front.xlsx", "must end in .csv or .json; got '.xlsx'"),
        ("absent/front.csv", "no directory"),
    ],
)
def test_an_unwritable_output_path_is_refused(tmp_path: Path, name, message):
    with pytest.raises(InputError, match=message):
        check_output_path(tmp_path / name, (".csv", ".json"))


def test_a_failed_write_keeps_the_old_file(tmp_path: Path):
    (tmp_path / "front.csv").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_file_atomically(tmp_path / "front.csv", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["front.csv"]
