"""Progress of a sweep: counts that add up, and what a user reads of it."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console, Group
from rich.text import Text
from small_sweeps import small_plan

from cluster.connection import Machine
from privnets.points import Replicate, TradeoffPoint
from sweeps.engine import display
from sweeps.engine import progress as progress_module
from sweeps.engine.display import describe, describe_points, describe_training, display_progress
from sweeps.engine.progress import PlannedWork, ProgressTracker, SweepCounter
from sweeps.planning.packing import Pack
from sweeps.planning.plan import Plan, PlannedReplicate, set_budget
from sweeps.store.ledger import Ledger
from sweeps.store.status import Outage, ResourceUse, SweepCounts, SweepStatus


class Clock:
    """Monotonic clock that a test sets."""

    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (progress_module, display):
        monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Four points of two replicates."""
    return small_plan(tmp_path_factory.mktemp("study"))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path), "sweep")


@pytest.fixture
def tracker(plan: Plan, ledger: Ledger) -> ProgressTracker:
    return make_tracker(plan, ledger)


def make_tracker(plan: Plan, ledger: Ledger) -> ProgressTracker:
    counter = SweepCounter(ledger, plan.seed_rule, plan.objectives)
    return ProgressTracker(counter, work=PlannedWork.from_plan(plan))


def pack_of(name: str) -> Pack:
    """A pack of one replicate."""
    config: Any = None
    return Pack(name, "membership", (PlannedReplicate(f"point of {name}", 0, config),))


def expect(tracker: ProgressTracker, costs: dict[str, float]) -> None:
    tracker.expect([pack_of(name) for name in costs], costs)


def write_point(plan: Plan, ledger: Ledger, index: int, *, flag: float = 0.0) -> None:
    planned = plan.points[index]
    metrics = dict.fromkeys(plan.objectives, float(index))
    metrics["flag/attack_beats_bound"] = flag
    replicates = tuple(Replicate(seed, metrics, finished_at=1.0) for seed in plan.seeds)
    point = TradeoffPoint(planned.point_id, "membership", planned.config.resolved(), replicates)
    ledger.write_pack(f"written-{index}", [point])


def train_on(tracker: ProgressTracker, nodes: Sequence[str]) -> None:
    """Puts a pack in training on each node, half of it done; one more pack is pending."""
    expect(tracker, dict.fromkeys([*nodes, "next"], 1.0))
    list_machines(tracker, nodes)
    for node in nodes:
        tracker.start_pack(node)
        tracker.advance_pack(node, 0.5, node)


def list_machines(tracker: ProgressTracker, nodes: Sequence[str]) -> None:
    tracker.machines = lambda: [Machine(1, 0, host="there", node=node) for node in nodes]
    tracker._update_machines(at_once=True)


def resource_use(tracker: ProgressTracker) -> ResourceUse:
    use = tracker.snapshot().use
    assert use is not None
    return use


def test_points_of_failed_packs_count_as_failed(tracker: ProgressTracker) -> None:
    expect(tracker, {"one": 1.0, "two": 1.0})
    tracker.fail_pack(pack_of("one"))
    now = tracker.snapshot()
    assert (now.points, now.counts.complete, now.counts.failed) == (4, 0, 1)


def test_flagged_points_are_not_on_the_front_so_far(plan: Plan, ledger: Ledger) -> None:
    write_point(plan, ledger, 1)
    write_point(plan, ledger, 0, flag=1.0)
    counts = SweepCounter(ledger, plan.seed_rule, plan.objectives).read()
    assert (counts.complete, counts.front) == (2, 1)
    assert set(counts.best.values()) == {1.0}


def test_the_share_weighs_packs_by_their_cost(tracker: ProgressTracker) -> None:
    expect(tracker, {"long": 30.0, "short": 10.0})
    tracker.advance_pack("long", 0.5, "node")
    tracker.advance_pack("short", 1.0, "node")
    assert tracker.snapshot().share == pytest.approx(25 / 40)


def test_live_values_are_means_over_the_packs_in_training(tracker: ProgressTracker) -> None:
    expect(tracker, dict.fromkeys("abc", 1.0))
    for pack, share, loss in (("a", 0.5, 1.0), ("b", 0.1, 3.0), ("c", 1.0, 9.0)):
        tracker.advance_pack(pack, share, "node", {"loss": loss, "undefined": math.nan})
    assert tracker.snapshot().live == {"loss": 2.0}


def test_packs_of_a_later_round_add_to_the_work(tracker: ProgressTracker) -> None:
    expect(tracker, {"first": 10.0})
    tracker.advance_pack("first", 1.0, "node")
    expect(tracker, {"second": 30.0})
    assert tracker.snapshot().share == pytest.approx(1 / 4)


