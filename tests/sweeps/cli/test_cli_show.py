"""`sweeps list` and `sweeps show`."""

import os
import re
from importlib.metadata import version

import pytest
from small_sweeps import made_point, small_plan, write_sweep
from support import run_command
from typer.testing import CliRunner

import privnets
from privnets.points import Replicate
from sweeps.cli.main import app
from sweeps.planning.costs import format_duration
from sweeps.planning.plan import create_manifest, make_plan
from sweeps.store.asks import write_ask
from sweeps.store.lease import acquire_lease
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest
from sweeps.study.loader import load, study_names
from sweeps.study.spec import Study

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
    output = run("show", study, "--set", "replicates=3", "--yaml")
    again = tmp_path / "again.yaml"
    again.write_text(output)
    assert load(again) == make_plan(load(study, ["replicates=3"])).study


def test_show_tells_points_packs_cost_objectives_and_notes(study):
    output = run("show", study, "--set", "resources.pack=4")
    planned = make_plan(load(study))
    assert "2 points x 2 replicates = 4 trainings" in output
    assert "1 pack of 4 trainings; one worker trains a pack at once" in output
    assert f"about {format_duration(planned.cost_seconds())} of one core" in output
    assert "objectives: min privacy/membership_advantage, max utility/test_accuracy" in output
    assert "note: 1 of 3 points are the same as others: merged." in output
    assert "left at their defaults: " in output
    assert "records 200" in output
    assert "hidden_layers" not in output
    for point in planned.points:
        assert f"  {point.point_id}  weight_decay {point.config.weight_decay}" in output


def test_show_plans_without_data_and_says_how_to_get_them(study, tmp_path, monkeypatch):
    study.write_text(STUDY.replace("digits", "adult"))
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    shown = run_command("show", str(study))
    assert shown.exit_code == 0, shown.stderr
    assert "2 points x 2 replicates = 4 trainings" in shown.stdout
    assert "  weight_decay 0.1\n" in shown.stdout  # without an id, which depends on the data
    assert "Warning: data set 'adult' cannot be used: adult.data is absent" in shown.stderr
    assert "Get it with `sweeps data fetch adult`" in shown.stderr


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("dataset: digits", "dataset: {table: none.csv, target: y}", "cannot be read"),
        ("digits, model", "adult, modle", "modle: got an unknown field"),
    ],
)
def test_show_refuses_a_study_whose_points_are_unknown_without_its_data(
    study, tmp_path, monkeypatch, old, new, mistake
):
    study.write_text(STUDY.replace(old, new))
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    shown = run_command("show", str(study))
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert mistake in shown.stderr


def test_show_names_the_source_of_pack_sizes(study):
    assert "from the cost model" in run("show", study)
    assert "from resources.pack of the study" in run("show", study, "--set", "resources.pack=2")


def test_show_does_not_list_every_point_of_a_large_plan(study):
    output = run(
        "show", study, "--set", "space.weight_decay.uniform=[0, 1]", "--set",
        "search.algorithm=sobol", "--num-points", 64,
    )  # fmt: skip
    assert output.count("weight_decay 0.") == 40
    assert "  and 24 more" in output


def test_show_and_list_write_nothing(study):
    run("show", study)
    run("list")
    assert os.listdir() == ["small.yaml"]


def test_list_tells_each_study_s_size_cost_and_what_it_reproduces():
    output = run("list")
    assert all(f"  {name}  (" in output for name in study_names())
    of_membership = output.partition("membership:\n")[2]
    assert of_membership.index("  quickstart  (") < of_membership.index("  mnist-dp-sgd  (")
    assert output.index("adversarial:\n") < output.index("  digits-quick  (")
    (noise,) = (line for line in output.splitlines() if line.startswith("  adult-noise "))
    assert noise.startswith("  adult-noise  (7 points x 16 replicates; about ")
    assert noise.endswith(" of one core)")
    assert "Reproduces arXiv:2001.10648, figure 5." in " ".join(output.split())


def test_list_fits_100_columns_and_names_no_command():
    output = run("list")
    assert max(map(len, output.splitlines())) <= 100
    assert "--set" not in output


