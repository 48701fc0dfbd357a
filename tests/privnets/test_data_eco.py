"""ECO from both of its sources.

The published files are not at hand: tests make small sets of files in their format, with days of
full length.
"""

import gzip
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import requires_data

from privnets import cache, data
from privnets.data import eco, eco_files
from privnets.data.eco import resample
from privnets.data.eco_files import QuarterHours, majority

SECONDS = 86_400


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty data directory, nothing cached."""
    forget()
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def forget() -> None:
    """Clears the caches, as in a new process."""
    for cached in (eco._read, eco._quarters, eco._cached_digest):
        cached.cache_clear()


def write_day(path: Path, power: np.ndarray) -> None:
    """One smart-meter file: 16 columns, no header, a row per second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rest = ",1,2,3,0.4,0.5,0.6,0.7,230,231,232,120,240,10,20,30\n"
    path.write_text("".join(f"{value:g}{rest}" for value in power))


def write_occupancy(path: Path, days: dict[str, np.ndarray]) -> None:
    """One occupancy file: a header of times, then a date and 86,400 values a row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    times = ",".join(f"'{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}'" for s in range(SECONDS))
    rows = [f"{day},{','.join(map(str, values))}\n" for day, values in days.items()]
    path.write_text(f",{times}\n" + "".join(rows))


def write_published(root: Path, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two days of household 2 and one of household 4, whose folders are nested; household 2's."""
    random = np.random.default_rng(seed)
    power = random.uniform(50, 3000, (2, SECONDS)).round(2)
    power[0, 1_000:1_440] = -1  # 340 + 100 seconds: within two quarters
    power[1, 7_200:9_100] = -1  # all of two quarters, more than half of an hour
    home = np.repeat(random.integers(0, 2, (2, 288)), 300, axis=1)
    folder = root / "eco" / "published"
    for day, values in zip(("2012-06-30", "2012-07-01"), power, strict=True):
        write_day(folder / "02_sm_csv" / "02" / f"{day}.csv", values)
    write_day(folder / "02_sm_csv" / "02" / "2012-07-02.csv", power[0])
    write_occupancy(
        folder / "02_occupancy_csv" / "02_summer.csv",
        # A day without power, as household 2 has two in May.
        {"31-May-2012": home[0], "30-Jun-2012": home[0], "01-Jul-2012": home[1]},
    )
    write_day(folder / "04_sm_csv" / "04_sm_csv" / "04" / "2012-12-01.csv", power[1])
    write_occupancy(folder / "04_occupancy_csv" / "04_winter.csv", {"01-Dec-2012": home[1]})
    write_day(folder / "06_sm_csv" / "06" / "2012-12-01.csv", power[1])
    return power, home


def slow_power(seconds: np.ndarray) -> float | None:
    known = [value for value in seconds if value >= 0]
    return sum(known) / len(known) if 2 * len(known) >= len(seconds) else None


@pytest.mark.parametrize(("resolution", "steps"), [("hour", 24), ("quarter-hour", 96)])
def test_published_seconds_become_steps(root, resolution, steps):
    power, home = write_published(root)
    found = eco.read(resolution)
    assert found.source == "published"
    assert [h.number for h in found.households] == [2, 4]  # household 6 has no occupancy
    second = found.households[0]
    assert second.dates.astype(str).tolist() == ["2012-06-30", "2012-07-01"]
    for day in range(2):
        for step, seconds in enumerate(power[day].reshape(steps, -1)):
            expected = slow_power(seconds)
            assert second.present[day, step] == (expected is not None)
            assert second.power[day, step] == pytest.approx(expected or 0.0)
    if resolution == "quarter-hour":
        shares = home.reshape(2, 96, -1).mean(axis=2)
        np.testing.assert_array_equal(second.occupancy, shares >= 0.5)
    # 340 of 900 seconds are missing in one quarter, 100 in the next; 1,900 of 3,600 in an hour.
    absent = {"hour": (1, 2), "quarter-hour": (1, 8)}[resolution]
    assert not second.present[absent]
    assert (~second.present).sum() == {"hour": 1, "quarter-hour": 2}[resolution]


def test_a_second_read_uses_the_cache_and_gives_equal_arrays(root, tmp_path, monkeypatch):
    write_published(root)
    before = eco.read("hour")
    forget()
    monkeypatch.setattr(eco, "read_published", lambda *_: pytest.fail("read again"))
    again = eco.read("hour")
    for one, other in zip(before.households, again.households, strict=True):
        for part in ("dates", "power", "present", "occupancy"):
            np.testing.assert_array_equal(getattr(one, part), getattr(other, part))
    with pytest.raises(ValueError, match="read-only"):
        again.households[0].power[0] = 1


def test_the_fingerprint_depends_on_contents_not_on_paths(root, tmp_path):
    write_published(root)
    whole = data.fingerprint("eco")
    assert data.status("eco") == "present"
    assert data.fingerprint("eco") == eco.read().fingerprint == whole
    folder = root / "eco" / "published"
    moved = folder / "unpacked" / "02_sm_csv"
    moved.parent.mkdir()
    (folder / "02_sm_csv").rename(moved)
    assert data.fingerprint("eco") == whole
    path = moved / "02" / "2012-07-01.csv"
    path.write_text(path.read_text().replace(",230,", ",229,", 1))
    assert data.fingerprint("eco") != whole


