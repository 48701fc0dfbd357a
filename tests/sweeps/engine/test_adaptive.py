"""Adaptive searches: the same asks whatever ends first and wherever the driver is killed."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from small_sweeps import rows, study_file
from stores import new_store
from test_chaos import drive, kill_with_descendants_watched, wait_until

import sweeps
import tracking
from privnets.points import Replicate, Scalar, TradeoffPoint
from sweeps.analysis.comparison import compare_sweeps
from sweeps.analysis.remarks import count_exclusions, front_remarks
from sweeps.analysis.results import Result, open_result
from sweeps.engine.pack_sources import (
    PackSource,
    SearchedPacks,
    ask_results,
)
from sweeps.engine.progress import SweepCounter
from sweeps.engine.sweep_run import copy_reused
from sweeps.errors import InputError
from sweeps.planning.continuation import plan_extension, prepare_manifest
from sweeps.planning.packing import Capacity, Pack, make_packs
from sweeps.planning.pending import pending_replicates
from sweeps.planning.plan import (
    Plan,
    PlannedReplicate,
    add_recorded_asks,
    create_manifest,
    make_plan,
)
from sweeps.report.contents import ReportContents
from sweeps.report.page import render_page
from sweeps.store.asks import AskRecord, read_asks, write_ask
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest, write_manifest
from sweeps.store.reuse import finished_points, record_sources, recorded_sources
from sweeps.study.search_space import Axis
from sweeps.study.spec import Bounds, Study

if TYPE_CHECKING:
    from cluster import Connection

PRIVACY, UTILITY = "privacy/membership_advantage", "utility/test_accuracy"
SEARCH = {"num_points": 18, "ask_size": 3, "confirm": 3}


FIXED = {"dataset": "digits", "model": "logistic", "train_size": 50, "seed": 5}
SPACE = {"weight_decay": {"loguniform": [1e-3, 1]}, "noise_std": {"uniform": [0, 1]}}


def adaptive_plan(
    algorithm: str,
    space: Mapping[str, object] = SPACE,
    fixed: Mapping[str, object] = FIXED,
    **search: object,
) -> Plan:
    study = {
        "name": "s",
        "experiment": "membership",
        "fixed": fixed,
        "space": space,
        "search": {"algorithm": algorithm, **SEARCH, **search},
        "objectives": {PRIVACY: "min", UTILITY: "max"},
        "replicates": 2,
    }
    return make_plan(Study.model_validate(study))


def train(ledger: Ledger, pack: Pack, stop_above: float = math.inf) -> None:
    """Commits a pack with metrics of a formula; small noise represents the seed.

    Points with more noise than `stop_above` are stopped early.
    """
    points = []
    for member in pack.replicates:
        decay = max(member.config.weight_decay, 1e-3)  # type: ignore[attr-defined]
        noise = member.config.noise_std  # type: ignore[attr-defined]
        shift = random.Random(f"{member.point_id} {member.seed}").gauss(0, 0.01)
        privacy = math.exp(-noise) + 0.1 * math.log10(decay) ** 2 + shift
        metrics = {PRIVACY: privacy, UTILITY: 1 - noise**2 + shift}
        failed = noise > 0.9
        replicate = Replicate(
            member.seed, {} if failed else metrics, failure="diverged" if failed else None
        )
        if noise > stop_above:
            undefined = dict.fromkeys(metrics, math.nan)
            replicate = Replicate(member.seed, undefined, stopped="dominated at 25% of training")
        config = member.config.resolved()
        points.append(TradeoffPoint(member.point_id, "membership", config, (replicate,)))
    ledger.write_pack(pack.pack_id, points)


def pack_singly(replicates: Sequence[PlannedReplicate], size: int = 1) -> list[Pack]:
    pack = partial(make_packs, experiment="membership", capacity=Capacity(1, 2**30))
    return pack(replicates, size=size)


def start_source(
    plan: Plan,
    ledger: Ledger,
    make_packs: Callable[..., list[Pack]] = pack_singly,
    budget: int | str | None = None,
) -> SearchedPacks:
    plan = add_recorded_asks(plan, ledger)
    pending = make_packs(list(pending_replicates(plan, ledger).values()))
    return SearchedPacks(plan, ledger, pending, make_packs, lambda plan, packs: None, budget=budget)


def search_until_kill(plan: Plan, ledger: Ledger, chance: random.Random, rate: float) -> bool:
    """Trains in random order, two packs at once; returns whether the search came to its end."""
    source = start_source(plan, ledger)
    running: list[Pack] = []
    while not source.is_finished:
        while len(running) < 4 and (pack := source.take()) is not None:
            running.append(pack)
        if not running:  # everything that the last ask wants is there already
            assert source.is_finished
            return True
        if chance.random() < rate:
            return False
        pack = running.pop(chance.randrange(len(running)))
        train(ledger, pack)
        source.end_pack(pack.pack_id)
    return True


def search(plan: Plan, folder: Path, seed: int, rate: float) -> tuple[list[AskRecord], int]:
    """Asks of a search, and the number of times it was killed."""
    ledger, chance, kills = Ledger(str(folder), "s"), random.Random(seed), 0
    while not search_until_kill(plan, ledger, chance, rate):
        kills += 1
    assert len(rows(ledger)) == len(set(rows(ledger)))
    return read_asks(ledger), kills


@pytest.mark.parametrize("algorithm", ["tpe", "nsga2", "frontier"])
def test_asks_depend_neither_on_order_nor_on_kills(algorithm: str, tmp_path: Path) -> None:
    plan = adaptive_plan(algorithm)
    expected, _ = search(plan, tmp_path / "whole", 0, rate=0.0)
    killed, kills = search(plan, tmp_path / "killed", 1, rate=0.5)
    assert kills >= 10
    assert killed == expected
    assert [ask.kind for ask in expected] == ["search"] * 6 + ["confirm"]
    assert [ask.told for ask in expected] == [0, 0, 1, 2, 3, 4, 6]
    assert min(seed for ask in expected for seed in ask.seeds) == 5


def test_a_search_is_told_the_repeated_training_of_a_failed_pack(tmp_path: Path) -> None:
    """A later run repeats the training, and it does not matter when that run is killed."""
    plan = adaptive_plan("frontier")
    ledgers = [Ledger(str(tmp_path / name), "s") for name in ("whole", "killed")]
    source = start_source(plan, ledgers[0])
    for number in range(14):
        pack = source.take()
        assert pack is not None
        if number != 2:  # The worker of this pack died again and again.
            train(ledgers[0], pack)
        source.end_pack(pack.pack_id)
    assert len(read_asks(ledgers[0])) == 5
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    pending = start_source(plan, ledgers[1]).take()
    assert pending is not None
    train(ledgers[1], pending)
    expected, killed = (search(plan, tmp_path / name, 0, 0.0)[0] for name in ("whole", "killed"))
    assert killed == expected


def take_all(source: PackSource, ledger: Ledger, stop_above: float = math.inf) -> int:
    """Trains all packs of a source; returns the number of trainings."""
    trainings = 0
    while (pack := source.take()) is not None:
        train(ledger, pack, stop_above)
        source.end_pack(pack.pack_id)
        trainings += len(pack.replicates)
    return trainings


@pytest.mark.parametrize("algorithm", ["tpe", "frontier"])
def test_a_search_goes_on_after_stopped_points_and_confirms_none(
    algorithm: str, tmp_path: Path
) -> None:
    plan, ledger = adaptive_plan(algorithm), Ledger(str(tmp_path), "s")
    write_manifest(ledger, create_manifest(plan, "s", command="", tracking_uri=""))
    source = start_source(plan, ledger)
    assert take_all(source, ledger, stop_above=0.4) == len(rows(ledger))
    assert source.is_finished
    asks, result = read_asks(ledger), open_result("s", str(tmp_path))
    assert [ask.kind for ask in asks] == ["search"] * 6 + ["confirm"]
    stopped = {*result.points.query("status == 'stopped'")["point_id"]}
    assert len(stopped) == result.counts["stopped"] >= 3
    assert result.confirmed == {*asks[-1].point_ids}
    assert result.confirmed
    assert not result.confirmed & stopped
    assert result.pending == 0


@pytest.mark.parametrize(("budget", "is_spent"), [("0.01s", True), ("1h", False)])
def test_a_budget_of_time_cuts_packs_off(budget: str, is_spent: bool, tmp_path: Path) -> None:
    plan = adaptive_plan("tpe")
    proposals = [{"weight_decay": 0.5, "noise_std": x / 8} for x in range(4)]
    packs = pack_singly(plan.grow(plan.propose("search", proposals, told=0)).replicates())
    source = PackSource(packs, budget)
    time.sleep(0.02)
    assert take_all(source, Ledger(str(tmp_path), "s")) == (0 if is_spent else 4)
    assert source.is_finished
    assert source.has_reached_budget == is_spent


@pytest.mark.parametrize("budget", [3, 10, 16, 21])
def test_a_run_begins_as_many_trainings_as_its_budget(budget: int, tmp_path: Path) -> None:
    """Groups have eight points and packs up to eight; the last two trainings confirm a point."""
    plan = adaptive_plan("tpe", ask_size=8, confirm=1, num_points=20)
    ledger = Ledger(str(tmp_path), "s")
    source = start_source(plan, ledger, partial(pack_singly, size=8), budget)
    assert take_all(source, ledger) == budget
    assert source.has_reached_budget
    assert len(rows(ledger)) == budget
    search(plan, tmp_path, 0, rate=0.0)
    assert len(rows(ledger)) == 22


def test_points_to_try_first_come_first(tmp_path: Path) -> None:
    first = [{"weight_decay": 0.5, "noise_std": x / 8} for x in range(4)]
    asks, _ = search(adaptive_plan("tpe", enqueue=first), tmp_path, 0, rate=0.0)
    assert [p for ask in asks for p in ask.proposals][:4] == first
    assert len(asks[1].proposals) == 3


def test_confirmed_points_count_by_fresh_seeds_alone(tmp_path: Path) -> None:
    plan, ledger = adaptive_plan("tpe"), Ledger(str(tmp_path), "s")
    write_manifest(ledger, create_manifest(plan, "s", command="", tracking_uri=""))
    asks, _ = search(plan, tmp_path, 0, rate=0.0)
    result = open_result("s", str(tmp_path))
    points = result.points.set_index("point_id")
    confirmed = {*asks[-1].point_ids}
    assert result.confirmed == confirmed
    assert {*points.index[points["phase"] == "confirming"]} == confirmed
    assert {*result.front()["point_id"]} <= confirmed
    seeds = result.replicates.groupby("point_id")["seed"].agg(set)
    assert all(
        seeds[point] == ({*plan.confirming_seeds} if point in confirmed else {5})
        for point in seeds.index
    )
    assert result.pending == 0
    (remark,) = front_remarks(result, result.front(all=True))
    assert remark.startswith("Two replicates are too few"), "both ends are confirmed"


def test_a_damaged_ask_is_named(tmp_path: Path) -> None:
    search(adaptive_plan("tpe"), tmp_path, 0, rate=0.0)
    damaged = tmp_path / "s" / "asks" / "00002.json"
    damaged.write_text("{")
    with pytest.raises(InputError, match=r"00002\.json cannot be used"):
        read_asks(Ledger(str(tmp_path), "s"))
    content = json.loads((damaged.parent / "00001.json").read_text())
    changes = {"told must be at most 2": {"told": 3}, "without an id": {"refusals": {"1": "no"}}}
    for problem, change in changes.items():
        damaged.write_text(json.dumps({**content, **change}))
        with pytest.raises(InputError, match=rf"(?s)00002\.json cannot be used: .*{problem}"):
            read_asks(Ledger(str(tmp_path), "s"))
    damaged.unlink()
    with pytest.raises(InputError, match=r"00002\.json is missing"):
        read_asks(Ledger(str(tmp_path), "s"))


def test_a_changed_ask_is_refused(tmp_path: Path) -> None:
    """Storage is not trusted: it must not set fields that the study does not sweep."""
    plan = adaptive_plan("tpe")
    asks, _ = search(plan, tmp_path, 0, rate=0.0)
    first, *others = asks[0].proposals
    changes = [{"dataset": "/etc/passwd"}, {"noise_std": 7.0}, {"noise_std": True}]
    for proposal in [*({**first, **change} for change in changes), {"noise_std": 0.5}]:
        changed = asks[0].model_copy(update={"proposals": (proposal, *others)})
        with pytest.raises(InputError, match="a value of the search space"):
            plan.grow(changed)
    assert {point.point_id for point in plan.grow(asks[0]).points} == {*asks[0].point_ids}


def test_a_refused_proposal_counts_as_a_failed_one(tmp_path: Path) -> None:
    """Noise and epsilon exclude each other, but each value is valid beside the other's first."""
    space = {"epsilon": {"choice": [None, 1.0]}, "noise_std": {"choice": [0.0, 0.25, 0.5]}}
    plan = adaptive_plan("tpe", space=space, fixed={**FIXED, "weight_decay": 0.01})
    asks, _ = search(plan, tmp_path, 0, rate=0.0)
    ledger = Ledger(str(tmp_path), "s")
    refused = [(ask.proposals[i], text) for ask in asks for i, text in ask.refusals.items()]
    assert refused
    for proposal, reason in refused:
        assert proposal["epsilon"] == 1.0
        noise = proposal["noise_std"]
        assert reason.startswith(f"noise_std: got {noise}; expected 0 with epsilon")
    whole = add_recorded_asks(plan, ledger)
    searching = [(ask, i) for ask in asks[:-1] for i in range(len(ask.seeds))]
    assert len(searching) == 18
    states = [ask_results(whole, ledger, ask)[i].point.status for ask, i in searching]
    assert states.count("failed") == len(refused)
    assert len(rows(ledger)) == 18 - len(refused) + 2 * len(asks[-1].proposals)
    write_manifest(ledger, create_manifest(plan, "s", command="", tracking_uri=""))
    assert open_result("s", str(tmp_path)).pending == 0


