"""Tables of points."""

from __future__ import annotations

import math

import pytest

from sweeps.analysis.tables import evenly_spaced, format_metric


@pytest.mark.parametrize(
    ("count", "limit", "indices"), [(3, 4, [0, 1, 2]), (10, 4, [0, 3, 6, 9]), (5, 1, [0])]
)
def test_indices_are_evenly_spaced(count, limit, indices):
    assert evenly_spaced(count, limit) == indices


def test_a_rate_without_enough_outsiders_says_so():
    rate = "privacy/attack/lira_online/tpr_at_fpr_0.001"
    expected = rate.replace("tpr", "expected_false_positives")
    assert format_metric({rate: math.nan, expected: 4.1}, rate) == "too few non-members"
    assert format_metric({rate: math.nan, expected: math.nan}, rate) == "undefined"
    assert format_metric({rate: 0.25, expected: 16.0}, rate) == "0.25"
    assert format_metric({"privacy/rho_kl": math.nan}, "privacy/rho_kl") == "undefined"
