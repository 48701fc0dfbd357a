"""Standard errors of means and ratios, against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privnets.statistics import estimates


def test_a_means_error_is_that_of_independent_values():
    values = np.random.default_rng(0).normal(2.0, 3.0, 500)
    found = estimates.mean(values)
    assert found.value == pytest.approx(values.mean())
    assert found.error == pytest.approx(values.std(ddof=1) / math.sqrt(500))


def test_records_of_one_origin_count_once():
    values = np.random.default_rng(1).normal(size=100)
    repeated, group = np.repeat(values, 9), np.repeat(np.arange(100), 9)
    assert estimates.mean(repeated, group).error == pytest.approx(estimates.mean(values).error)
    assert estimates.mean(repeated).error < 0.5 * estimates.mean(values).error


def test_a_ratios_error_is_its_spread_over_repeated_samples():
    random = np.random.default_rng(2)
    ratios, errors = [], []
    for _ in range(2_000):
        under = random.gamma(2.0, 1.0, 200)
        over = 0.3 * under * random.gamma(4.0, 0.25, 200)
        found = estimates.ratio(over, under)
        ratios.append(found.value)
        errors.append(found.error)
    # The standard deviation of 2,000 draws is itself known to 1.6%.
    assert np.mean(errors) == pytest.approx(np.std(ratios), rel=0.06)


def test_one_origin_gives_no_error():
    assert math.isnan(estimates.mean(np.ones(4), np.zeros(4, dtype=np.int64)).error)
