"""Signals: in order the first time, at once the second."""

from __future__ import annotations

import os
import signal

import pytest

from sweeps.interruption import interruptible

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_patient_block_is_told_and_goes_on(number: int) -> None:
    with interruptible() as interruption, interruption.patience():
        assert not interruption.asked()
        os.kill(os.getpid(), number)
        assert interruption.asked()
    assert interruption.signal == number


@pytest.mark.parametrize("number", SIGNALS)
def test_other_code_is_broken_off(number: int) -> None:
    with interruptible() as interruption, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    assert interruption.signal == number


def test_a_second_signal_breaks_off_a_patient_block() -> None:
    with interruptible() as interruption, interruption.patience():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert interruption.signal == signal.SIGTERM


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with interruptible():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