@pytest.mark.parametrize(("budget", "left"), [(3, 120.0), ("90s", 30.0), (9, 180.0), ("1h", 180.0)])
def test_the_time_left_ends_with_the_budget_of_the_run(
    budget: int | str, left: float, plan: Plan, ledger: Ledger, clock: Clock
) -> None:
    """One of four trainings takes a minute."""
    limited = replace(plan, study=set_budget(plan.study, budget))
    tracker = make_tracker(limited, ledger)
    expect(tracker, dict.fromkeys("abcd", 1.0))
    clock.now += 60.0
    tracker.advance_pack("a", 1.0, "node")
    assert tracker.snapshot().eta == pytest.approx(left)
    assert tracker.snapshot().waiting is None
    clock.now += 40.0
    tracker.advance_pack("b", 0.5, "node")
    now = tracker.snapshot()
    spent = (None, "the budget is spent: the last packs end")
    assert ((now.eta, now.waiting) == spent) == (budget == "90s")


def test_a_pack_is_in_training_from_its_start_until_its_node_is_gone(
    tracker: ProgressTracker,
) -> None:
    train_on(tracker, ["a", "b"])
    tracker.start_pack("next")
    assert (resource_use(tracker).packs, resource_use(tracker).busy_nodes) == (3, 2)
    list_machines(tracker, ["b"])
    use = resource_use(tracker)
    assert (use.packs, use.busy_nodes, use.busy_cpus) == (2, 1, 2)


def test_a_pack_on_a_node_that_has_just_joined_is_in_training(tracker: ProgressTracker) -> None:
    train_on(tracker, ["a"])
    tracker.advance_pack("next", 0.1, "new")
    assert resource_use(tracker).packs == 2


