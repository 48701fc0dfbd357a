"""Signals: in order the first time, at once the second."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from sweeps.engine.signals import Interrupted, catch_stop_signals

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def _heeded() -> Iterator[None]:
    """Also where whoever runs the tests ignores a signal, as `nohup` does."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted_and_the_block_goes_on(number: int) -> None:
    with catch_stop_signals() as interruption:
        assert not interruption.is_requested()
        os.kill(os.getpid(), number)
        assert interruption.is_requested()
    assert interruption.signal == number


@pytest.mark.parametrize("number", SIGNALS)
def test_a_breakable_block_is_broken_off(number: int) -> None:
    with (
        catch_stop_signals() as interruption,
        pytest.raises(Interrupted) as broken,
        interruption.interruptible(),
    ):
        os.kill(os.getpid(), number)
    assert broken.value.signal == number


def test_a_breakable_block_is_not_begun_after_a_signal() -> None:
    begun = False
    with catch_stop_signals() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted), interruption.interruptible():
            begun = True
    assert not begun


def test_after_a_breakable_block_the_first_signal_is_only_noted() -> None:
    with catch_stop_signals() as interruption:
        with interruption.interruptible():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.is_requested()


def test_a_second_signal_breaks_off_anything_and_the_first_is_the_reason() -> None:
    with catch_stop_signals() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted) as broken:
            os.kill(os.getpid(), signal.SIGINT)
    assert interruption.urgent
    assert broken.value.signal == interruption.signal == signal.SIGTERM


@pytest.mark.parametrize("number", SIGNALS)
def test_what_was_ignored_before_stays_ignored(number: int) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with catch_stop_signals() as interruption:
            os.kill(os.getpid(), number)
            assert not interruption.is_requested()
    finally:
        signal.signal(number, before)


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with catch_stop_signals():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
