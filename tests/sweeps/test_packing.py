import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privnets
from sweeps.packing import here, pack
from sweeps.planning import PlannedReplicate, plan
from sweeps.spec import Resources, Study

MANY = 2**40


def replicates(space: dict[str, object], seeds: int = 8) -> list[PlannedReplicate]:
    study = {
        "name": "s",
        "experiment": "membership",
        "fixed": {"dataset": "digits", "model": "logistic", "features": 4, "records": 4},
        "space": {"draws": {"grid": [32]}} | space,
        "replicates": seeds,
    }
    return plan(Study.model_validate(study)).replicates()


SIZES = replicates({"train_size": {"grid": [10, 50, 400]}, "weight_decay": {"grid": [0.1, 1, 2]}})


def packed(members=SIZES, **options):
    options = {"size": "auto", "workers": 2, "memory": MANY} | options
    return pack(members, experiment="membership", **options)


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


@pytest.mark.parametrize(("workers", "packs"), [(1, 3), (2, 6), (3, 9), (4, 12), (64, 12)])
def test_automatic_packs_give_each_worker_three_but_are_not_cut_below_eight(workers, packs):
    alike = replicates({"weight_decay": {"grid": [1, 2, 3]}, "train_size": {"grid": [20]}}, 32)
    assert len(packed(alike, workers=workers)) == packs


def test_automatic_packs_take_twenty_seconds_at_most_unless_one_training_does():
    slow = replicates({"train_size": {"grid": [1000]}, "draws": {"grid": [512, 8192]}}, 32)
    found = packed(slow, workers=1)
    assert all(seconds(p) <= 20 or len(p.replicates) == 1 for p in found)
    assert any(len(p.replicates) > 1 for p in found)


def test_packs_are_the_same_whatever_the_order_of_the_replicates():
    assert packed(size=5) == packed(SIZES[::-1], size=5)


def test_the_replicates_of_a_seed_stand_together():
    for found in packed(size=24):
        seeds = [replicate.seed for replicate in found.replicates]
        assert seeds == sorted(seeds)


def test_this_machine_s_workers_share_half_its_memory_and_keep_to_the_limit():
    workers, memory = here(Resources())
    assert workers >= 1
    assert here(Resources(concurrency=1)) == (1, workers * memory) or workers == 1
    assert here(Resources(cpus=4096))[0] == 1
