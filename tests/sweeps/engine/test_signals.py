"""Signals: the first requests an orderly stop, the second stops at once."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from sweeps.engine.signals import STOP_SIGNALS, Interrupted, catch_stop_signals

SIGNALS = STOP_SIGNALS


@pytest.fixture(autouse=True)
def _default_handlers() -> Iterator[None]:
    """Signals are not ignored, even where the test run itself ignores them (`nohup`)."""
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_recorded_and_the_block_continues(number: int) -> None:
    with catch_stop_signals() as stop:
        assert not stop.is_requested()
        os.kill(os.getpid(), number)
        assert stop.is_requested()
    assert stop.signal == number


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_breaks_off_an_interruptible_block(number: int) -> None:
    with (
        catch_stop_signals() as stop,
        pytest.raises(Interrupted) as interrupted,
        stop.interruptible(),
    ):
        os.kill(os.getpid(), number)
    assert interrupted.value.signal == number


def test_an_interruptible_block_does_not_start_after_a_signal() -> None:
    started = False
    with catch_stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted), stop.interruptible():
            started = True
    assert not started


def test_after_an_interruptible_block_the_first_signal_is_only_recorded() -> None:
    with catch_stop_signals() as stop:
        with stop.interruptible():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.is_requested()


def test_a_second_signal_breaks_off_anything_and_reports_the_first() -> None:
    with catch_stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted) as interrupted:
            os.kill(os.getpid(), signal.SIGINT)
    assert stop.is_urgent
    assert interrupted.value.signal == stop.signal == signal.SIGTERM


@pytest.mark.parametrize("number", SIGNALS)
def test_an_ignored_signal_stays_ignored(number: int) -> None:
    previous = signal.signal(number, signal.SIG_IGN)
    try:
        with catch_stop_signals() as stop:
            os.kill(os.getpid(), number)
            assert not stop.is_requested()
    finally:
        signal.signal(number, previous)


def test_previous_handlers_are_restored() -> None:
    previous = [signal.getsignal(number) for number in SIGNALS]
    with catch_stop_signals() as stop:
        assert [signal.getsignal(number) for number in SIGNALS] != previous
        assert not stop.is_requested()
    assert [signal.getsignal(number) for number in SIGNALS] == previous


def test_the_first_signal_calls_on_stop_once_in_another_thread() -> None:
    """The main thread may be inside a call of Ray, where Python handles signals late."""
    callers: queue.Queue[threading.Thread] = queue.Queue()
    with catch_stop_signals(lambda: callers.put(threading.current_thread())):
        os.kill(os.getpid(), signal.SIGTERM)
        assert callers.get(timeout=0.5) is not threading.main_thread()
    assert callers.empty()


_TWO_SIGNALS = """
import os, signal, threading
from sweeps.engine.signals import STOP_SIGNALS, Interrupted, catch_stop_signals

called = threading.Event()
try:
    with catch_stop_signals(called.set):
        os.kill(os.getpid(), signal.SIGTERM)
        called.wait()
        threading.Event().wait(0.2)  # the thread that called it goes on, or ends
        os.kill(os.getpid(), signal.SIGTERM)
except Interrupted:
    print("interrupted")
"""


def test_a_second_signal_prints_nothing_of_its_own() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _TWO_SIGNALS], capture_output=True, text=True, check=True
    )
    assert (ended.stdout, ended.stderr) == ("interrupted\n", "")
