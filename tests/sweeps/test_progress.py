"""Progress: counts that add up, and lines where there is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from sweeps import progress
from sweeps.progress import Progress, Tally, Use, _drawn, shown
from sweeps.standing import Standing


def test_points_of_lost_packs_count_as_failed() -> None:
    found = Tally(10, Standing(complete=3, failed=1, stopped=1))
    found.begin({"p": 1.0})
    found.lose("p", {"d", "e"})
    now = found.progress()
    assert (now.points, now.done, now.failed, now.stopped) == (10, 3, 3, 1)


def test_the_share_weighs_packs_by_their_cost() -> None:
    found = Tally(10, Standing())
    found.begin({"long": 30.0, "short": 10.0})
    found.advance("long", 0.5)
    found.advance("short", 1.0)
    assert found.progress().share == pytest.approx(25 / 40)


def test_rate_and_time_left_count_this_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    found = Tally(10, Standing(complete=1))
    found.begin({"p": 1.0})
    assert (found.progress().rate, found.progress().eta) == (None, None)
    now = 160.0
    found.standing = Standing(complete=2)
    found.advance("p", 0.25)
    assert found.progress().rate == pytest.approx(1.0)
    assert found.progress().eta == pytest.approx(180.0)


def test_without_a_terminal_a_line_appears_every_so_often(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    state = Progress(24, 6, 1, 0.25, 12.0, 90.0, 3, {"utility/accuracy": 0.9})
    with shown() as show:
        for tick in range(250):
            now = tick / 10
            show(state)
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines
        == [
            "25% trained, about 90 seconds left, 6 of 24 points done, 1 failed, 12.0 per minute, "
            "front of 3 (best utility/accuracy 0.9)"
        ]
        * 2
    )


def test_points_that_come_with_their_pack_are_told_apart_from_what_is_trained() -> None:
    use = Use(packs=1, nodes=1, busy_nodes=1, cpus=2, busy_cpus=1, gpus=0, busy_gpus=0)
    state = Progress(64, 0, 0, 0.5, None, 7.0, 0, {}, use=use)
    assert str(state) == (
        "50% trained, about 7 seconds left, 0 of 64 points done, 1 pack in training"
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_has_three_lines_that_stay_in_place_however_narrow_it_is(width: int) -> None:
    states = [
        Progress(64, 0, 0, 0.0, None, None, 0, {}, doing="measuring pack sizes"),
        Progress(64, 0, 0, 0.5, None, 7.0, 0, {}),
        Progress(64, 60, 3, 0.9, 12.5, 7000.0, 9, dict.fromkeys(("privacy/" + "x" * 99, "y"), 0.1)),
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
    assert Progress(9, 5, 0, share, None, eta, 0, {}).training_words() == words


def test_what_is_done_before_training_is_told_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Tally(10, Standing(complete=1))
    with shown() as show:
        show(found.progress())
        found.doing = "measuring pack sizes"
        show(found.progress())
        show(found.progress())
        found.doing = None
        show(found.progress())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("measuring pack sizes, 1 of 10 points done")
