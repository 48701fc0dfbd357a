"""Intervals over replicates, and how they are written."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sweeps.analysis.statistics import Interval, t_interval
from sweeps.analysis.text import format_number


def test_interval_is_student_t():
    values = np.random.default_rng(0).normal(3.0, 2.0, 9)
    low, high = stats.t.interval(0.99, 8, values.mean(), stats.sem(values))
    found = t_interval(values, 0.99)
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), low, high))


def test_one_value_has_no_interval():
    found = t_interval([0.5])
    assert found.mean == 0.5
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert str(found) == "0.5 [no interval]"
    assert found.plus_minus == "0.5"


@pytest.mark.parametrize(
    ("interval", "written", "plus_minus"),
    [
        (Interval(0.93123, 0.90012, 0.96234), "0.931 [0.900, 0.962]", "0.931 ± 0.031"),
        (Interval(-1.0, -1.0, -1.0), "-1 [-1, -1]", "-1 ± 0"),
        (Interval(1234.0, 1034.0, 1434.0), "1234 [1034, 1434]", "1234 ± 200"),
        (Interval(2e-9, 1e-9, 3e-9), "2e-09 [1e-09, 3e-09]", "2e-09 ± 1e-09"),
        (Interval(math.nan, math.nan, math.nan), "nan [no interval]", "undefined"),
    ],
)
def test_digits_follow_the_width(interval, written, plus_minus):
    assert str(interval) == written
    assert interval.plus_minus == plus_minus


def test_numbers_are_short():
    assert format_number(0.000123456) == "0.0001235"
    assert format_number(math.nan) == "undefined"