@pytest.mark.parametrize(
    ("alive", "reason", "message"),
    [
        ([], "any", "node there was lost: pack a continues from"),
        (["a"], "its node has died", "node there was lost: pack a continues from"),
        (
            ["a"],
            "Task was killed due to the node running low on memory: memory running low",
            "a worker on there was lost (its node ran out of memory): pack a continues from",
        ),
        (
            ["a"],
            "DataError: node b: no data",
            "a worker on there was lost (DataError: node b: no data): pack a continues from",
        ),
        (["a"], "ray.exceptions.RayActorError: raw", "a worker on there was lost: pack a"),
    ],
)
def test_a_lost_worker_is_reported_once_and_at_once(
    alive: list[str],
    reason: str,
    message: str,
    tracker: ProgressTracker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train_on(tracker, ["a"])
    with display_progress() as show:
        show(tracker.snapshot())
        list_machines(tracker, [*alive, "b"])
        tracker.lose_pack("a", reason)
        show(tracker.snapshot())
        show(tracker.snapshot())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Warning: {message}")
    assert resource_use(tracker).packs == 0


def test_packs_without_a_cost_end_at_once_also_with_a_budget(plan: Plan, ledger: Ledger) -> None:
    limited = replace(plan, study=set_budget(plan.study, 3))
    tracker = make_tracker(limited, ledger)
    expect(tracker, {"a": 0.0})
    assert tracker.snapshot().eta == 0.0


def test_a_sweep_that_waits_for_resources_says_so_and_estimates_no_time(
    tracker: ProgressTracker, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    train_on(tracker, ["a"])
    clock.now += 60.0
    eta = tracker.snapshot().eta
    tracker.set_waiting(True)
    assert (tracker.snapshot().waiting, tracker.snapshot().eta) == (None, None)
    with display_progress() as show:
        show(tracker.snapshot())
        clock.now += 20.0
        show(tracker.snapshot())
    assert capsys.readouterr().err.startswith("25% trained, waiting for 1 CPU to become free")
    tracker.set_waiting(False)
    assert (tracker.snapshot().waiting, tracker.snapshot().eta) == (None, eta)


def test_a_display_that_fails_is_recorded_once_and_not_called_again(
    tracker: ProgressTracker,
) -> None:
    calls: list[SweepStatus] = []

    def broken(progress: SweepStatus) -> None:
        calls.append(progress)
        raise BrokenPipeError(32, "Broken pipe")

    tracker.displays.append(broken)
    for _ in range(3):
        tracker.show()
    assert len(calls) == 1
    (problem,) = tracker.problems
    assert "Broken pipe" in problem


def test_a_ledger_that_cannot_be_listed_for_a_while_is_recorded_and_read_later(
    tracker: ProgressTracker, ledger: Ledger
) -> None:
    states: list[SweepStatus] = []
    tracker.displays.append(states.append)
    folder = Path(ledger.directory.path)
    folder.mkdir()
    (folder / "ledger").write_bytes(b"")  # a file in the folder's place
    tracker.show()
    tracker.show()
    assert (len(states), len(tracker.problems)) == (0, 1)
    (folder / "ledger").unlink()
    tracker.show()
    assert (len(states), len(tracker.problems)) == (1, 1)


_NOW = datetime.now(UTC)
_STATE = SweepStatus(updated_at=_NOW, points=64, share=0.5, eta=7.0)


def state_with(**changes: object) -> SweepStatus:
    return _STATE.model_copy(update=changes)


def test_without_a_terminal_a_line_appears_now_and_then(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = SweepCounts(complete=6, failed=1, front=3, best={"utility/accuracy": 0.9})
    state = SweepStatus(updated_at=_NOW, points=24, counts=counts, share=0.25, rate=12.0, eta=90.0)
    with display_progress() as show:
        for _ in range(250):
            clock.now += 0.1
            show(state)
    line = (
        "25% trained, about 90 seconds left, 6 of 24 points done, 1 failed, "
        "12 trainings per minute, front of 3 (best accuracy 0.9)"
    )
    assert capsys.readouterr().err.splitlines() == [line, line]


def test_preparations_are_shown_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with display_progress() as show:
        for doing in (None, "measuring pack sizes", "measuring pack sizes", None):
            show(state_with(activity=doing))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("measuring pack sizes, 0 of 64 points done")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_shows_three_lines_however_narrow_it_is(width: int) -> None:
    best = dict.fromkeys(("privacy/" + "x" * 99, "y"), 0.1)
    counts = SweepCounts(complete=60, failed=3, front=9, best=best)
    states = [
        state_with(activity="measuring pack sizes"),
        _STATE,
        state_with(counts=counts, rate=12.5, eta=7000.0),
    ]
    for state in states:
        output = io.StringIO()
        console = Console(file=output, width=width, force_terminal=True)
        console.print(Group(*display.render(state)))
        lines = Text.from_ansi(output.getvalue()).plain.splitlines()
        assert len(lines) == 3
        assert max(map(cell_len, lines)) <= width


def test_the_first_signal_is_answered_at_once_while_the_ledger_is_read(
    tracker: ProgressTracker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_reading, may_end = threading.Event(), threading.Event()

    def read_slowly() -> SweepCounts:
        is_reading.set()
        may_end.wait(10)
        return SweepCounts()

    monkeypatch.setattr(tracker.counter, "read", read_slowly)
    with display_progress() as show, ThreadPoolExecutor(1) as pool:
        tracker.displays.append(show)
        update = pool.submit(tracker.show)
        assert is_reading.wait(10)
        tracker.announce_stop()
        (line,) = capsys.readouterr().err.splitlines()
        assert not update.done()
        may_end.set()
        update.result()
        tracker.activity = "something else"
        tracker.show()
    assert line.startswith(
        "stopping: finishing checkpoints, up to 20 s; press Ctrl-C again to stop at once"
    )
    assert capsys.readouterr().err == ""


def test_a_quiet_display_prints_warnings_and_the_stop_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with display_progress(quiet=True) as show:
        for changes in (
            {},
            {"warning_count": 1, "last_warning": "a node"},
            {"activity": display.STOPPING},
        ):
            show(state_with(**changes))
    assert capsys.readouterr().err.splitlines() == ["Warning: a node", display.STOPPING]


def test_an_outage_of_mlflow_and_its_end_are_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with display_progress(quiet=True) as show:
        for waiting in (0, 3):
            show(state_with(outage=Outage(1e9, "no answer", waiting)))
        show(state_with())
    warning, end = capsys.readouterr().err.splitlines()
    assert warning.startswith("Warning: no points have reached MLflow since 2001-09-0")
    assert warning.endswith(" (0 wait, training continues): no answer")
    assert end == "points reach MLflow again"


@pytest.mark.parametrize(
    ("share", "eta", "text"),
    [
        (0.9, 7.2, "90% trained, about 7 seconds left"),
        (0.5, 113.0, "50% trained, about 110 seconds left"),
        (1.0, 0.0, "all trained, the report and MLflow come next"),
    ],
)
def test_time_left_is_rounded(share: float, eta: float, text: str) -> None:
    assert describe_training(state_with(share=share, eta=eta)) == text


def test_points_are_counted_beside_packs_in_training_and_replicates() -> None:
    use = ResourceUse(packs=1, nodes=1, busy_nodes=1, cpus=2, busy_cpus=1, gpus=0, busy_gpus=0)
    assert describe(state_with(use=use)) == (
        "50% trained, about 7 seconds left, 0 of 64 points done, 1 pack running"
    )
    counts = SweepCounts(complete=1)
    state = SweepStatus(
        updated_at=_NOW, points=12, counts=counts, share=0.52, rate=0.1, trainings=(25, 48)
    )
    assert describe_points(state) == ("1 of 12 points done (25 of 48 trainings), 0.1 per minute")
    trained = state.model_copy(update={"share": 1.0})
    assert describe_points(trained) == "1 of 12 points done (25 of 48 trainings)"
    later = state.model_copy(update={"trained_before": 24})
    assert describe(later) == (
        "52% of this run trained, 1 of 12 points done (25 of 48 trainings, 24 at the start), "
        "0.1 per minute"
    )
    single = SweepStatus(updated_at=_NOW, points=1, trainings=(0, 1))
    assert describe_points(single) == "0 of 1 point done"
