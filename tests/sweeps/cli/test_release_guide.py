"""The examples of `docs/releasing-your-own-data.md` run as they are written, at a small size."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import privnets
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.trained_releaser import save_releaser
from privnets.adversarial.training.releasers import build_releaser
from privnets.points import Replicate, TradeoffPoint
from privnets.randomness import generator
from sweeps.cli.main import main
from sweeps.planning.plan import create_manifest, make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest
from sweeps.study.loader import load

GUIDE = (Path(__file__).parents[3] / "docs" / "releasing-your-own-data.md").read_text()
BLOCKS = re.findall(r"```(yaml|console|python)\n(.*?)```", GUIDE, re.DOTALL)
STUDIES = {code.split()[1]: code for kind, code in BLOCKS if code.startswith("name: ")}
COMMANDS = {code.split()[2].partition(".")[0]: code for kind, code in BLOCKS if kind == "console"}
PYTHON = [code for kind, code in BLOCKS if kind == "python"]
(OWN_RELEASER,) = (code.strip() for _, code in BLOCKS if code.startswith("  releaser: "))
RECORDS = 120


def _write_people(random: np.random.Generator) -> None:
    sex, age = random.choice(["F", "M"], RECORDS), random.integers(18, 80, RECORDS)
    columns = {"id": range(RECORDS), "age": age, "sex": sex, "income": age > 50}
    height = random.normal(165, 6, RECORDS) + 12 * (sex == "M")
    pd.DataFrame({**columns, "height": height}).to_csv("people.csv", index=False)


def _write_faces(random: np.random.Generator) -> None:
    Path("faces").mkdir()
    glasses, smiling = random.integers(0, 2, (2, RECORDS))
    names = [f"{i:03}.jpg" for i in range(RECORDS)]
    for name, dark, bright in zip(names, glasses, smiling, strict=True):
        pixels = random.integers(80, 120, (12, 12, 3))
        pixels[:4] -= 80 * dark
        pixels[8:] += 80 * bright
        Image.fromarray(pixels.astype(np.uint8)).save(Path("faces", name))
    frame = pd.DataFrame({"file": names, "glasses": glasses, "smiling": smiling})
    frame.to_csv("attributes.csv", index=False)


def _write_readings(random: np.random.Generator) -> None:
    house, hour = np.divmod(np.arange(24 * 48), 48)
    home = hour % 12 < 6
    watts = 100 + 150 * home + random.normal(0, 40, len(hour))
    frame = pd.DataFrame({"house": house, "hour": hour, "watts": watts, "home": home.astype(int)})
    frame.to_csv("readings.csv", index=False)


WRITERS = {"people": _write_people, "faces": _write_faces, "readings": _write_readings}
SMALL = {
    "people": ["fixed.releaser_width=8"],
    "faces": ["fixed.problem.size=8", "fixed.releaser_width=8"],
    "readings": ["fixed.problem.window=8", "fixed.releaser_width=4"],
}


def _store_sweep(name: str, *, trains: bool) -> str:
    """Stores the first point of a study of the guide, and returns its id."""
    WRITERS[name](np.random.default_rng(0))
    Path(f"{name}.yaml").write_text(STUDIES[name])
    short = ["replicates=1", "fixed.steps=3", "fixed.panel=quick", "fixed.adversary_width=4"]
    plan = make_plan(load(f"{name}.yaml", [*short, *SMALL[name]]))
    config = plan.points[0].config
    if trains:
        (point,) = privnets.experiment("adversarial").run([config])
    else:
        problem = problem_of(config)
        weights = build_releaser(problem, config).initial(generator(0, "releaser"))
        content = save_releaser(problem, config, weights)
        replicate = Replicate(0, {}, artifacts={"releaser.safetensors": content}, finished_at=1.0)
        resolved = config.resolved()
        point = TradeoffPoint(plan.points[0].point_id, "adversarial", resolved, (replicate,))
    ledger = Ledger("sweep-results", name)
    write_manifest(ledger, create_manifest(plan, name, command="", tracking_uri=""))
    ledger.write_pack("pack", [point])
    return point.point_id


@pytest.fixture
def run_releases(tmp_path, monkeypatch, capsys):
    """Runs the guide's `sweeps release` of a study, and returns the point and the output."""

    def run(name: str, *, trains: bool) -> tuple[str, str]:
        monkeypatch.chdir(tmp_path)
        point_id = _store_sweep(name, trains=trains)
        for line in COMMANDS[name].splitlines():
            words = shlex.split(line.replace("POINT", point_id))
            if words[1] != "release":
                continue
            if trains:
                words += ["--panel", "quick"]
            else:
                words = words[: words.index("--check")]
            monkeypatch.setattr("sys.argv", words)
            with pytest.raises(SystemExit) as stopped:
                main()
            assert not stopped.value.code, capsys.readouterr()
        return point_id, capsys.readouterr().out

    return run


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_and_its_commands_have_at_most_20_lines(name) -> None:
    assert len((STUDIES[name] + COMMANDS[name]).splitlines()) <= 20


@pytest.mark.parametrize("name", STUDIES)
def test_an_example_releases_its_records(run_releases, name) -> None:
    point_id, shown = run_releases(name, trains=False)
    count = len(pd.read_csv("readings.csv")) if name == "readings" else RECORDS
    assert f"released {count:,} records" in shown
    if name == "faces":
        assert sorted(Path("released").iterdir())[0].name == "000.png"
        return
    columns = {"people": ["age", "height", "id"], "readings": ["house", "hour", "watts"]}
    assert pd.read_csv("released.csv").columns.tolist() == columns[name]
    if name == "people":
        values: dict[str, pd.DataFrame] = {}
        code = PYTHON[0]
        exec(compile(code.replace("POINT", point_id), "guide", "exec"), values)
        assert values["released"].columns.tolist() == ["age", "height"]


def test_the_example_of_an_own_network_fits_a_table(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    _write_people(np.random.default_rng(0))
    Path("own_networks.py").write_text(PYTHON[1])
    study = STUDIES["people"].replace("space:", f"  {OWN_RELEASER}\nspace:")
    Path("people.yaml").write_text(study)
    monkeypatch.delitem(sys.modules, "own_networks", raising=False)
    (releaser,) = {point.config.releaser.torch for point in make_plan(load("people.yaml")).points}
    assert releaser == "own_networks:Shift"


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_an_example_trains_and_checks_its_release(run_releases, name) -> None:
    _, shown = run_releases(name, trains=True)
    assert "balanced accuracy of the strongest attacker" in shown
