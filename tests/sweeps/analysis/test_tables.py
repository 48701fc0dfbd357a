"""Tables of points."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from sweeps.analysis.tables import evenly_spaced, format_metric, front_table, points_table
from sweeps.analysis.text import metric_label


@pytest.mark.parametrize(
    ("count", "limit", "indices"), [(3, 4, [0, 1, 2]), (10, 4, [0, 3, 6, 9]), (5, 1, [0])]
)
def test_indices_are_evenly_spaced(count, limit, indices):
    assert evenly_spaced(count, limit) == indices


def test_a_rate_without_enough_outsiders_says_so():
    rate = "privacy/attack/lira_online/tpr_at_fpr_0.001"
    expected = "privacy/expected_false_positives_at_fpr_0.001"
    assert format_metric({rate: math.nan, expected: 4.1}, rate) == "too few non-members"
    assert format_metric({rate: math.nan, expected: math.nan}, rate) == "undefined"
    assert format_metric({rate: 0.25, expected: 16.0}, rate) == "0.25"
    assert format_metric({"privacy/rho_kl": math.nan}, "privacy/rho_kl") == "undefined"


def test_metrics_of_different_families_have_different_labels():
    families = ("privacy", "exact", "estimate", "information", "baseline", "bound")
    labels = {metric_label(f"{family}/leakage") for family in families}
    assert len(labels) == len(families)
    assert {"leakage, nats", "exact: leakage, nats", "raw data: leakage, nats"} <= labels


def _points(**config: str) -> pd.DataFrame:
    columns = {f"config/{name}": [value] * 2 for name, value in config.items()}
    metrics = {"loss": [1.0, 2.0], "loss.ci_low": [0.5, 1.5], "loss.ci_high": [1.5, 2.5]}
    rest = {"replicates": 2, "status": "finished", "point_id": ["a", "b"]}
    return pd.DataFrame({**columns, **metrics, **rest})


def test_tables_name_the_panel_that_judged_the_points():
    judged = _points(panel="quick", evaluation="attackers")
    for table in (front_table(judged, {"loss": "min"}, []), points_table(judged, ["loss"], [])):
        assert "panel" not in table.columns
        assert "judged by the quick panel" in table.note


@pytest.mark.parametrize("config", [{"panel": "full", "evaluation": "exact"}, {}])
def test_tables_of_points_without_attackers_name_no_panel(config):
    assert "panel" not in points_table(_points(**config), ["loss"], []).note


def test_a_swept_panel_is_one_column():
    table = points_table(_points(panel="full", evaluation="attackers"), ["loss"], ["panel"])
    assert table.columns.count("panel") == 1


def test_tables_show_six_letters_of_an_id_or_as_many_as_tell_all_apart():
    points = _points(panel="full")
    for ids, shown in (
        (["0123456789", "1123456789"], ["012345", "112345"]),
        (["0123456a89", "0123456b89"], ["0123456a", "0123456b"]),
        (["0123456a", "0123456b"], ["0123456a", "0123456b"]),
    ):
        table = points_table(points.assign(point_id=ids), ["loss"], [])
        assert [row[-1] for row in table.rows] == shown


def _private_settings(*settings: tuple[str, float | None, str, float]) -> list[tuple[str, ...]]:
    """Cells of the mechanism and the sample rate of points of membership, and of their epsilon."""
    names = ("model", "epsilon", "mechanism", "sample_rate")
    rows = pd.DataFrame(settings, columns=[f"config/{name}" for name in names])
    rows = rows.assign(experiment="membership", loss=1.0, point_id=rows.index.map(str))
    table = points_table(rows, ["loss"], ["mechanism", "sample_rate"])
    return [tuple(row[1:3]) for row in table.rows]


def test_tables_leave_a_field_without_effect_blank():
    assert _private_settings(
        ("logistic", None, "dp_sgd", 0.1),
        ("logistic", 1.0, "output_perturbation", 0.1),
        ("logistic", 1.0, "dp_sgd", 0.2),
    ) == [("", ""), ("output_perturbation", ""), ("dp_sgd", "0.2")]


def test_a_model_of_one_mechanism_has_its_fields_whatever_the_mechanism_field_says():
    assert _private_settings(
        ("mlp", 1.0, "output_perturbation", 0.2), ("linear", 1.0, "dp_sgd", 0.2)
    ) == [("", "0.2"), ("", "")]


def test_a_model_of_the_user_shows_the_sample_rate():
    shown = _private_settings((None, 1.0, "output_perturbation", 0.2))
    assert [sample_rate for _, sample_rate in shown] == ["0.2"]


def test_own_experiments_may_have_fields_of_the_same_names():
    rows = {"config/epsilon": [0.5, None], "config/mechanism": ["laplace"] * 2, "loss": [1.0, 2.0]}
    points = pd.DataFrame({**rows, "experiment": "own", "point_id": ["a", "b"]})
    table = points_table(points, ["loss"], ["mechanism"])
    assert [row[1] for row in table.rows] == ["laplace", "laplace"]


def test_the_front_shows_the_attack_that_finds_most_at_one_percent():
    attack, weaker = "privacy/attack/lira", "privacy/attack/guess"
    columns = {
        f"{attack}/tpr_at_fpr_0.001": 0.0,
        f"{attack}/tpr_at_fpr_0.01": 0.2,
        f"{attack}/tpr_at_fpr_0.1": 0.5,
        f"{weaker}/tpr_at_fpr_0.01": 0.1,
        f"{weaker}/tpr_at_fpr_0.1": 0.9,
    }
    shown = front_table(_points().assign(**columns), {"loss": "min"}, []).columns
    assert shown == ("loss", f"{attack}/tpr_at_fpr_0.01", "point")
