"""The made-up sweep that reports are tested on."""

from __future__ import annotations

import pytest
from made_sweep import MadeSweep, failed, made_points, made_study


@pytest.fixture(scope="session")
def made_sweep() -> MadeSweep:
    points = made_points()
    points[3] = failed(points[3], "diverged: the loss became NaN at step 12")
    return MadeSweep(made_study(), points, spec={"versions": {"torch": "2.13.0"}})
