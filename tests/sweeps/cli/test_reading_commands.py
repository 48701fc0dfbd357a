"""`points`, `pareto` and `report` on a sweep in a ledger, with bad input refused."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from small_sweeps import write_sweep
from support import Ended, run_command

from privnets.membership.config import MembershipConfig
from privnets.points import Replicate
from sweeps.analysis.results import open_result
from sweeps.analysis.tables import front_table
from sweeps.cli.main import main
from sweeps.errors import InputError
from sweeps.planning.plan import make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest
from sweeps.study.spec import Study

SWEEP, OTHER = "made-up", "other"
ADVANTAGE, ACCURACY = "privacy/membership_advantage", "utility/test_accuracy"


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of four real plans' points with made-up metrics, one of them failed."""
    study = Study.model_validate(
        {
            "name": "reading",
            "experiment": "membership",
            "fixed": {"dataset": "digits", "model": "logistic"},
            "space": {"train_size": {"grid": [50, 100, 200, 400]}},
            "replicates": 2,
            "objectives": {ADVANTAGE: "min", ACCURACY: "max"},
        }
    )
    place = tmp_path_factory.mktemp("storage")
    for name in (SWEEP, OTHER):
        write_sweep(place, name, make_plan(study), made_replicate)
    return place


def made_replicate(config: MembershipConfig, seed: int) -> Replicate:
    size = config.train_size
    if size == 50 and seed == 0:
        return Replicate(seed, {}, failure="diverged", finished_at=1.7e9)
    jitter = (seed % 7) / 1e4
    metrics = {ADVANTAGE: 20 / size + jitter, ACCURACY: (0.7 if size == 400 else 0.9) + jitter}
    return Replicate(seed, metrics, finished_at=1.7e9)


