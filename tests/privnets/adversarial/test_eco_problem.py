"""The ECO problem: windows, splits by blocks of days, and side information."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load
from support import requires_data

from privnets import data
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems.eco import (
    PARTS,
    ROTATION,
    SIDE_FEATURES,
    EcoProblem,
    Windows,
    cut_windows,
    longest_run,
    part_windows,
    side_information,
    week_blocks,
)
from privnets.adversarial.records import load_pool, select_exposure
from privnets.data import eco
from privnets.data.eco import Household, Recordings
from tests.privnets.adversarial.releases import make_release

NETWORKS = ("network", "large_network")
EPOCH = date(1970, 1, 1)


def household(number: int, days: list[int], seed: int, steps: int = 24) -> Household:
    """Random power and occupancy on some days of 2012, a tenth of the steps absent or unknown."""
    random = np.random.default_rng([seed, number])
    shape = (len(days), steps)
    dates = np.datetime64("2012-01-01") + np.array(days).astype("timedelta64[D]")
    present = random.random(shape) > 0.1
    occupancy = np.where(random.random(shape) > 0.1, random.integers(0, 2, shape), -1)
    power = np.where(present, random.gamma(2, 200, shape), 0.0)
    return Household(number, dates, power, present, occupancy)


def make_recordings(*days: list[int], seed: int = 0, steps: int = 24) -> Recordings:
    result = tuple(household(n, d, seed, steps) for n, d in enumerate(days, start=1))
    return Recordings(result, "published", f"{seed}-{days}")


@pytest.fixture
def two_households(monkeypatch) -> Recordings:
    recordings = make_recordings(list(range(60)), [*range(20, 45), *range(70, 90)])
    monkeypatch.setattr(eco, "read", lambda resolution="hour": recordings)
    monkeypatch.setattr(eco, "source", lambda: "published")
    return recordings


def make_config(
    settings: Mapping[str, object] | None = None, **fields: object
) -> AdversarialConfig:
    return AdversarialConfig(problem={"eco": settings or {}}, **fields)


def covered_steps(part: Windows) -> set[tuple[int, int]]:
    """Each household's steps, counted from 1970, that some window has."""
    steps = part.power.shape[1]
    pairs = zip(part.household.tolist(), part.start.tolist(), strict=True)
    return {(number, start + k) for number, start in pairs for k in range(steps)}


@settings(max_examples=25)
@given(
    days=st.lists(st.sets(st.integers(0, 150), min_size=20, max_size=80), min_size=1, max_size=2),
    rotation=st.integers(0, len(ROTATION) - 1),
)
def test_no_step_is_in_two_splits_not_even_of_another_household(days, rotation):
    recordings = make_recordings(*map(sorted, days))
    parts = part_windows(recordings, rotation, "hour")
    steps = [{step for _, step in covered_steps(part)} for part in parts]
    for i, one in enumerate(steps):
        for other in steps[i + 1 :]:
            assert not one & other


@settings(max_examples=25)
@given(st.sets(st.integers(0, 300), min_size=20, max_size=150))
def test_blocks_are_ordered_and_disjoint_and_hold_every_known_day(days):
    recordings = make_recordings(sorted(days))
    result = week_blocks(recordings)
    assert len(result) >= 10
    for one, other in itertools.pairwise(result):
        assert one.first <= one.last < other.first
    first = int(np.datetime64("2012-01-01").astype(np.int64))
    within = [d for d in days if any(b.first <= first + d <= b.last for b in result)]
    (own,) = recordings.households
    known = np.where(own.present, own.occupancy, -1) != -1
    unknown = (known.mean(axis=1) < 0.5).sum()
    assert len(within) >= len(days) - unknown
    sizes = [sum(b.first <= first + d <= b.last for d in days) for b in result]
    assert max(sizes) - min(sizes) <= 1 + unknown


def test_too_few_days_are_refused_with_advice():
    with pytest.raises(data.DataError, match=r"at least 20 days .* there are 19\. Unpack more"):
        week_blocks(make_recordings(list(range(19)), seed=1))


def test_windows_hold_the_recordings_of_their_days(two_households):
    (block, *_) = week_blocks(two_households)
    result = cut_windows(two_households, block, stride=1)
    assert len(result) > 100
    for i in range(0, len(result), 7):
        own = two_households.households[result.household[i] - 1]
        for k in range(24):
            day, hour = divmod(int(result.start[i]) + k, 24)
            (rows,) = np.nonzero(own.dates.astype(np.int64) == day)
            if len(rows) == 0 or not own.present[rows[0], hour]:
                assert not result.present[i, k]
                assert (result.power[i, k], result.occupancy[i, k]) == (0, -1)
            else:
                assert result.power[i, k] == own.power[rows[0], hour]
                assert result.occupancy[i, k] == own.occupancy[rows[0], hour]
    assert (2 * (result.occupancy != -1).sum(axis=1) >= 24).all()


