import math
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privnets
from privnets.contract import Cost
from sweeps.planning.packing import Capacity, local_capacity, make_packs
from sweeps.planning.plan import PlannedReplicate, make_plan
from sweeps.study.spec import Resources, Study

AMPLE_MEMORY = 2**40


def replicates(space: dict[str, object], seeds: int = 8) -> list[PlannedReplicate]:
    study = {
        "name": "s",
        "experiment": "membership",
        "fixed": {"dataset": "digits", "model": "logistic", "features": 4, "records": 4},
        "space": {"draws": {"grid": [32]}, "train_size": {"grid": [20]}} | space,
        "replicates": seeds,
    }
    return make_plan(Study.model_validate(study)).replicates()


REPLICATES = replicates(
    {"train_size": {"grid": [10, 50, 400]}, "weight_decay": {"grid": [0.1, 1, 2]}}
)


def make(members=REPLICATES, size="auto", workers=2, memory=AMPLE_MEMORY):
    capacity = Capacity(workers, memory)
    return make_packs(members, experiment="membership", size=size, capacity=capacity)


@pytest.fixture
def costly(monkeypatch):
    """Lets the cost model say that stacks share most of their seconds."""
    own = privnets.experiment("membership")
    monkeypatch.setattr(type(own), "cost", lambda self, config: Cost(1.0, 1000, 9.0))


def seconds(pack) -> float:
    cost = privnets.experiment("membership").cost
    return math.fsum(cost(member.config).seconds for member in pack.replicates)


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from(REPLICATES), unique_by=lambda r: (r.point_id, r.seed), min_size=1),
    st.one_of(st.just("auto"), st.integers(1, 30)),
    st.integers(1, 64),
    st.integers(1, 2**36),
)
def test_packs_have_every_replicate_once_and_one_structure_each(members, size, workers, memory):
    packs = make(members, size=size, workers=workers, memory=memory)
    assert Counter((r.point_id, r.seed) for p in packs for r in p.replicates) == Counter(
        (r.point_id, r.seed) for r in members
    )
    assert all(len({r.config.structure() for r in p.replicates}) == 1 for p in packs)
    assert len({p.pack_id for p in packs}) == len(packs)
    assert {p.experiment for p in packs} == {"membership"}


def test_packs_of_a_given_size_are_even():
    packs = make(size=10)  # 3 structures of 24
    assert Counter(len(p.replicates) for p in packs) == {8: 9}


def test_a_pack_fits_into_memory():
    cost = privnets.experiment("membership").cost
    limit = 3 * max(cost(member.config).memory for member in REPLICATES)
    sizes = [sum(cost(r.config).memory for r in p.replicates) for p in make(memory=limit)]
    assert max(sizes) <= limit
    assert max(sizes) > limit / 2


def test_a_replicate_larger_than_memory_has_its_own_pack():
    assert {len(p.replicates) for p in make(memory=1)} == {1}


def test_the_longest_pack_comes_first():
    lengths = [seconds(p) for p in make(size=5)]
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_automatic_packs_keep_every_worker_busy(workers):
    members = replicates({"weight_decay": {"grid": [1, 2, 3]}, "train_size": {"grid": [1000]}}, 32)
    packs = make(members, workers=workers)
    assert len(packs) >= 2 * workers
    assert seconds(packs[0]) < seconds(SimpleNamespace(replicates=members)) / workers


def test_automatic_packs_take_at_most_twenty_seconds_unless_one_training_takes_longer():
    slow = replicates({"train_size": {"grid": [1000]}, "draws": {"grid": [512, 8192]}}, 32)
    packs = make(slow, workers=1)
    assert all(seconds(p) <= 20 or len(p.replicates) == 1 for p in packs)
    assert any(len(p.replicates) > 1 for p in packs)


def test_points_finish_block_by_block(costly):
    members = replicates({"weight_decay": {"grid": [*range(1, 41)]}}, seeds=4)
    packs = make(members, workers=1)
    seen = Counter()
    complete = 0
    for done in packs[: len(packs) // 2]:
        seen.update(r.point_id for r in done.replicates)
        complete = sum(count == 4 for count in seen.values())
    assert complete >= 40 // 2 - max(len(p.replicates) for p in packs)


def test_packs_do_not_depend_on_the_order_of_the_replicates():
    assert make(size=5) == make(REPLICATES[::-1], size=5)


def test_replicates_of_one_seed_are_adjacent():
    for pack in make(size=24):
        seeds = [replicate.seed for replicate in pack.replicates]
        assert seeds == sorted(seeds)


def test_local_workers_share_half_of_the_memory():
    here = local_capacity(Resources())
    workers, memory = here.workers, here.memory
    assert workers >= 1
    assert local_capacity(Resources(concurrency=1)) == Capacity(1, workers * memory) or workers == 1
    assert local_capacity(Resources(cpus=4096)).workers == 1