@pytest.fixture
def run(storage: Path, tmp_path: Path, monkeypatch):
    """Runs a command line in an empty directory: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str, where: tuple[str, str] | None = None) -> Ended:
        return run_command(*arguments, *(where or ("--storage", str(storage))))

    return command


def test_points_are_shown_with_half_intervals_and_status(run, storage):
    code, shown, _ = run("points", SWEEP)
    assert code == 0
    row = open_result(SWEEP, str(storage)).points.set_index("config/train_size").loc[100]
    half = row[f"{ADVANTAGE}.ci_high"] - row[ADVANTAGE]
    assert f"{row[ADVANTAGE]:.2f}" in shown
    assert half > 0
    assert " ± " in shown
    assert shown.count("finished") == 3
    assert shown.count("failed") == 1


@pytest.mark.parametrize(("suffix", "read"), [("parquet", pd.read_parquet), ("csv", pd.read_csv)])
def test_points_are_saved_whole(run, storage, tmp_path, suffix, read):
    code, shown, _ = run("points", SWEEP, "-o", f"points.{suffix}")
    assert (code, shown) == (0, f"4 points saved in points.{suffix}\n")
    found, expected = read(tmp_path / f"points.{suffix}"), open_result(SWEEP, str(storage)).points
    assert list(found.columns) == list(expected.columns)
    assert found[ADVANTAGE].equals(expected[ADVANTAGE])


@pytest.mark.parametrize("command", ["points", "pareto", "compare", "report"])
def test_two_places_to_read_from_are_refused(run, command):
    code, _, problem = run(command, SWEEP, "--tracking-uri", "sqlite:///mlflow.db")
    assert code == 2
    assert "give one place to read" in problem
    assert "got --storage and --tracking-uri" in problem


def test_front_on_the_studys_objectives(run, tmp_path):
    code, shown, _ = run("pareto", SWEEP, "-o", "front.json", "--plot", "front.png")
    assert code == 0
    assert "2 points on the front; excluded: 1 failed" in shown
    rows = json.loads((tmp_path / "front.json").read_text())
    assert sorted(row["config/train_size"] for row in rows) == [200, 400]
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
    for kind, start in (("svg", b"<?xml"), ("pdf", b"%PDF")):
        assert run("pareto", SWEEP, "--plot", f"front.{kind}")[0] == 0
        assert (tmp_path / f"front.{kind}").read_bytes().startswith(start)


def test_front_on_other_objectives(run, tmp_path):
    code, _, _ = run("pareto", SWEEP, "--maximize", ADVANTAGE, "-o", "f.csv", "--plot", "f.html")
    assert code == 0
    assert list(pd.read_csv(tmp_path / "f.csv")["config/train_size"]) == [100]
    assert "Plotly.newPlot" in (tmp_path / "f.html").read_text()


def test_report_is_written(run, tmp_path):
    assert run("report", SWEEP, "-o", "report.html") == (0, "report.html\n", "")
    text = (tmp_path / "report.html").read_text()
    assert "sweeps run it" in text
    assert "diverged (1 of 2 replicates failed)" in text
    code, shown, _ = run("report", SWEEP)
    assert code == 0
    assert Path(shown.strip()).parent.name == SWEEP, "into the folder of the sweep"


def test_report_of_several_sweeps_compares_them_and_links_to_theirs(run, tmp_path, storage):
    own = storage / SWEEP / "report.html"
    own.write_text("the sweep's own report")
    assert run("report", SWEEP, OTHER) == (0, f"{SWEEP}-{OTHER}.html\n", "")
    assert own.read_text() == "the sweep's own report"
    text = (tmp_path / f"{SWEEP}-{OTHER}.html").read_text()
    assert "Sweeps compared" in text
    for name in (SWEEP, OTHER):
        link = f"{SWEEP}-{OTHER}-{name}.html"
        assert f'<a href="{link}">{name}</a>' in text
        assert 'id="front"' in (tmp_path / link).read_text()
    assert 'id="front"' not in text


def test_compared_fronts_are_drawn(run, tmp_path):
    assert run("compare", SWEEP, OTHER, "--plot", "fronts.png")[0] == 0
    assert (tmp_path / "fronts.png").read_bytes().startswith(b"\x89PNG")


def test_figures_and_tables_are_written_for_a_paper(run, tmp_path):
    code, shown, _ = run("report", SWEEP, "--figures", "figures")
    assert code == 0
    assert "files written to figures" in shown
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"front.png", "front.svg", "front.pdf", "points.csv", "front.csv"} <= names
    points = pd.read_csv(tmp_path / "figures" / "points.csv")
    assert f"{ADVANTAGE}.ci_low" in points.columns
    assert "membership advantage" in (tmp_path / "figures" / "front.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["points", "absent"], "sweep 'absent' does not exist"),
        (["pareto", "absent"], "sweep 'absent' does not exist"),
        (["report", "absent"], "sweep 'absent' does not exist"),
        (["points", SWEEP, "-o", "points.xlsx"], "must end in .parquet or .csv"),
        (["pareto", SWEEP, "-o", "front.txt"], "must end in .parquet or .csv or .json"),
        (["pareto", SWEEP, "--plot", "front.jpg"], "must end in .html or .png or .svg or .pdf"),
        (["report", SWEEP, "-o", "absent/report.html"], "there is no directory absent"),
        (["pareto", SWEEP, "--minimize", "privacy/membership"], f"did you mean {ADVANTAGE}"),
        (["pareto", SWEEP, "--minimize", ADVANTAGE, "--maximize", ADVANTAGE], "both"),
    ],
)
def test_bad_input_gets_one_message_and_writes_nothing(run, tmp_path, arguments, message):
    code, shown, error = run(*arguments)
    assert code == 2
    assert message in error
    assert error.startswith("Error: ")
    assert error.count("\n") == 1
    assert shown == ""
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_sweep_gets_the_names_there_are(run):
    code, _, errors = run("pareto", "mad-up")
    assert code == 2
    assert "choose one of made-up (did you mean made-up?), other" in errors


def test_a_sweep_without_a_manifest_is_not_offered_again(tmp_path, storage):
    place = tmp_path / "storage"
    for name in ("mine", "mine-2026"):
        (place / name).mkdir(parents=True)
    with pytest.raises(InputError, match=r"spec\.yaml is missing; choose mine-2026"):
        open_result("mine", str(place))


def test_an_unfinished_sweep_says_so(tmp_path, storage, monkeypatch, capsys):
    """One of four points in the ledger; the swept field stays in the table all the same."""
    whole = open_result(SWEEP, str(storage))
    ledger = Ledger(str(tmp_path), SWEEP)
    write_manifest(ledger, whole.manifest)
    ledger.write_pack("pack", [whole.tradeoff_points[-1]])
    for command in ("points", "pareto"):
        monkeypatch.setattr("sys.argv", ["sweeps", command, SWEEP, "--storage", str(tmp_path)])
        with pytest.raises(SystemExit):
            main()
        output = capsys.readouterr().out
        assert "3 of 4 points unfinished" in output
        assert "train_size" in output


def test_results_and_points_are_shown_in_a_line(storage):
    result = open_result(SWEEP, str(storage))
    assert "4 of 4 points, 2 replicates each" in repr(result)
    assert len(repr(result)) < 200
    assert len(repr(result.tradeoff_points[0])) < 500


def test_a_bound_undefined_at_every_point_is_no_column(run, storage):
    result = open_result(SWEEP, str(storage))
    front = result.front(all=True).assign(**{"bound/advantage": float("nan")})
    shown = front_table(front, result.objectives, result.swept_fields)
    assert "bound/advantage" not in shown.columns
    assert "evenly spaced" not in shown.note
    known = front_table(
        front.fillna({"bound/advantage": 0.5}), result.objectives, result.swept_fields
    )
    assert "bound/advantage" in known.columns


def test_reading_a_sweep_of_an_own_experiment_runs_none_of_its_code(run, storage):
    source = Ledger(str(storage), SWEEP)
    study = {**open_result(SWEEP, str(storage)).study.to_dict(), "experiment": "absent:train"}
    target = Ledger(str(storage), "own")
    spec = {**source.read_spec(), "sweep": "own", "study": study}
    target.write_spec(spec)
    target.write_pack("all", source.read_points())
    assert run("pareto", "own", "--where", f"{ACCURACY} >= 0.1")[0] == 0
    assert run("claims", "own")[0] == 0
    assert run("report", "own", "-o", "own.html")[0] == 0
