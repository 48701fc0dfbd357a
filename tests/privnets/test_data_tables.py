import csv
import gzip
import io
import subprocess
import sys
import tarfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import requires_data

from privnets import data
from privnets.data import adult, location30


@cache
def adult_frame() -> pd.DataFrame:
    """Adult by pandas' reader, which shares no code with ours; every cell a string."""
    folder = data.directory() / "adult"
    read = [
        pd.read_csv(
            folder / file, header=None, dtype=str, sep=", ", engine="python", comment="|",
            keep_default_na=False,
        )
        for file in ("adult.data", "adult.test")
    ]  # fmt: skip
    return pd.concat(read, ignore_index=True)


@requires_data("adult")
def test_adult_is_adult_data_followed_by_adult_test():
    loaded, frame = data.load("adult"), adult_frame()
    assert loaded.x.shape == (32_561 + 16_281, 14)
    for name in ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss"):
        column = loaded.feature_names.index(name)
        np.testing.assert_array_equal(loaded.x[:, column], frame[column].astype(float))
    np.testing.assert_array_equal(loaded.x[:, 12], frame[12].astype(float))


@requires_data("adult")
@pytest.mark.parametrize("column", [1, 3, 5, 6, 7, 8, 9, 13])
def test_an_adult_category_is_its_alphabetical_position_over_both_files(column):
    codes, cells = data.load("adult").x[:, column], adult_frame()[column]
    alphabet = sorted(cells.unique())
    assert [alphabet[int(code)] for code in codes] == cells.tolist()
    assert len(np.unique(codes)) == len(alphabet)


@requires_data("adult")
def test_a_missing_value_is_a_category_of_its_own_and_comes_first():
    loaded = data.load("adult")
    missing = {
        name: int((loaded.x[:, loaded.feature_names.index(name)] == 0).sum())
        for name in ("workclass", "occupation", "native-country")
    }
    # adult.names gives no counts; these are of the cells that read `?`.
    assert missing == {"workclass": 2_799, "occupation": 2_809, "native-country": 857}


@requires_data("adult")
def test_adult_targets_are_one_for_incomes_above_50k_dots_or_not():
    y = data.load("adult").y
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, adult_frame()[14].str.contains(">50K"))
    # adult.names: 24.08% of the training part and 23.62% of the test part.
    assert (y[:32_561].mean().round(4), y[32_561:].mean().round(4)) == (0.2408, 0.2362)


def test_adult_comments_dots_and_empty_lines_are_skipped():
    person = "39, State-gov, 7, Bachelors, 13, Single, ?, Husband, White, Male, 1, 2, 40, Cuba, "
    x, y = adult.parse(person + "<=50K\n\n", f"|1x3 Cross validator\n{person}>50K.\n\n")
    np.testing.assert_array_equal(x, [[39, 0, 7, 0, 13, 0, 0, 0, 0, 0, 1, 2, 40, 0]] * 2)
    np.testing.assert_array_equal(y, [0, 1])


@requires_data("location30")
def test_location30_equals_its_table_read_with_the_csv_module():
    archive = data.directory() / "location30" / "dataset_location.tgz"
    with tarfile.open(archive) as members:
        stream = members.extractfile("bangkok")
        assert stream is not None
        rows = list(csv.reader(io.TextIOWrapper(stream, "ascii")))
    loaded = data.load("location30")
    assert loaded.x.shape == (5_010, 446)
    assert len(loaded.feature_names) == 446
    assert loaded.y.dtype == np.int64
    assert Counter((loaded.y + 1).tolist()) == Counter(int(row[0]) for row in rows)
    assert set(loaded.y.tolist()) == set(range(30))
    np.testing.assert_array_equal(loaded.x, np.array([row[1:] for row in rows], dtype=float))
    assert loaded.x.mean() == pytest.approx(0.120, abs=5e-4)


def archive_of(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def test_location30_reads_only_its_own_member_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive = archive_of(
        **{"../climbs": b"x", "/absolute": b"x", "other": b"1,2", "bangkok": b'"3",0,1\n"30",1,1\n'}
    )
    x, y = location30.parse(archive)
    np.testing.assert_array_equal(x, [[0, 1], [1, 1]])
    np.testing.assert_array_equal(y, [2, 29])
    assert not any(tmp_path.iterdir())
    assert not (tmp_path.parent / "climbs").exists()


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (archive_of(bangkok=b"1,0")[:-12], "not a complete gzip file"),
        (b"no gzip at all", "not a complete gzip file"),
        (gzip.compress(b"no tar at all" * 100), "not a tar file"),
        (gzip.compress(bytes(17 * 2**20)), "more than 16,777,216 bytes"),
    ],
    ids=["truncated", "not-gzip", "not-tar", "bomb"],
)
def test_a_hostile_location30_archive_is_refused(archive, message):
    with pytest.raises(data.DataError, match=message):
        location30.parse(archive)


def test_digits_are_scikit_learns():
    loaded = data.load("digits")
    assert loaded.x.shape == (1_797, 64)
    assert (loaded.x.min(), loaded.x.max()) == (0, 16)
    assert np.bincount(loaded.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_diabetes_has_published_units():
    loaded = data.load("diabetes")
    assert loaded.x.shape == (442, 10)
    assert set(loaded.x[:, loaded.feature_names.index("sex")]) == {1, 2}
    assert (loaded.y.min(), loaded.y.max()) == (25, 346)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=requires_data(name)) for name in data.names("table")]
)
def test_a_data_set_is_parsed_once_and_cannot_be_changed(name):
    loaded = data.load(name)
    assert data.load(name).x is loaded.x
    for array in (loaded.x, loaded.y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_importing_and_describing_data_imports_no_slow_module():
    script = (
        "import sys, privnets.data as data\n"
        "data.fingerprint('digits'), data.info('adult'), data.directory(), data.status('adult')\n"
        "print([m for m in ('torch', 'sklearn', 'pandas', 'requests')"
        " if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("[]\n", "")


def test_the_data_directory_is_the_configured_one_or_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    assert data.directory() == tmp_path
    monkeypatch.setenv("PRIVNETS_DATA", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Path(tmp_path / "home") in data.directory().parents
    assert data.directory().name == "privnets"
