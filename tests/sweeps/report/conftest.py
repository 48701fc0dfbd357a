"""The made-up sweep that reports are tested on."""

from __future__ import annotations

import pytest
from synthetic_sweep import SyntheticSweep, fail_point, membership_points, membership_study


@pytest.fixture(scope="session")
def membership_sweep() -> SyntheticSweep:
    points = membership_points()
    points[3] = fail_point(points[3], "diverged: the loss became NaN at step 12")
    return SyntheticSweep(membership_study(), points, spec={"versions": {"torch": "2.13.0"}})