@pytest.mark.parametrize("changes", [{}, {"num_points": 45, "front_tolerance": 0.028}])
def test_raising_confirm_alone_confirms_more_points(
    changes: dict[str, object], tmp_path: Path
) -> None:
    """A tolerance is met before the last results are known, and perhaps not met by them."""
    first, _ = search(adaptive_plan("frontier", **changes), tmp_path, 0, rate=0.0)
    assert len(first[-1].proposals) == 3
    plan, ledger = adaptive_plan("frontier", **changes, confirm=6), Ledger(str(tmp_path), "s")
    known = add_recorded_asks(plan, ledger)
    assert (known.size, known.trainings) == (len(known.points), len(rows(ledger)) + 6 * 2)
    asks, _ = search(plan, tmp_path, 0, rate=0.0)
    assert asks[:-1] == first
    assert (asks[-1].kind, len(asks[-1].proposals)) == ("confirm", 6)
    again, _ = search(plan, tmp_path, 0, rate=0.0)
    assert again == asks
    assert add_recorded_asks(plan, ledger).trainings == len(rows(ledger)) <= known.trainings


def test_an_extended_search_plans_what_is_there_the_rest_and_another_confirmation(
    tmp_path: Path,
) -> None:
    old, ledger = adaptive_plan("tpe"), Ledger(str(tmp_path), "s")
    search(old, tmp_path, 0, rate=0.0)
    manifest = create_manifest(old, "s", command="", tracking_uri="")
    write_manifest(ledger, manifest)
    plan = add_recorded_asks(plan_extension(manifest, num_points=24), ledger)
    assert (plan.size, plan.trainings) == (24, 18 + 3 * 2 + 6 + 3 * 2)
    write_manifest(
        ledger, prepare_manifest(ledger, plan, command="", tracking_uri="", extends=True)
    )
    recorded = read_manifest(ledger).plan
    assert (recorded.points, recorded.replicates) == (24, 36)
    assert (open_result("s", str(tmp_path)).size, open_result("s", str(tmp_path)).pending) == (
        24,
        6,
    )
    search(plan_extension(manifest, num_points=24), tmp_path, 0, rate=0.0)
    assert len(rows(ledger)) == add_recorded_asks(plan, ledger).trainings <= 36
    assert open_result("s", str(tmp_path)).pending == 0


