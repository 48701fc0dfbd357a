"""The table of attackers names the strongest and says what its interval allows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from synthetic_releases import ATTACKERS, FLOOR, STRONGEST, image_sweep, with_metrics

from sweeps.report.figures.curves import group_curves
from sweeps.report.tables import attacker_report, compare_with_floor, flag_warnings


def report(sweep):
    return attacker_report(group_curves(sweep))


def column(found, name):
    return [row[found.table.columns.index(name)] for row in found.table.rows]


def test_every_attacker_has_a_column_and_the_best_on_test_is_named():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    found = report(sweep)
    assert set(ATTACKERS) <= set(found.table.columns)
    keys = [f"privacy/attacker/{name}/balanced_accuracy" for name in ATTACKERS]
    largest = sweep.points[keys].idxmax(axis=1).str.split("/").str[2]
    assert column(found, "best on test") == list(largest)
    assert column(found, "point") == [point_id[:6] for point_id in sweep.points["point_id"]]


def test_the_floor_has_its_source_beside_raw_data_and_in_loop_adversary():
    found = report(image_sweep(alphas=(1.0,), gradients=("label",)))
    assert set(column(found, "floor")) == {"0.562 ± 0 (utility label)"}
    assert set(column(found, "raw data")) == {"0.931 ± 0"}
    assert "in-loop adversary (no measure of privacy)" in found.table.columns


def test_success_by_other_labels_stands_beside_the_reported_one():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    key = "privacy__attacker_balanced_accuracy_published_labels"
    points = [with_metrics(p, **{key: 0.5625}) for p in sweep.tradeoff_points]
    found = report(replace(sweep, tradeoff_points=points))
    place = found.table.columns.index("chosen on validation")
    assert found.table.columns[place + 1] == "by published labels"
    assert set(column(found, "by published labels")) == {"0.5625 [0.5625, 0.5625]"}
    assert "by published labels" not in report(sweep).table.columns


@pytest.mark.parametrize(
    ("mean", "low", "high", "verdict"),
    [
        (0.6, 0.55, 0.65, "above"),
        (0.52, 0.49, 0.55, "not distinguished"),
        (0.45, 0.4, 0.49, "below"),
        (0.6, math.nan, math.nan, "no interval"),
        (math.nan, math.nan, math.nan, "undefined"),
    ],
)
def test_the_verdict_rests_on_the_interval(mean, low, high, verdict):
    row = {STRONGEST: mean, f"{STRONGEST}.ci_low": low, f"{STRONGEST}.ci_high": high, FLOOR: 0.5}
    assert compare_with_floor(row) == verdict


def test_flags_are_counted_in_words():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    points = [
        with_metrics(p, flag__attacker_not_converged=1.0, flag__odd=float(i == 0))
        for i, p in enumerate(sweep.tradeoff_points)
    ]
    flagged = replace(sweep, tradeoff_points=points)
    found = report(flagged)
    assert flag_warnings(flagged.points) == [
        "At 1 of 6 points: attacker under its floor: under-trained.",
        "At 6 of 6 points: attacker that ran out of steps could overtake the strongest.",
        "At 1 of 6 points: flag/odd.",
    ]
    assert "under-trained" in column(found, "flags")[-1]


def test_a_flag_within_chance_is_not_a_warning():
    """Half of the replicates at full privacy lie under the floor; the interval holds it."""
    sweep = image_sweep(alphas=(1.0,), gradients=("label",), weights=(1.0,))
    lower = {"privacy__attacker_balanced_accuracy": 0.562, "flag__attacker_below_floor": 1.0}
    found = report(
        replace(sweep, tradeoff_points=[with_metrics(sweep.tradeoff_points[0], **lower)])
    )
    assert column(found, "flags") == [""]


def test_the_summary_counts_what_intervals_allow():
    found = report(image_sweep(alphas=(1.0,), gradients=("label",)))
    assert "Of 6 points" in found.summary
    assert "is above the floor at 5" in found.summary
    assert "under-trained, at 1" in found.summary


def test_undefined_attackers_are_not_the_best_on_test():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",), weights=(1.0,))
    keys = {f"privacy__attacker__{name}__balanced_accuracy": math.nan for name in ATTACKERS[1:]}
    found = report(replace(sweep, tradeoff_points=[with_metrics(sweep.tradeoff_points[0], **keys)]))
    assert column(found, "best on test") == [ATTACKERS[0]]
    assert not set(ATTACKERS[1:]) & set(found.table.columns)


def test_long_tables_say_what_they_leave_out():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",), weights=range(1, 211), seeds=1)
    found = report(sweep)
    assert len(found.table.rows) == 200
    assert found.table.note == "10 more are not shown."


def test_sweeps_without_named_attackers_have_no_table(membership_sweep):
    assert report(membership_sweep) is None
