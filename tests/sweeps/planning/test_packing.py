import math
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privnets
from sweeps.planning.cost_curves import CostCurve
from sweeps.planning.packing import local_capacity, make_packs
from sweeps.planning.plan import PlannedReplicate, make_plan
from sweeps.study.spec import Resources, Study

MANY = 2**40


def replicates(space: dict[str, object], seeds: int = 8) -> list[PlannedReplicate]:
    study = {
        "name": "s",
        "experiment": "membership",
        "fixed": {"dataset": "digits", "model": "logistic", "features": 4, "records": 4},
        "space": {"draws": {"grid": [32]}, "train_size": {"grid": [20]}} | space,
        "replicates": seeds,
    }
    return make_plan(Study.model_validate(study)).replicates()


SIZES = replicates({"train_size": {"grid": [10, 50, 400]}, "weight_decay": {"grid": [0.1, 1, 2]}})


def packed(members=SIZES, **options):
    options = {"size": "auto", "workers": 2, "memory": MANY} | options
    return make_packs(members, experiment="membership", **options)


def seconds(found) -> float:
    cost = privnets.experiment("membership").cost
    return math.fsum(cost(member.config).seconds for member in found.replicates)


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from(SIZES), unique_by=lambda r: (r.point_id, r.seed), min_size=1),
    st.one_of(st.just("auto"), st.integers(1, 30)),
    st.integers(1, 64),
    st.integers(1, 2**36),
)
def test_packs_share_out_the_replicates_and_each_has_one_structure(members, size, workers, memory):
    found = packed(members, size=size, workers=workers, memory=memory)
    assert Counter((r.point_id, r.seed) for p in found for r in p.replicates) == Counter(
        (r.point_id, r.seed) for r in members
    )
    assert all(len({r.config.structure() for r in p.replicates}) == 1 for p in found)
    assert len({p.pack_id for p in found}) == len(found)
    assert {p.experiment for p in found} == {"membership"}


def test_a_given_size_is_a_limit_that_is_met_evenly():
    found = packed(size=10)  # 3 structures of 24
    assert Counter(len(p.replicates) for p in found) == {8: 9}


def test_a_pack_fits_into_memory():
    cost = privnets.experiment("membership").cost
    limit = 3 * max(cost(member.config).memory for member in SIZES)
    found = [sum(cost(r.config).memory for r in p.replicates) for p in packed(memory=limit)]
    assert max(found) <= limit
    assert max(found) > limit / 2


def test_a_replicate_larger_than_memory_is_alone():
    assert {len(p.replicates) for p in packed(memory=1)} == {1}


def test_the_longest_pack_comes_first():
    found = [seconds(p) for p in packed(size=5)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_automatic_packs_leave_every_worker_something_to_do(workers):
    alike = replicates({"weight_decay": {"grid": [1, 2, 3]}, "train_size": {"grid": [1000]}}, 32)
    found = packed(alike, workers=workers)
    assert len(found) >= 2 * workers
    assert seconds(found[0]) < seconds(SimpleNamespace(replicates=alike)) / workers


def test_automatic_packs_take_twenty_seconds_at_most_unless_one_training_does():
    slow = replicates({"train_size": {"grid": [1000]}, "draws": {"grid": [512, 8192]}}, 32)
    found = packed(slow, workers=1)
    assert all(seconds(p) <= 20 or len(p.replicates) == 1 for p in found)
    assert any(len(p.replicates) > 1 for p in found)


STRUCTURE = SIZES[0].config.structure()
# Of four members or more, each takes a quarter of what it takes alone.
STEEP = CostCurve((1, 2, 4, 8), (40.0, 40.0, 40.0, 80.0), 1000)


def test_packs_follow_what_was_measured():
    members = [r for r in SIZES if r.config.structure() == STRUCTURE]
    found = packed(members, curves={STRUCTURE: STEEP}, workers=3)
    assert {len(p.replicates) for p in found} <= {4, 8}
    tight = packed(members, curves={STRUCTURE: STEEP}, workers=3, memory=4000)
    assert {len(p.replicates) for p in tight} == {4}


def test_long_packs_begin_with_one_of_a_single_point_that_is_soon_complete():
    curve = CostCurve((1, 2, 4, 8, 16), (10.0, 11.0, 13.0, 17.0, 25.0), 1000)
    members = replicates({"weight_decay": {"grid": [*range(1, 61)]}}, seeds=4)
    found = packed(members, curves={members[0].config.structure(): curve})
    first, *rest = ({r.point_id for r in p.replicates} for p in found)
    assert len(first) == 1
    assert len(found[0].replicates) == 4
    assert not any(first & points for points in rest)


def test_points_are_complete_one_block_after_the_other():
    members = replicates({"weight_decay": {"grid": [*range(1, 41)]}}, seeds=4)
    curve = CostCurve((1, 2, 4, 8), (1.0, 1.1, 1.3, 1.7), 1000)
    found = packed(members, curves={members[0].config.structure(): curve}, workers=1)
    seen = Counter()
    complete = 0
    for done in found[: len(found) // 2]:
        seen.update(r.point_id for r in done.replicates)
        complete = sum(count == 4 for count in seen.values())
    assert complete >= 40 // 2 - max(len(p.replicates) for p in found)


def test_packs_are_the_same_whatever_the_order_of_the_replicates():
    assert packed(size=5) == packed(SIZES[::-1], size=5)


def test_the_replicates_of_a_seed_stand_together():
    for found in packed(size=24):
        seeds = [replicate.seed for replicate in found.replicates]
        assert seeds == sorted(seeds)


def test_this_machine_s_workers_share_half_its_memory_and_keep_to_the_limit():
    workers, memory = local_capacity(Resources())
    assert workers >= 1
    assert local_capacity(Resources(concurrency=1)) == (1, workers * memory) or workers == 1
    assert local_capacity(Resources(cpus=4096))[0] == 1