def result_of(plan: Plan, storage: Path) -> Result:
    ledger = Ledger(str(storage), "s")
    write_manifest(ledger, create_manifest(plan, "s", command="", tracking_uri=""))
    return open_result("s", str(storage))


def remarks_on(plan: Plan, storage: Path) -> list[str]:
    result = result_of(plan, storage)
    return front_remarks(result, result.front(all=True))


def constrained(plan: Plan, **bounds: float) -> Plan:
    limits = {UTILITY: Bounds(**bounds)}
    return replace(plan, study=plan.study.model_copy(update={"constraints": limits}))


def shown_front(plan: Plan, storage: Path) -> int:
    ledger, study = Ledger(str(storage), "s"), plan.study
    return SweepCounter(ledger, plan.seed_rule, plan.objectives, study.constraints).read().front


def test_a_front_says_that_it_is_not_confirmed_yet(tmp_path: Path) -> None:
    plan = adaptive_plan("tpe")
    ledger = Ledger(str(tmp_path), "s")
    assert not search_until_kill(plan, ledger, random.Random(0), rate=0.15)
    (remark,) = remarks_on(plan, tmp_path)
    assert remark.startswith("No point is confirmed yet")
    page = render_page([ReportContents(open_result("s", str(tmp_path)))])
    assert page.count("No point is confirmed yet") == 1
    assert "configuration that the search tried, most of them with one seed" in page