def test_unrecorded_occupancy_is_missing_not_zero(tmp_path):
    values = np.zeros(SECONDS, dtype=object)
    values[:450] = ""  # half of the first quarter is known: absent
    values[900:1_351] = "-1"  # less than half of the second
    values[1_800:2_250] = "1"  # half of the third: occupied
    values[2_700:3_600] = "nan"
    write_occupancy(tmp_path / "02_summer.csv", {"05-Jun-2012": values})
    ((day, labels),) = eco_files.occupancy_days(tmp_path / "02_summer.csv")
    assert day == "2012-06-05"
    assert labels[:4].tolist() == [0, -1, 1, -1]
    assert set(labels[4:]) == {0}


def quarters(occupancy: np.ndarray, seconds: int = 900) -> QuarterHours:
    shape = occupancy.shape
    date = np.arange("2012-06-01", shape[0], dtype="datetime64[D]")
    return QuarterHours(2, date, np.ones(shape), np.full(shape, seconds), occupancy)


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=4, max_size=4))
def test_an_hour_has_the_majority_label_of_its_quarters(labels):
    occupancy = np.full((1, 96), -1)
    occupancy[0, 8:12] = labels
    found = resample(
        QuarterHours(
            2,
            np.array(["2012-06-01"], dtype="datetime64[D]"),
            np.zeros((1, 96)),
            np.zeros((1, 96), dtype=np.int64),
            occupancy,
        ),
        "hour",
    ).occupancy[0]
    known = [label for label in labels if label != -1]
    expected = -1 if len(known) < 2 else int(known.count(1) >= known.count(0))
    assert found[2] == expected
    assert set(found[:2]) | set(found[3:]) == {-1}


@given(st.integers(0, 900), st.integers(0, 900))
def test_a_majority_counts_labelled_parts_only(occupied, unoccupied):
    known = occupied + unoccupied
    if known > 900:
        return
    found = int(majority(np.array(occupied), np.array(known), 900))
    assert found == (-1 if known < 450 else int(occupied >= unoccupied))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda text: text.replace(",30\n", "\n", 1), "15 columns, expected 16"),
        (lambda text: text[: text.rindex("\n", 0, -2) + 1], "86,399 rows, expected 86,400"),
        (lambda text: "x" + text, "is not a file of ECO as published"),
        (lambda text: "", "1 columns, expected 16"),
    ],
    ids=["columns", "rows", "words", "empty"],
)
def test_a_meter_file_of_another_format_is_named(tmp_path, harm, message):
    path = tmp_path / "2012-06-01.csv"
    write_day(path, np.arange(SECONDS) / 100)
    path.write_text(harm(path.read_text()))
    with pytest.raises(data.DataError, match=message) as caught:
        eco_files.meter_day(path)
    assert str(path) in str(caught.value)
    assert "https://doi.org/10.5905/ethz-1007-35" in str(caught.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("01-Jun-2012" + ",1" * (SECONDS - 1), "line 2 has 86,399 values, expected 86,400"),
        ("01-Jun-2012" + ",2" * SECONDS, "line 2 holds b'2'; expected 0, 1, -1 or nothing"),
        ("2012-06-01" + ",1" * SECONDS, "line 2 starts with b'2012-06-01', not with a date"),
        ("01-Jui-2012" + ",1" * SECONDS, "is not a file of ECO as published"),
    ],
    ids=["short", "value", "date", "month"],
)
def test_an_occupancy_file_of_another_format_is_named(tmp_path, row, message):
    path = tmp_path / "02_summer.csv"
    path.write_text(f",'00:00:00'\n{row}\n")
    with pytest.raises(data.DataError, match=message):
        list(eco_files.occupancy_days(path))


def test_households_without_common_days_are_refused(root):
    write_published(root)
    folder = root / "eco" / "published"
    (folder / "04_sm_csv" / "04_sm_csv" / "04" / "2012-12-01.csv").rename(
        folder / "04_sm_csv" / "04_sm_csv" / "04" / "2012-12-02.csv"
    )
    with pytest.raises(data.DataError, match="household 4 has no day with both"):
        eco.read()


HEADER = "time,power_w,l1_w,occupancy\n"


def make_aggregated(*rows: str, header: str = HEADER) -> bytes:
    return gzip.compress((header + "".join(f"{row}\n" for row in rows)).encode())


