"""Every fuzz target on a few inputs; `python -m campaigns.fuzz` feeds as many as are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.fuzz.runner import Tally, by_hypothesis
from campaigns.fuzz.targets import TARGETS, target

SLOW = {"commands": 12, "studies": 25, "eco_published": 10}
USUAL = 40


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_no_input_brings_a_reader_out_of_order(name: str, tmp_path: Path) -> None:
    tally = Tally()
    by_hypothesis(target(name, tmp_path), SLOW.get(name, USUAL), 1, tally)
    assert tally.inputs >= 10
    assert tally.accepted < tally.inputs


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_what_inputs_are_made_from_is_read(name: str, tmp_path: Path) -> None:
    """Else a target would only prove that its reader refuses everything."""
    made = target(name, tmp_path)
    assert any(made.read(content) for content in made.corpus())