@pytest.mark.parametrize("confirm", [0, 3])
def test_a_front_that_no_point_meets_the_constraints_of_says_so(
    confirm: int, tmp_path: Path
) -> None:
    plan = adaptive_plan("tpe", confirm=confirm)
    search(plan, tmp_path, 0, rate=0.0)
    limited = constrained(plan, at_least=5.0)
    (remark,) = remarks_on(limited, tmp_path)
    result = result_of(limited, tmp_path)
    reported = result.reported_points[UTILITY].dropna()
    kind = "confirmed" if confirm else "finished"
    assert remark.startswith(f"No front: none of {len(reported)} {kind} points meets the constrai")
    ends = f"{reported.min():.4g} to {reported.max():.4g}"
    assert remark.endswith(f"test accuracy must be >= 5 and is {ends}.")
    assert sum(count_exclusions(result).values()) == len(result.points)
    assert shown_front(plan, tmp_path) > shown_front(limited, tmp_path) == 0


def test_the_front_that_progress_shows_is_that_of_the_result(tmp_path: Path) -> None:
    plan = adaptive_plan("tpe")
    search(plan, tmp_path, 0, rate=0.0)
    for limit in (-5.0, 0.9):
        limited = constrained(plan, at_least=limit)
        front = result_of(limited, tmp_path).front()
        assert shown_front(limited, tmp_path) == len(front)
    unconfirmed = replace(plan.seed_rule, confirming=frozenset({99}))
    ledger = Ledger(str(tmp_path), "s")
    assert SweepCounter(ledger, unconfirmed, plan.objectives).read().front > 3


