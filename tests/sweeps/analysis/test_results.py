"""Results display themselves and plot their front."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image
from stored_sweeps import write_sweep

import sweeps

OBJECTIVES = {"privacy/membership_advantage": "min", "utility/test_accuracy": "max"}


@pytest.fixture
def result(tmp_path: Path) -> sweeps.Result:
    write_sweep(tmp_path, "first", OBJECTIVES, [(0.1, 0.5), (0.5, 0.4)])
    return sweeps.open_result("first", str(tmp_path))


def test_a_notebook_shows_the_size_and_the_front(result: sweeps.Result) -> None:
    page = result._repr_html_()
    assert "2 of 2 points, 2 replicates each" in page
    assert "Lowest membership advantage 0.1" in page
    assert "<th>membership advantage</th>" in page
    assert page.count("<tr") == 2, "a heading and the only point of the front"
    (picture,) = re.findall(
        r'<img alt="Pareto front"[^>]* src="data:image/png;base64,([^"]+)"', page
    )
    image = Image.open(io.BytesIO(base64.b64decode(picture)))
    assert min(image.size) > 300
    assert len(image.convert("L").getcolors()) > 20, "lines, points and texts"


def test_a_front_has_its_objectives_knobs_and_ids_unless_all_columns_are_asked_for(
    result: sweeps.Result,
) -> None:
    front, whole = result.front(), result.front(all=True)
    measured = [f"{m}{end}" for m in OBJECTIVES for end in ("", ".ci_low", ".ci_high")]
    knobs = [f"config/{field}" for field in result.swept_fields]
    assert knobs
    added = ["front/probability", "front/group"]
    assert list(front) == [*measured, *knobs, *added, "point_id"]
    assert set(whole) == {*result.points, *added}
    pd.testing.assert_frame_equal(whole[list(front)], front)
    assert next(iter(result.front({"utility/test_accuracy": "max"}))) == "utility/test_accuracy"


def test_probabilities_and_groups_of_a_front_are_those_of_its_problem() -> None:
    result = sweeps.open_result("recorded:toy-gaussian-exact")
    front = result.front()
    by_problem = front.groupby("config/problem.gaussian-mixture.dependence")
    assert by_problem.size().to_dict() == {0.0: 8, 0.2: 8, 0.4: 8, 1.0: 3}
    groups = by_problem["front/group"].agg(set)
    assert len(set.union(*groups)) == sum(map(len, groups)), "no group of two problems"
    exact = front[front["config/problem.gaussian-mixture.dependence"] < 1]
    assert (exact["front/probability"] > 0.99).all(), "the weight orders them without doubt"
    names = [trace.name for trace in result.plot_front().data]
    assert "front, dependence = 0.4" in names


def test_the_plot_holds_every_finished_point(result: sweeps.Result) -> None:
    traces = {trace.name: trace for trace in result.plot_front().data}
    front = traces["Pareto front (1), training records beside"]
    assert list(front.x) == [0.5], "utility on x"
    assert list(front.y) == [0.1]
    assert list(traces["dominated (1)"].y) == [0.5]
    turned = result.plot_front(x="privacy/membership_advantage", y="utility/test_accuracy")
    assert turned.layout.xaxis.title.text.startswith("membership advantage")


def test_metrics_and_curves_that_no_point_has_are_named(result: sweeps.Result) -> None:
    with pytest.raises(ValueError, match="no point has privacy/typo; the metrics are"):
        result.plot_front(y="privacy/typo")
    for draw in (result.plot_curves, result.plot_roc):
        with pytest.raises(ValueError, match="no chosen point of first recorded"):
            draw()


def test_a_study_and_a_result_are_public_types(result: sweeps.Result) -> None:
    assert isinstance(result.study, sweeps.Study)