def test_both_sources_give_the_same_households(root):
    """An aggregated file made of the published seconds reads as the published files do."""
    power, home = write_published(root)
    power = np.where(power < 0, 100, power)
    for day, values in zip(("2012-06-30", "2012-07-01"), power, strict=True):
        write_day(root / "eco" / "published" / "02_sm_csv" / "02" / f"{day}.csv", values)
    means = power.reshape(2, 96, 900).mean(axis=2)
    labels = home.reshape(2, 96, 900).mean(axis=2) >= 0.5
    rows = [
        f"{day} {q // 4:02d}:{15 * (q % 4):02d}:00,{float(means[d, q])!r},0,{int(labels[d, q])}"
        for d, day in enumerate(("2012-06-30", "2012-07-01"))
        for q in range(96)
    ]
    other = eco_files.parse_aggregated(make_aggregated(*rows))
    for resolution in ("hour", "quarter-hour"):
        one, two = eco.read(resolution).households[0], resample(other, resolution)
        np.testing.assert_array_equal(one.dates, two.dates)
        np.testing.assert_allclose(one.power, two.power)
        np.testing.assert_array_equal(one.present, two.present)
        np.testing.assert_array_equal(one.occupancy, two.occupancy)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (make_aggregated("2012-06-01 00:00:00,1,1,1")[:-9], "not a complete gzip file"),
        (b"time,power_w", "not a complete gzip file"),
        (make_aggregated(header="time,watts,occupancy\n"), "power_w"),
        (make_aggregated(), "must have rows"),
        (make_aggregated("2012-06-01 00:07:00,1,1,1"), "a new quarter-hour"),
        (make_aggregated("2012-06-01 00:00:00+02:00,1,1,1"), "cannot be read: .*unconverted"),
        (make_aggregated("2012-06-01 00:00:00,-1,1,1"), "a power from 0 to 1e.07 W"),
        (make_aggregated("2012-06-01 00:00:00,1,1,0.4"), "an occupancy of 0, 1 or nothing"),
        (make_aggregated("2012-06-01 00:00:00,"), "a power from 0"),
        (make_aggregated(*["2012-06-01 00:00:00,1,1,1"] * 2), "a new quarter-hour"),
        (gzip.compress(bytes(17 * 2**20)), "more than 16,777,216 bytes"),
    ],
    ids=[
        "truncated", "not-gzip", "columns", "empty", "time", "zone", "power", "label", "no-power",
        "twice", "bomb",
    ],
)  # fmt: skip
def test_an_aggregated_file_of_another_format_is_named(content, message):
    with pytest.raises(data.DataError, match=message) as caught:
        eco_files.parse_aggregated(content)
    assert "privnets.data.eco" in str(caught.value)


def test_absent_and_altered_files_have_different_messages(root):
    assert data.status("eco") == "absent"
    with pytest.raises(data.DataError, match=r"eco_h2_15min.csv.gz is absent") as caught:
        eco.read()
    assert str(root / "eco" / "published") in str(caught.value)
    (root / "eco").mkdir(parents=True)
    (root / "eco" / "eco_h2_15min.csv.gz").write_bytes(b"x")
    assert data.status("eco") == "altered"
    with pytest.raises(data.DataError, match=r"eco_h2_15min.csv.gz is truncated \(1 bytes"):
        data.fingerprint("eco")
    with pytest.raises(data.DataError, match=r"cannot download .*: no public source serves it"):
        data.fetch("eco")
    with pytest.raises(data.DataError, match=r"must be a table, as adult, .* are; got series"):
        data.load("eco")


@requires_data("eco")
def test_the_aggregated_file_matches_its_table():
    if eco.source() != "aggregated":
        pytest.skip("published files of ECO are at hand")
    frame = pd.read_csv(data.directory() / "eco" / eco_files.AGGREGATED_NAME, parse_dates=["time"])
    (household,) = eco.read("quarter-hour").households
    assert (household.number, len(household.dates)) == (2, 67)
    assert household.present.sum() == len(frame) == 5_208
    np.testing.assert_allclose(household.power[household.present], frame["power_w"])
    np.testing.assert_array_equal(
        household.occupancy[household.present], frame["occupancy"].fillna(-1)
    )
    assert (household.occupancy != -1).sum() == 4_824
    assert set(household.occupancy[~household.present]) == {-1}
    (hourly,) = eco.read("hour").households
    means = frame.set_index("time")["power_w"].resample("h").mean().dropna()
    np.testing.assert_allclose(hourly.power[hourly.present], means)


@requires_data("eco")
def test_published_files_take_precedence(root, monkeypatch):
    monkeypatch.undo()
    real = data.directory() / "eco" / eco_files.AGGREGATED_NAME
    digest = hashlib.sha256(real.read_bytes()).hexdigest()
    monkeypatch.setenv("PRIVNETS_DATA", str(root))
    (root / "eco").mkdir(parents=True)
    shutil.copyfile(real, root / "eco" / eco_files.AGGREGATED_NAME)
    assert digest == data.info("eco").files[0].sha256
    before = data.fingerprint("eco")
    assert eco.source() == "aggregated"
    write_published(root)
    assert eco.source() == "published"
    assert data.fingerprint("eco") != before
    os.rename(root / "eco" / "published", root / "eco" / "elsewhere")
    assert data.fingerprint("eco") == before


def test_a_damaged_cached_digest_is_computed_again(root):
    write_published(root)
    whole = data.fingerprint("eco")
    forget()
    (kept,) = cache.directory().glob("eco-*.digest")
    kept.write_bytes(b"damaged")
    assert data.fingerprint("eco") == whole