@pytest.mark.parametrize("steps", [24, 96])
def test_side_information_is_weekday_month_and_the_time_of_day(steps):
    moments = [(date(2012, 2, 29), 23), (date(2012, 12, 31), 5), (date(2013, 7, 7), 0)]
    start = np.array([((day - EPOCH).days * 24 + hour) * steps // 24 for day, hour in moments])
    result = side_information(start, steps)
    assert result.shape == (3, steps, SIDE_FEATURES)
    for row, (day, hour) in enumerate(moments):
        for k in range(steps):
            minute = hour * 60 + k * 1440 // steps
            now, clock = day + timedelta(days=minute // 1440), minute % 1440 / 1440
            assert result[row, k, :7].tolist() == [now.weekday() == i for i in range(7)]
            assert result[row, k, 7:19].tolist() == [now.month == i for i in range(1, 13)]
            turns = [f(2 * np.pi * n * clock) for n in (1, 2) for f in (np.sin, np.cos)]
            np.testing.assert_allclose(result[row, k, 19:], turns, atol=1e-6)


def test_test_windows_are_whole_days_and_the_others_slide_by_an_hour(two_households):
    for rotation in range(len(ROTATION)):
        parts = dict(zip(PARTS, part_windows(two_households, rotation, "hour"), strict=True))
        assert (parts["test"].start % 24 == 0).all()
        days = parts["test"].days
        assert len(set(days.tolist())) == len(days)
        for name in PARTS[:3]:
            assert set((parts[name].start % 24).tolist()) == set(range(24))


def test_rotations_give_every_block_to_test(two_households):
    def days(rotation: int) -> frozenset[int]:
        test = part_windows(two_households, rotation, "hour")[3]
        return frozenset((test.start // 24).tolist())

    result = [days(rotation) for rotation in range(len(ROTATION))]
    blocks = week_blocks(two_households)
    for block in blocks:
        assert any(any(block.first <= day <= block.last for day in one) for one in result)


@pytest.mark.parametrize("days", [60, 147, 300])
def test_seeds_of_one_test_set_share_all_test_days_and_others_none(days):
    """Standard errors count test sets of different names as independent."""
    recordings = make_recordings(list(range(days)))
    tested = [
        frozenset((part_windows(recordings, rotation, "hour")[3].start // 24).tolist())
        for rotation in range(len(ROTATION))
    ]
    names = [EcoProblem().test_set(make_config(seed=seed))[0] for seed in range(len(ROTATION))]
    assert len(set(names)) == 5
    for (name, one), (other_name, other) in itertools.combinations(
        zip(names, tested, strict=True), 2
    ):
        assert one == other if name == other_name else not one & other


def test_splits_are_disjoint_and_of_equal_sizes_for_every_seed(two_households):
    configs = [make_config(seed=seed) for seed in range(len(ROTATION))]
    pool, splits = load_pool(EcoProblem(), configs, "cpu")
    assert len({tuple(len(getattr(s, p)) for p in PARTS) for s in splits}) == 1
    for one in splits:
        rows = np.concatenate([getattr(one, p) for p in PARTS])
        assert len(set(rows.tolist())) == len(rows)
        assert rows.max() < len(pool.x)


def test_records_depend_on_the_seed_and_not_on_the_stack(two_households):
    configs = [make_config(seed=seed, alpha=1 + seed) for seed in (4, 0, 14)]
    pool, splits = load_pool(EcoProblem(), configs, "cpu")
    for config, own in zip(configs, splits, strict=True):
        alone, (split,) = load_pool(EcoProblem(), [config], "cpu")
        for part in PARTS:
            here, there = getattr(own, part), getattr(split, part)
            for column in ("x", "secret", "side", "present", "group"):
                one, other = getattr(pool, column)[here], getattr(alone, column)[there]
                assert torch.equal(one, other)
    # Seeds that share a rotation share its records.
    np.testing.assert_array_equal(splits[0].test, splits[2].test)


def test_subsamples_have_the_requested_size_up_to_the_available_one(two_households):
    _, (splits,) = load_pool(EcoProblem(), [make_config(train_size=50)], "cpu")
    assert len(set(splits.train)) == 50
    with pytest.raises(ValueError, match=r"train_size must be at most \d+ .*; got 100000"):
        load_pool(EcoProblem(), [make_config(train_size=100_000)], "cpu")


def test_original_units_recover_power_in_watts(two_households):
    config = make_config(seed=3)
    pool, (splits,) = load_pool(EcoProblem(), [config], "cpu")
    offset, scale = EcoProblem().original_units(config)
    blocks = [
        block
        for place, block in enumerate(week_blocks(two_households))
        if ROTATION[(place + 3) % 10] == 0
    ]
    metered = [
        own.power[row][own.present[row]]
        for own in two_households.households
        for row, day in enumerate(own.dates.astype(np.int64))
        if any(block.first <= day <= block.last for block in blocks)
    ]
    assert offset == pytest.approx(np.concatenate(metered).mean())
    assert scale == pytest.approx(np.concatenate(metered).std())
    parts = part_windows(two_households, 3, "hour")
    present = pool.present[splits.test].numpy()
    watts = offset + scale * pool.x[splits.test][..., 0].numpy()
    test = parts[3]
    by_origin = dict(zip(test.days.tolist(), test.power, strict=True))
    for row, group in enumerate(pool.group[splits.test].tolist()):
        np.testing.assert_allclose(
            watts[row][present[row]], by_origin[group][present[row]], rtol=1e-4, atol=1e-2
        )


def test_absent_steps_are_zero_with_a_missing_secret(two_households):
    pool, _ = load_pool(EcoProblem(), [make_config()], "cpu")
    assert not pool.present.all()
    assert (pool.x[..., 0][~pool.present] == 0).all()
    assert (pool.secret[~pool.present] == -1).all()
    assert (pool.secret[pool.present] == -1).any()
    assert set(pool.secret.unique().tolist()) == {-1, 0, 1}
    assert (pool.x.dtype, pool.secret.dtype) == (torch.float32, torch.int64)


def test_test_days_do_not_influence_the_other_splits(two_households, monkeypatch):
    """Altering power and occupancy of test days does not change the other three parts."""
    config = make_config(seed=1)
    pool, (splits,) = load_pool(EcoProblem(), [config], "cpu")
    days = set((pool.group[splits.test].numpy() % 10**6).tolist())
    altered = []
    for own in two_households.households:
        rows = np.isin(own.dates.astype(np.int64), list(days))[:, None]
        occupancy = np.where(rows & (own.occupancy != -1), 1 - own.occupancy, own.occupancy)
        power = np.where(rows & own.present, 5_000 - own.power, own.power)
        altered.append(Household(own.number, own.dates, power, own.present, occupancy))
    other_recordings = Recordings(tuple(altered), "published", "altered")
    monkeypatch.setattr(eco, "read", lambda resolution="hour": other_recordings)
    other, (again,) = load_pool(EcoProblem(), [config], "cpu")
    for part in PARTS[:3]:
        here, there = getattr(splits, part), getattr(again, part)
        assert torch.equal(pool.x[here], other.x[there])
        assert torch.equal(pool.secret[here], other.secret[there])
    assert not torch.equal(pool.secret[splits.test], other.secret[again.test])


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(1, 7))
def test_a_week_is_the_longest_run_of_days(days, most):
    group = np.array(sorted(days))[::-1]
    result = group[longest_run(group, most)]
    assert np.diff(result).tolist() == [1] * (len(result) - 1)
    assert len(result) == min(max(run(days, first) for first in days), most)


def run(days: set[int], first: int) -> int:
    """Number of consecutive days from a first day on."""
    return 1 + run(days, first + 1) if first + 1 in days else 1


def test_the_example_week_is_in_watts_with_its_days(two_households):
    config = make_config(seed=2)
    pool, (splits,) = load_pool(EcoProblem(), [config], "cpu")
    original = select_exposure(pool, splits.test)
    released = replace(original, z=original.z + 1)
    result = EcoProblem().release_details(make_release(config, [], original, released))
    week = load(result.artifacts["week.safetensors"])
    days = len(week["day"])
    assert 2 <= days <= 7
    assert week["day"].tolist() == list(range(int(week["day"][0]), int(week["day"][0]) + days))
    assert week["original"].shape == week["released"].shape == week["secret"].shape == (days, 24)
    present = week["present"].bool()
    assert week["present"].dtype == torch.uint8
    _, scale = EcoProblem().original_units(config)
    torch.testing.assert_close(
        (week["released"] - week["original"])[present],
        torch.full((int(present.sum()),), scale, dtype=torch.float32),
        rtol=1e-3, atol=0.01,
    )  # fmt: skip
    candidates = [
        own.power[row]
        for own in two_households.households
        for row in np.flatnonzero(own.dates.astype(np.int64) == int(week["day"][0]))
    ]
    assert any(np.allclose(week["original"][0], power, atol=0.01) for power in candidates)


def test_unsupported_fields_of_eco_are_reported(monkeypatch):
    monkeypatch.setattr(eco, "source", lambda: "aggregated")
    config = make_config(
        releaser="mlp",
        scenario="fixed-utility",
        train_size=10**6,
    )
    assert {p.field for p in EcoProblem().invalid_fields(config)} == {
        "releaser", "scenario", "train_size",
    }  # fmt: skip
    assert not EcoProblem().invalid_fields(make_config())
    monkeypatch.setattr(eco, "source", lambda: "published")
    assert not EcoProblem().invalid_fields(make_config(train_size=10**6))


@requires_data("eco")
@pytest.mark.parametrize("resolution", ["hour", "quarter-hour"])
def test_the_available_data_have_the_predicted_sizes(resolution):
    if eco.source() != "aggregated":
        pytest.skip("published files of ECO are at hand")
    config = make_config({"resolution": resolution}, seed=5)
    pool, (splits,) = load_pool(EcoProblem(), [config], "cpu")
    told = EcoProblem().split_sizes(config)
    assert [len(getattr(splits, p)) for p in PARTS] == [getattr(told, p) for p in PARTS]
    assert tuple(pool.x.shape[1:]) == told.record_shape
    assert EcoProblem().fingerprint(config) == data.fingerprint("eco")
    for part in PARTS:
        secret = pool.secret[getattr(splits, part)]
        assert {0, 1} <= set(secret.unique().tolist())