def test_exclusions_count_each_point_once(tmp_path: Path) -> None:
    plan = adaptive_plan("tpe", confirm=0, num_points=40)
    search(plan, tmp_path, 0, rate=0.0)
    result = result_of(constrained(plan, at_least=0.9), tmp_path)
    excluded = count_exclusions(result)
    failed, finished = result.counts["failed"], result.points["status"] == "finished"
    assert excluded["failed"] == failed > 0
    low = (result.points.loc[finished, UTILITY] < 0.9).sum()
    assert excluded["outside the study's constraints"] == low > 0
    assert sum(excluded.values()) == failed + low


def test_two_searches_are_compared_by_their_confirmed_points(tmp_path: Path) -> None:
    results = []
    for name, algorithm in (("a", "tpe"), ("b", "nsga2")):
        plan, ledger = adaptive_plan(algorithm), Ledger(str(tmp_path), name)
        search_until_kill(plan, ledger, random.Random(0), rate=0.0)
        write_manifest(ledger, create_manifest(plan, name, command="", tracking_uri=""))
        results.append(open_result(name, str(tmp_path)))
    compared = compare_sweeps(results)
    for result, sweep in zip(results, compared.sweeps, strict=True):
        assert (sweep.points, sweep.replicates) == (len(result.confirmed), 2)
        assert sweep.on_front == len(result.front())
    assert {*compared.front["phase"]} == {"confirming"}


def test_a_search_ends_once_the_front_is_known(tmp_path: Path) -> None:
    changes = {"num_points": 90, "front_tolerance": 0.2}
    plan = adaptive_plan("frontier", **changes)
    asks, _ = search(plan, tmp_path / "whole", 0, rate=0.0)
    killed, kills = search(plan, tmp_path / "killed", 1, rate=0.4)
    assert kills >= 10
    assert killed == asks
    assert 4 <= len(asks) < 30
    assert asks[-1].kind == "confirm"
    again, _ = search(plan, tmp_path / "whole", 0, rate=0.0)
    assert again == asks
    searches = sum(len(ask.seeds) for ask in asks)
    remarks = remarks_on(plan, tmp_path / "whole")
    ended = f"The search ended after {searches} of 90 trainings"
    assert sum(remark.startswith(ended) for remark in remarks) == 1


