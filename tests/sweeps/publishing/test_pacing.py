"""Publishing takes no more than its share of a machine that trains."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.publishing.pacing import Pace, pace_beside_training


class Clock:
    """Says what it is set to."""

    def __init__(self) -> None:
        self.now = 1e6

    def __call__(self) -> float:
        return self.now


seconds = st.floats(0.001, 30.0)


@given(st.floats(0.01, 1.0), st.floats(0.0, 5.0), st.lists(st.tuples(seconds, seconds)))
def test_work_takes_its_share_and_what_was_saved(
    share: float, saved: float, stretches: list[tuple[float, float]]
) -> None:
    """And of the last stretch, which is never broken off, what it takes longer."""
    clock = Clock()
    pace, worked, last = Pace(share, saved, clock), 0.0, 0.0
    for work, rest in stretches:
        clock.now += rest
        if pace.wait() == 0:
            with pace:
                clock.now += work
            worked, last = worked + work, work
        elapsed = clock.now - 1e6
        assert worked <= saved + share * elapsed + last + 1e-6


@given(st.floats(0.01, 0.9), seconds)
def test_after_the_wait_there_is_time_to_work(share: float, work: float) -> None:
    clock = Clock()
    pace = Pace(share, 0.0, clock)
    with pace:
        clock.now += work
        assert pace.wait() > 0
    due = pace.wait()
    assert due == pytest.approx(work * (1 - share) / share)
    clock.now += due + 1e-6
    assert pace.wait() == 0


def test_all_of_the_time_is_never_used_up() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    with pace:
        clock.now += 1e4
        assert pace.wait() == 0


def _is_paced(uri: str) -> bool:
    pace = pace_beside_training(uri)
    pace._clock = Clock()
    with pace:
        pace._clock.now += 60
    return pace.wait() > 0


@pytest.mark.parametrize(
    "uri", ["http://127.0.0.1:5000", "http://u:p@localhost:80/x", "postgresql:///runs?host=/run"]
)
def test_a_server_on_this_machine_is_not_pressed(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert _is_paced(uri)


@pytest.mark.parametrize("uri", ["sqlite:////tmp/mlflow.db", "http://192.0.2.1:5000"])
def test_what_costs_this_machine_nothing_goes_on(uri: str) -> None:
    """The address is reserved for documentation (RFC 5737)."""
    assert not _is_paced(uri)


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this platform has no SCHED_IDLE")
@pytest.mark.parametrize("refused", [False, True])
def test_only_the_thread_that_yields_runs_when_idle_alone(refused: bool) -> None:
    """Or at the lowest priority, where the policy is refused."""
    code = f"""
import os, threading
from sweeps.publishing.pacing import yield_the_machine

def refuse(*_):
    raise PermissionError

def standing():
    return os.sched_getscheduler(0) == os.SCHED_IDLE, os.getpriority(os.PRIO_PROCESS, 0)

def aside():
    yield_the_machine()
    found.append(standing())

if {refused}:
    os.sched_setscheduler = refuse
found, before = [], standing()
thread = threading.Thread(target=aside)
thread.start()
thread.join()
assert found == [(False, 19) if {refused} else (True, before[1])], found
assert standing() == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere niceness is of the whole process")
def test_a_thread_steps_back_alone() -> None:
    code = """
import os, threading
from sweeps.publishing.pacing import step_back

def aside():
    step_back()
    found.append(os.getpriority(os.PRIO_PROCESS, 0))

found, before = [], os.getpriority(os.PRIO_PROCESS, 0)
thread = threading.Thread(target=aside)
thread.start()
thread.join()
assert found == [19] and os.getpriority(os.PRIO_PROCESS, 0) == before, (found, before)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
