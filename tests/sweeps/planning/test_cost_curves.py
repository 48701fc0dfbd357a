"""Cost curves, the efficient sizes on them, and their cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import privnets
from privnets.contract import Cost
from sweeps.planning.cost_curves import (
    PACK_SECONDS,
    CostCurve,
    Workload,
    cache_curve,
    curve_key,
    read_cached_curve,
)
from sweeps.study.spec import Resources

CACHED = CostCurve((1, 2, 4), (3.0, 4.0, 6.5), 1234, complete=True)
ROOMY = 2**50
COST = Cost(seconds=0.3, memory=1000, shared=1.7)
# Seconds per member fall to 16 members, and rise beyond.
MEASURED = CostCurve((1, 2, 4, 8, 16, 32), (10.0, 14.0, 20.0, 32.0, 56.0, 136.0), 1000)


@given(st.integers(1, 10_000))
def test_a_curve_of_the_cost_model_is_linear_in_the_size(
    size: int,
) -> None:
    assert CostCurve.from_cost(COST).stack_seconds(size) == pytest.approx(1.7 + 0.3 * size)


@given(st.integers(1, 32))
def test_a_measured_curve_interpolates_its_measurements(size: int) -> None:
    total = MEASURED.stack_seconds(size)
    for known, seconds in zip(MEASURED.sizes, MEASURED.totals, strict=True):
        assert total == pytest.approx(seconds) or size != known
    below = max(s for s in MEASURED.sizes if s <= size)
    assert MEASURED.stack_seconds(below) <= total
    assert MEASURED.pack_seconds(size) == total + PACK_SECONDS


def test_a_curve_extrapolates_its_last_segment() -> None:
    assert MEASURED.stack_seconds(40) == pytest.approx(136.0 + 8 * 5.0)


def test_efficient_sizes_are_close_to_the_best_time_per_member() -> None:
    sizes = Workload.from_curve(MEASURED, members=100, memory=2**40)
    best = min(MEASURED.seconds_per_member(k) for k in range(1, 33))
    assert sizes.smallest <= sizes.preferred <= sizes.largest <= 32
    assert MEASURED.seconds_per_member(sizes.smallest) <= 1.4 * best
    assert MEASURED.seconds_per_member(max(1, sizes.smallest // 2)) > 1.4 * best
    assert MEASURED.seconds_per_member(sizes.preferred) <= 1.05 * best
    assert MEASURED.seconds_per_member(sizes.largest) <= 1.05 * best


@pytest.mark.parametrize(("members", "memory", "most"), [(3, 2**40, 3), (100, 5500, 5)])
def test_the_largest_size_is_limited_by_members_and_memory(
    members: int, memory: int, most: int
) -> None:
    assert (
        Workload.from_curve(CostCurve.from_cost(Cost(1.0, 1000, 100.0)), members, memory).largest
        == most
    )


def test_a_member_larger_than_memory_has_its_own_pack() -> None:
    assert Workload.from_curve(MEASURED, members=10, memory=1) == Workload(10, MEASURED, 1, 1, 1)


def test_only_cheap_stacks_exceed_the_measured_sizes() -> None:
    expensive = CostCurve((1, 2, 4), (10.0, 10.1, 10.2), 1000)
    cheap = CostCurve((1, 2, 4), (1e-4, 1.1e-4, 1.2e-4), 1000)
    assert Workload.from_curve(expensive, members=1000, memory=2**40).largest == 4
    assert Workload.from_curve(cheap, members=1000, memory=2**40).largest == 1000


@pytest.fixture
def cached_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cache file of the curve `a`."""
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path))
    cache_curve("a", CACHED)
    (path,) = tmp_path.iterdir()
    return path


def test_a_cached_curve_is_read_back(cached_file: Path) -> None:
    assert read_cached_curve("a", 1000, ROOMY) == CACHED
    assert read_cached_curve("b", 1000, ROOMY) is None


def test_an_incomplete_curve_serves_sweeps_without_larger_stacks(cached_file: Path) -> None:
    cache_curve("short", CostCurve((1, 2, 4), (3.0, 4.0, 5.0), 10, complete=False))
    assert read_cached_curve("short", 7, ROOMY) is not None
    assert read_cached_curve("short", 8, ROOMY) is None


@pytest.mark.parametrize("damage", ["empty", "cut", "altered", "absent"])
def test_a_damaged_cache_file_is_ignored_and_replaced(cached_file: Path, damage: str) -> None:
    content = cached_file.read_bytes()
    if damage == "absent":
        cached_file.unlink()
    else:
        middle = len(content) // 2
        other = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        cached_file.write_bytes({"empty": b"", "cut": content[:-20], "altered": other}[damage])
    assert read_cached_curve("a", 10, ROOMY) is None
    cache_curve("a", CACHED)
    assert read_cached_curve("a", 10, ROOMY) == CACHED


def test_the_key_depends_on_experiment_structure_resources_and_device() -> None:
    adversarial = privnets.experiment("adversarial")
    plain = curve_key(adversarial, "s", Resources(), "")
    others = {
        curve_key(privnets.experiment("membership"), "s", Resources(), ""),
        curve_key(adversarial, "t", Resources(), ""),
        curve_key(adversarial, "s", Resources(cpus=2), ""),
        curve_key(adversarial, "s", Resources(gpus=0.5), ""),
        curve_key(adversarial, "s", Resources(), "NVIDIA H100"),
    }
    assert len(others | {plain}) == 6
    assert plain == curve_key(adversarial, "s", Resources(pack=3, concurrency=1), "")