def test_points_to_try_first_are_tried_even_if_the_front_is_known(tmp_path: Path) -> None:
    old, ledger = adaptive_plan("tpe"), Ledger(str(tmp_path), "s")
    search(old, tmp_path, 0, rate=0.0)
    for file in (tmp_path / "s" / "asks").iterdir():
        file.unlink()
    first = [{"weight_decay": 0.5, "noise_std": x / 8} for x in range(4)]
    plan = adaptive_plan("frontier", enqueue=first, front_tolerance=0.99)
    write_ask(ledger, 0, plan.reuse(finished_points(ledger)))
    again, _ = search(plan, tmp_path, 0, rate=0.0)
    assert [ask.kind for ask in again] == ["reuse", "search", "search", "confirm"]
    assert [*again[1].proposals, *again[2].proposals][:4] == first


WIDE = {"weight_decay": {"loguniform": [1e-4, 1]}, "noise_std": {"uniform": [0, 0.5]}}


def write_reusing_manifest(plan: Plan, ledger: Ledger, source: Ledger) -> None:
    manifest = create_manifest(plan, "s", command="", tracking_uri="")
    write_manifest(ledger, record_sources(manifest, [source]))


def test_reused_trainings_are_the_first_that_a_search_knows(tmp_path: Path) -> None:
    """Points outside the space, without the first seed or with confirming seeds are left out."""
    old, ledger = adaptive_plan("tpe"), Ledger(str(tmp_path), "s")
    search(old, tmp_path / "old", 0, rate=0.0)
    plan, source = adaptive_plan("frontier", space=WIDE), Ledger(str(tmp_path / "old"), "s")
    write_reusing_manifest(plan, ledger, source)
    copy_reused(plan, ledger, [source])
    (ask,) = read_asks(ledger)
    points = list(finished_points(source))
    assert {*ask.point_ids} == {p.point_id for p in points if p.config["noise_std"] <= 0.5}
    assert {*ask.seeds} == {5}
    before = len(rows(ledger))
    assert before == len(ask.seeds)
    asks, _ = search(plan, tmp_path, 0, rate=0.0)
    assert [each.kind for each in asks] == ["reuse", *["search"] * 6, "confirm"]
    assert [each.told for each in asks] == [0, 1, 1, 2, 3, 4, 5, 7]
    keys = rows(ledger)
    assert len(keys) == len(set(keys)) == before + 18 + 2 * 3
    other = adaptive_plan(
        "frontier",
        space=WIDE,
        fixed={"dataset": "digits", "model": "mlp", "train_size": 50, "seed": 5},
    )
    assert not other.reuse(points).proposals


def test_a_reuse_that_was_killed_is_completed_by_the_next_run(tmp_path: Path) -> None:
    plan, ledger = adaptive_plan("tpe"), Ledger(str(tmp_path), "s")
    search(plan, tmp_path / "old", 0, rate=0.0)
    source = Ledger(str(tmp_path / "old"), "s")
    source.write_spec({})
    packs = tmp_path / "s" / "ledger"
    write_reusing_manifest(plan, ledger, source)
    packs.write_text("a file, so that no pack can be written")
    with pytest.raises(OSError, match="ledger"):
        copy_reused(plan, ledger, [source])
    packs.unlink()
    (ask,) = read_asks(ledger)
    result = open_result("s", str(tmp_path))
    assert (result.pending, result.size) == (len(ask.seeds) + 18, len(ask.seeds) + 18)
    sources = recorded_sources(read_manifest(ledger), ledger)
    copy_reused(add_recorded_asks(plan, ledger), ledger, sources)
    assert read_asks(ledger) == [ask]
    assert {*rows(ledger)} == {*zip(ask.point_ids, ask.seeds, strict=True)}
    assert open_result("s", str(tmp_path)).pending == 18
    known = plan.grow(ask)
    assert (known.size, known.trainings) == (len(ask.seeds) + 18, len(ask.seeds) + 18 + 2 * 3)