def test_list_of_sweeps_tells_state_points_and_age(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = small_plan(tmp_path)
    metrics = dict.fromkeys(plan.objectives, 0.5)
    for name, finished in (("whole", 4), ("part", 1)):
        with acquire_lease(Ledger(str(tmp_path / "sweep-results"), name).directory):
            write_sweep(
                tmp_path / "sweep-results",
                name,
                plan,
                lambda config, seed: Replicate(seed, metrics, finished_at=1.0),
                finished,
            )
    (whole,), (part,) = (
        [line for line in run("list", "--sweeps").splitlines() if name in line]
        for name in ("whole", "part")
    )
    assert all(text in whole for text in ("done", "4 of 4", " ago"))
    assert all(text in part for text in ("incomplete", "1 of 4", " ago"))


def test_list_of_sweeps_shows_a_search_that_ended_early_and_a_damaged_sweep(tmp_path):
    search = {"algorithm": "tpe", "num_points": 40, "confirm": 0}
    study = {
        "name": "s",
        "experiment": "membership",
        "fixed": {"dataset": "digits", "model": "logistic", "train_size": 50},
        "space": {"weight_decay": {"loguniform": [1e-3, 1]}},
        "search": search,
    }
    plan, ledger = make_plan(Study.model_validate(study)), Ledger(str(tmp_path), "early")
    with acquire_lease(ledger.directory):
        manifest = create_manifest(plan, "early", command="c", tracking_uri="")
        write_manifest(ledger, manifest)
        for number, (kind, proposals) in enumerate(
            (("search", [{"weight_decay": 0.1}, {"weight_decay": 0.2}]), ("confirm", []))
        ):
            ask = plan.propose(kind, proposals, told=number)
            plan = plan.grow(ask)
            write_ask(ledger, number, ask)
        metrics = dict.fromkeys(plan.objectives, 0.5)
        points = [
            made_point(plan, p, lambda config, seed: Replicate(seed, metrics)) for p in plan.points
        ]
        ledger.write_pack("pack", points)
    spec = manifest.model_dump(mode="json") | {"sweep": "broken", "created_at": "yesterday"}
    Ledger(str(tmp_path), "broken").write_spec(spec)
    output = run("list", "--sweeps", "--storage", tmp_path)
    assert re.search(r"early\W+s\W+done\W+2 of 2", output), output
    assert re.search(r"broken\W+damaged", output), output


def test_logs_print_what_runs_wrote_into_the_storage(tmp_path):
    ledger = Ledger(str(tmp_path), "mine")
    with acquire_lease(ledger.directory):
        manifest = create_manifest(small_plan(tmp_path), "mine", command="c", tracking_uri="")
        write_manifest(ledger, manifest)
        assert "has no log" in run_command("logs", "mine", "--storage", str(tmp_path)).stderr
        ledger.log("first\nsecond")
    shown = run("logs", "mine", "--follow", "--storage", tmp_path).splitlines()
    assert [line.split()[-1] for line in shown] == ["first", "second"]


@pytest.mark.parametrize("experiment", ["adversarial", "membership"])
def test_fields_prints_each_field_with_its_values_default_and_meaning(experiment):
    output = " ".join(run("fields", experiment).split())
    config = privnets.experiment(experiment).Config
    for name, field in config.model_fields.items():
        assert f"{name}: " in output
        assert field.description in output
        assert f"{name}: {field.description}" in config.__doc__
    assert "seed: integer ≥ 0 and < 2147483648; default 0" in output


def test_fields_prints_the_sections_of_a_study():
    output = " ".join(run("fields", "search").split())
    assert "confirm: integer ≥ 0 and ≤ 1000 or none" in output
    assert "front_tolerance: number > 0 and < 1 or none" in output


def test_version_is_that_of_the_installed_distribution():
    assert run("--version").split() == ["sweeps", version("privnets-sweeps")]


@pytest.mark.parametrize(("num_points", "listed"), [(2, 2), (20, 3)])
def test_list_counts_no_more_points_than_a_grid_has(study, monkeypatch, num_points, listed):
    study.write_text(f"{STUDY}search: {{num_points: {num_points}}}\n")
    monkeypatch.setattr("sweeps.cli.studies.study_names", lambda: [str(study)])
    shown = " ".join(run("list").split())
    assert f"{study} ({listed} points x 2 replicates; " in shown


@pytest.mark.parametrize("name", ["quickstart", "toy-gaussian", "digits-quick"])
def test_list_and_show_agree_on_what_a_study_costs(name):
    """Descriptions give no time of their own, which could differ."""
    costs = f"about {format_duration(make_plan(load(name)).cost_seconds())} of one core"
    (listed,) = (line for line in run("list").splitlines() if line.startswith(f"  {name}  ("))
    assert costs in listed
    assert costs in run("show", name)
    assert not re.search(r"minute|hour", load(name).description)


def test_show_quotes_texts_that_are_no_words(tmp_path):
    rows = [f"{i},{i % 2}" for i in range(40)]
    (tmp_path / "own.csv").write_text("\n".join(["a,y", *rows]))
    own = STUDY.replace("dataset: digits", "dataset: {table: own.csv, target: y}")
    (tmp_path / "own.yaml").write_text(own.replace("train_size: 50", "train_size: 20, records: 8"))
    output = run("show", tmp_path / "own.yaml")
    assert 'dataset.separator ","' in output
    assert "dataset.encoding utf-8" in output
