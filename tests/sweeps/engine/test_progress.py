"""SweepProgress: counts that add up, and lines where there is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from cluster.connection import Machine
from sweeps.engine import progress
from sweeps.engine.counting import SweepCounts
from sweeps.engine.progress import ResourceUse, SweepProgress, Tally, _drawn, display_progress


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0


def test_points_of_lost_packs_count_as_failed() -> None:
    found = Tally(10, SweepCounts(complete=3, failed=1, stopped=1))
    found.begin({"p": 1.0})
    found.lose("p", {"d", "e"})
    now = found.progress()
    assert (now.points, now.done, now.failed, now.stopped) == (10, 3, 3, 1)


def test_the_share_weighs_packs_by_their_cost() -> None:
    found = Tally(10, SweepCounts())
    found.begin({"long": 30.0, "short": 10.0})
    found.advance("long", 0.5)
    found.advance("short", 1.0)
    assert found.progress().share == pytest.approx(25 / 40)


def test_rate_and_time_left_count_this_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    found = Tally(10, SweepCounts(complete=1))
    found.begin({"p": 1.0})
    assert (found.progress().rate, found.progress().eta) == (None, None)
    now = 160.0
    found.standing = SweepCounts(complete=2)
    found.advance("p", 0.25)
    assert found.progress().rate == pytest.approx(1.0)
    assert found.progress().eta == pytest.approx(180.0)


def test_without_a_terminal_a_line_appears_every_so_often(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    state = SweepProgress(24, 6, 1, 0.25, 12.0, 90.0, 3, {"utility/accuracy": 0.9})
    with display_progress() as show:
        for tick in range(250):
            now = tick / 10
            show(state)
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines
        == [
            "25% trained, about 90 seconds left, 6 of 24 points done, 1 failed, "
            "12.0 points per minute, front of 3 (best utility/accuracy 0.9)"
        ]
        * 2
    )


def test_points_that_come_with_their_pack_are_told_apart_from_what_is_trained() -> None:
    use = ResourceUse(packs=1, nodes=1, busy_nodes=1, cpus=2, busy_cpus=1, gpus=0, busy_gpus=0)
    state = SweepProgress(64, 0, 0, 0.5, None, 7.0, 0, {}, use=use)
    assert str(state) == (
        "50% trained, about 7 seconds left, 0 of 64 points done, 1 pack in training"
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_has_three_lines_that_stay_in_place_however_narrow_it_is(width: int) -> None:
    states = [
        SweepProgress(64, 0, 0, 0.0, None, None, 0, {}, doing="measuring pack sizes"),
        SweepProgress(64, 0, 0, 0.5, None, 7.0, 0, {}),
        SweepProgress(
            64, 60, 3, 0.9, 12.5, 7000.0, 9, dict.fromkeys(("privacy/" + "x" * 99, "y"), 0.1)
        ),
    ]
    for state in states:
        drawn = io.StringIO()
        console = Console(file=drawn, width=width, force_terminal=True)
        console.print(_drawn(state), end="")
        assert drawn.getvalue().count("\n") == 3
        assert max(map(cell_len, Text.from_ansi(drawn.getvalue()).plain.splitlines())) <= width


@pytest.mark.parametrize(
    ("share", "eta", "words"),
    [
        (0.9, 7.2, "90% trained, about 7 seconds left"),
        (0.5, 113.0, "50% trained, about 110 seconds left"),
        (1.0, 0.0, "all trained, the report and MLflow come next"),
    ],
)
def test_time_left_is_told_as_roughly_as_it_is_known(share: float, eta: float, words: str) -> None:
    assert SweepProgress(9, 5, 0, share, None, eta, 0, {}).training_words() == words


def test_what_is_done_before_training_is_told_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Tally(10, SweepCounts(complete=1))
    with display_progress() as show:
        show(found.progress())
        found.doing = "measuring pack sizes"
        show(found.progress())
        show(found.progress())
        found.doing = None
        show(found.progress())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("measuring pack sizes, 1 of 10 points done")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress.time, "monotonic", lambda: made.now)
    return made


def working_tally(*nodes: str) -> Tally:
    """Of a sweep with a pack in training on each node, half of it done, and one to come."""
    found = Tally(10, SweepCounts(), 40)
    found.begin(dict.fromkeys([*nodes, "next"], 1.0))
    found.work_on([Machine(1, 0, host="there", node=node) for node in nodes], 1, 0)
    for node in nodes:
        found.start(node)
        found.advance(node, 0.5, node)
    return found


def used(found: Tally) -> ResourceUse:
    use = found.progress().use
    assert use is not None
    return use


def test_a_pack_is_in_training_from_its_start_on_until_its_node_is_gone() -> None:
    found = working_tally("a", "b")
    found.start("next")
    assert (used(found).packs, used(found).busy_nodes) == (3, 2)
    found.work_on([Machine(1, 0, node="b")], 1, 0)
    assert (used(found).packs, used(found).busy_nodes, used(found).busy_cpus) == (2, 1, 2)


def test_a_pack_on_a_node_that_has_just_joined_is_in_training() -> None:
    found = working_tally("a")
    found.advance("next", 0.1, "new")
    assert used(found).packs == 2


@pytest.mark.parametrize(
    ("alive", "reason", "words"),
    [
        ([], "whatever", "node there (a) was lost: its pack goes on from"),
        (
            ["a"],
            "killed",
            "a worker was lost: its pack goes on from its last checkpoint, or anew (k",
        ),
    ],
)
def test_what_became_of_a_pack_that_is_tried_again_is_told_once_and_at_once(
    alive: list[str], reason: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = working_tally("a")
    with display_progress() as show:
        show(found.progress())
        found.work_on([Machine(1, 0, node=node) for node in [*alive, "b"]], 1, 0)
        found.drop("a", reason)
        show(found.progress())
        show(found.progress())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Warning: {words}")
    assert used(found).packs == 0


def test_a_sweep_that_waits_for_room_says_so_and_guesses_no_time(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    found = working_tally("a")
    found.lack = "waiting for 1 CPU"
    clock.now = 60.0
    eta = found.progress().eta
    found.wait(True)
    assert (found.progress().waiting, found.progress().eta) == (None, None)
    with display_progress() as show:
        show(found.progress())
        clock.now = 80.0
        show(found.progress())
    assert capsys.readouterr().err.startswith("25% trained, waiting for 1 CPU, 0 of 10 points")
    found.wait(False)
    assert (found.progress().waiting, found.progress().eta) == (None, eta)


def test_nothing_is_done_before_it_is_known_what_there_is_to_do() -> None:
    now = Tally(10, SweepCounts()).progress()
    assert (now.share, now.eta) == (0.0, None)


def test_trainings_are_told_beside_points_where_these_have_several() -> None:
    state = SweepProgress(12, 1, 0, 0.52, 0.1, None, 0, {}, trainings=(25, 48))
    assert state.point_words() == "1 of 12 points done (25 of 48 trainings), 0.1 points per minute"
    assert SweepProgress(1, 0, 0, 0, None, None, 0, {}, trainings=(0, 1)).point_words() == (
        "0 of 1 point done"
    )
