"""`sweeps list` and `sweeps show`."""

import os
import re

import pytest
from typer.testing import CliRunner

import privnets
from sweeps.cli.main import app
from sweeps.planning.cost_curves import CostCurve, cache_curve, curve_key
from sweeps.planning.plan import format_duration, make_plan
from sweeps.study.loader import load, study_names
from sweeps.study.spec import Resources

STUDY = """\
name: small
experiment: membership
fixed: {dataset: digits, model: logistic, train_size: 50, draws: 64}
space:
  weight_decay: {grid: [0.1, 1, 1.0]}
replicates: 2
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path.parent / "cache"))
    path = tmp_path / "small.yaml"
    path.write_text(STUDY)
    return path


def run(*arguments: object) -> str:
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert found.exit_code == 0, found.output
    return found.output


def test_show_prints_a_study_that_loads_as_what_was_resolved(study, tmp_path):
    output = run("show", study, "--set", "replicates=3")
    again = tmp_path / "again.yaml"
    again.write_text(output)
    assert load(again) == make_plan(load(study, ["replicates=3"])).study


def test_show_tells_points_packs_cost_objectives_and_notes(study):
    output = run("show", study, "--set", "resources.pack=4")
    planned = make_plan(load(study))
    assert "# 2 points x 2 replicates = 4 trainings" in output
    assert "# 1 pack of 4 trainings" in output
    assert f"# about {format_duration(planned.cost_seconds())} of one core" in output
    assert "# objectives: min privacy/membership_advantage, max utility/test_accuracy" in output
    assert "# note: 1 of 3 points are the same as others: merged." in output
    assert "# left at their defaults: " in output
    assert "records 200" in output
    assert "hidden_layers" not in output
    for point in planned.points:
        assert f"#   {point.point_id}  weight_decay {point.config.weight_decay}" in output


def test_show_names_the_source_of_pack_sizes(study):
    assert "from the cost model" in run("show", study)
    assert "from resources.pack of the study" in run("show", study, "--set", "resources.pack=2")
    planned = make_plan(load(study))
    name, structure = planned.study.experiment, planned.points[0].config.structure()
    curve = CostCurve((1, 2, 4), (9.0, 9.1, 9.2), 1000)
    cache_curve(curve_key(privnets.experiment(name), structure, Resources(), ""), curve)
    output = run("show", study)
    assert "from cost curves measured on this machine" in output


def test_show_does_not_list_every_point_of_a_large_plan(study):
    output = run(
        "show", study, "--set", "space.weight_decay.uniform=[0, 1]", "--set",
        "search.algorithm=sobol", "--num-points", 64,
    )  # fmt: skip
    assert output.count("weight_decay 0.") == 40
    assert "#   and 24 more" in output


def test_show_and_list_write_nothing(study):
    run("show", study)
    run("list")
    assert os.listdir() == ["small.yaml"]


def test_list_tells_each_study_s_size_cost_and_what_it_reproduces():
    output = run("list")
    assert all(f"{name}  (" in output for name in study_names())
    (noise,) = (line for line in output.splitlines() if line.startswith("adult-noise "))
    assert noise.startswith("adult-noise  (7 points x 16 replicates; about ")
    assert noise.endswith(" of one core; reproduces arXiv:2001.10648, figure 5)")
    assert "of one core; reproduces no publication)" in output


@pytest.mark.parametrize(("num_points", "listed"), [(2, 2), (20, 3)])
def test_list_counts_no_more_points_than_a_grid_has(study, monkeypatch, num_points, listed):
    study.write_text(f"{STUDY}search: {{num_points: {num_points}}}\n")
    monkeypatch.setattr("sweeps.cli.studies.study_names", lambda: [str(study)])
    assert f"{study}  ({listed} points x 2 replicates; " in run("list")


@pytest.mark.parametrize("name", ["quickstart", "toy-gaussian", "digits-quick"])
def test_list_and_show_agree_on_what_a_study_costs(name):
    """Descriptions give no time of their own, which could differ."""
    costs = f"about {format_duration(make_plan(load(name)).cost_seconds())} of one core"
    (listed,) = (line for line in run("list").splitlines() if line.startswith(f"{name}  ("))
    assert costs in listed
    assert costs in run("show", name)
    assert not re.search(r"minute|hour", load(name).description)