def test_a_search_that_has_begun_takes_what_it_asks_for_from_other_sweeps(tmp_path: Path) -> None:
    """The same search has trained everything, with confirming seeds too."""
    plan, ledger = adaptive_plan("tpe", space=WIDE), Ledger(str(tmp_path), "s")
    expected, _ = search(plan, tmp_path / "old", 0, rate=0.0)
    source = Ledger(str(tmp_path / "old"), "s")
    write_reusing_manifest(plan, ledger, source)
    write_ask(ledger, 0, expected[0])
    _, reused = copy_reused(add_recorded_asks(plan, ledger), ledger, [source])
    assert read_asks(ledger) == expected[:1]
    assert {*rows(ledger)} == {*zip(expected[0].point_ids, expected[0].seeds, strict=True)}

    packs = SearchedPacks(
        plan.grow(expected[0]), ledger, [], pack_singly, lambda plan, packs: None, reused.copy
    )
    assert packs.take() is None
    assert packs.is_finished
    assert read_asks(ledger) == expected
    assert {*rows(ledger)} == {*rows(source)}


@pytest.mark.parametrize(
    ("value", "listed"), [(0.0, 0), (2.0, 2), (True, True), (0.5, 0.5), (False, False)]
)
def test_a_number_is_equal_to_a_listed_one_of_another_type(value: Scalar, listed: Scalar) -> None:
    axes = [Axis(grid=(True, 0, 1, 2)), Axis(choice=(0, 1, 2))]
    for axis in axes:
        found = axis.equal_value(value)
        assert (type(found), found) == (type(listed), listed)
    assert type(Axis(range=(0, 4)).equal_value(2.0)) is int
    assert Axis(uniform=(0, 1)).equal_value(0.5) == 0.5


def test_whole_numbers_in_the_grid_of_a_real_field_are_reused(tmp_path: Path) -> None:
    space = {"weight_decay": {"choice": [0, 1]}, "noise_std": {"uniform": [0, 1]}}
    plan = adaptive_plan("tpe", space=space)
    search(plan, tmp_path, 0, rate=0.0)
    points = list(finished_points(Ledger(str(tmp_path), "s")))
    assert {p.point_id for p in points} == {*plan.reuse(points).point_ids}


# Writes the names of its modules at its end.
_LISTS_MODULES = """
import atexit, sys
from pathlib import Path
from sweeps.cli.main import main

atexit.register(lambda: Path("modules").write_text(" ".join(sys.modules)))
main()
"""


@pytest.mark.ray
@pytest.mark.parametrize(("kills", "count"), [(1, 6), pytest.param(20, 12, marks=pytest.mark.slow)])
def test_a_killed_search_gives_the_same_front(
    kills: int, count: int, local_ray: Connection, tmp_path: Path
) -> None:
    """The reference runs in this process; the last driver has no reader and loads no torch."""
    changes = [
        "space={weight_decay: {loguniform: [0.001, 1]}}",
        f"search={{algorithm: tpe, num_points: {count}, ask_size: 3, confirm: 1}}",
        "resources={pack: 3, concurrency: 1}",
    ]
    uri = new_store(tmp_path)
    study = study_file(tmp_path)
    whole = sweeps.run(study, changes, name="whole", storage=str(tmp_path), tracking_uri=uri)
    folder, chance = tmp_path / "killed", random.Random(kills)
    settings = [word for change in changes for word in ("--set", change)]
    command = ["run", str(study), "--name", "killed", *settings]
    asks = 1

    def is_killable(driver: subprocess.Popen[bytes]) -> bool:
        return driver.poll() is not None or len(list(folder.glob("asks/*.json"))) >= asks

    directories: list[Path] = []
    for _ in range(kills):
        driver = drive(tmp_path, uri, command)
        wait_until(partial(is_killable, driver))
        if driver.poll() is None:
            directories += kill_with_descendants_watched(driver)
        asks = min(asks + chance.randrange(2), 5)
        command = ["resume", "killed"]
    assert directories
    reader, writer = os.pipe()
    os.close(reader)
    last = drive(tmp_path, uri, ["resume", "killed"], writer, _LISTS_MODULES)
    os.close(writer)
    assert last.wait(600) == 0
    modules = (tmp_path / "modules").read_text().split()
    assert "sweeps.engine.tune_backend" in modules
    assert "torch" not in modules
    ledgers = [Ledger(str(tmp_path), name) for name in ("whole", "killed")]
    assert read_asks(ledgers[0]) == read_asks(ledgers[1])
    assert sorted(rows(ledgers[1])) == sorted(rows(ledgers[0]))
    result = open_result("killed", str(tmp_path))
    assert {*result.front()["point_id"]} == {*whole.front()["point_id"]}
    assert tracking.compare(result.tradeoff_points, "killed", uri) == []
