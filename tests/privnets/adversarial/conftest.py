"""A panel for tests of what does not depend on the strength of attackers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from privnets.adversarial.attackers import PROFILES
from privnets.adversarial.problems import gaussian_mixture


@pytest.fixture(scope="module")
def small_panel() -> Iterator[None]:
    """Gives the quick panel few records and steps, and the mixture few test records."""
    small = replace(PROFILES["quick"], records=400, steps=200, draws=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, "quick", small)
        patch.setattr(gaussian_mixture, "_TEST", 2_048)
        yield


@pytest.fixture
def narrow_panel(small_panel, monkeypatch):
    """Attackers with two channels and few steps."""
    narrow = replace(PROFILES["quick"], width_divisor=32, steps=20, draws=1, records=60)
    monkeypatch.setitem(PROFILES, "quick", narrow)
