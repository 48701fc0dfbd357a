"""Intervals over replicates, and how they are written."""

from __future__ import annotations

import math

import pytest

from privnets.statistics.intervals import Interval
from sweeps.analysis.text import format_number


@pytest.mark.parametrize(
    ("interval", "written", "plus_minus"),
    [
        (Interval(0.93123, 0.90012, 0.96234), "0.931 [0.900, 0.962]", "0.931 ± 0.031"),
        (Interval(-0.00001, -0.0201, 0.02), "0.000 [-0.020, 0.020]", "0.000 ± 0.020"),
        (Interval(-1.0, -1.0, -1.0), "-1 [-1, -1]", "-1 ± 0"),
        (Interval(1234.0, 1034.0, 1434.0), "1234 [1034, 1434]", "1234 ± 200"),
        (Interval(2e-9, 1e-9, 3e-9), "2e-09 [1e-09, 3e-09]", "2e-09 ± 1e-09"),
        (Interval(0.5, math.nan, math.nan), "0.5 [no interval]", "0.5"),
        (Interval(math.nan, math.nan, math.nan), "nan [no interval]", "undefined"),
    ],
)
def test_digits_follow_the_width(interval, written, plus_minus):
    assert str(interval) == written
    assert interval.plus_minus == plus_minus


def test_numbers_are_short():
    assert format_number(0.000123456) == "0.0001235"
    assert format_number(math.nan) == "undefined"
