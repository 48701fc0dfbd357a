"""Progress: counts that add up, and lines where there is no terminal."""

from __future__ import annotations

import pytest

from sweeps import progress
from sweeps.progress import Progress, Tally, clock, shown
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
            "6/24 points, 25%, 1 failed, 12.0 points/min, 1:30 left, "
            "front of 3 (best utility/accuracy 0.9)"
        ]
        * 2
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3599.6, "1:00:00"), (90061, "25:01:01")]
)
def test_time_left_is_read_as_on_a_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


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
    assert line.startswith("1/10 points, measuring pack sizes")
