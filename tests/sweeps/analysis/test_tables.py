"""Tables of points."""

from __future__ import annotations

import pytest

from sweeps.analysis.tables import evenly_spaced


@pytest.mark.parametrize(
    ("count", "limit", "indices"), [(3, 4, [0, 1, 2]), (10, 4, [0, 3, 6, 9]), (5, 1, [0])]
)
def test_indices_are_evenly_spaced(count, limit, indices):
    assert evenly_spaced(count, limit) == indices
