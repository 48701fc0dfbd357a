"""Before a sweep starts: names, the lock, and that a sweep stays what it was."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small_sweeps import small_plan, study_file

import sweeps
from sweeps.engine.executor import new_sweep_name
from sweeps.errors import InputError
from sweeps.planning.continuation import (
    differences,
    names_user_files,
    plan_extension,
    prepare_manifest,
    replan,
    setting_differences,
)
from sweeps.planning.plan import Plan, create_manifest, make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest, write_manifest
from sweeps.study.loader import load


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return small_plan(tmp_path_factory.mktemp("study"))


@pytest.fixture
def ledger(tmp_path: Path, plan: Plan) -> Ledger:
    ledger = Ledger(str(tmp_path), "sweep")
    uri = "http://user:secret@server:5000"
    write_manifest(
        ledger, prepare_manifest(ledger, plan, command="sweeps run small", tracking_uri=uri)
    )
    return ledger


FACES = {"gender-emotion": {"size": 32}}


@pytest.mark.parametrize(
    ("fixed", "is_own"),
    [
        ({"problem": FACES}, False),
        ({"problem.gender-emotion.size": 32}, False),
        ({"problem": "digits"}, False),
        ({"problem": FACES, "inference_network": {"torch": "mine:Network"}}, True),
        ({"problem": {"table": "own.csv", "utility": "a", "secret": "b"}}, True),
    ],
)
def test_only_mappings_of_the_users_own_files_and_code_need_the_study_again(
    fixed: dict[str, object], is_own: bool, plan: Plan
) -> None:
    study = plan.study.model_copy(update={"experiment": "adversarial", "fixed": fixed, "space": {}})
    assert names_user_files(study) is is_own


def test_a_sweep_is_planned_again_from_its_spec_alone(ledger: Ledger, plan: Plan) -> None:
    again = replan(read_manifest(ledger))
    assert again.points == plan.points
    assert again.seeds == plan.seeds
    assert again.objectives == plan.objectives
    assert again.log_fields == plan.log_fields


def test_infinite_values_are_kept_in_the_spec(ledger: Ledger, tmp_path: Path) -> None:
    """An order of leakage may be infinite; `.inf` is how study files write it."""
    changes = ["space.alpha.grid=[0.5, .inf]", "fixed.alpha=.inf"]
    study = load(study_file(tmp_path), changes)
    write_manifest(ledger, read_manifest(ledger).model_copy(update={"study": study}))
    assert read_manifest(ledger).study == study
    assert study.fixed["alpha"] == math.inf == study.space["alpha"].at(1.0)
    assert Path(ledger.directory.path, "spec.yaml").read_text().count(" .inf\n") == 2


def test_the_spec_says_how_the_sweep_was_made_and_no_secret(ledger: Ledger) -> None:
    text = Path(ledger.directory.path, "spec.yaml").read_text()
    spec = yaml.safe_load(text)
    assert {"python", "torch", "ray", "mlflow", "privnets-sweeps"} <= spec["versions"].keys()
    assert spec["plan"]["points"] == 4
    assert spec["data"].keys() == {"digits"}
    assert spec["tracking_uri"] == "http://server:5000"
    assert "secret" not in text


def test_another_plan_may_not_take_the_name(ledger: Ledger, tmp_path: Path) -> None:
    other = small_plan(tmp_path, "replicates=3")
    with pytest.raises(InputError, match=r"was 2 and is now 3.*extend sweep --study "):
        prepare_manifest(ledger, other, command="", tracking_uri="")


def test_a_setting_that_one_study_leaves_out_is_named_as_not_given(
    ledger: Ledger, tmp_path: Path
) -> None:
    manifest, other = read_manifest(ledger), small_plan(tmp_path, "fixed.noise_std=0.1")
    assert differences(manifest, other) == ["fixed.noise_std was not given and is now 0.1"]
    assert setting_differences(other.study, manifest.study) == {
        "fixed.noise_std": "fixed.noise_std was 0.1 and is now not given"
    }


def test_resources_may_change_between_runs(ledger: Ledger, tmp_path: Path) -> None:
    assert differences(read_manifest(ledger), small_plan(tmp_path, "resources.pack=4")) == []


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        (("plan", "experiment_version"), 0, "version 0"),
        (("data", "digits"), "0" * 32, "data set 'digits', or code of its author, has changed"),
    ],
)
def test_a_sweep_with_other_points_is_not_continued(
    ledger: Ledger, key: tuple[str, str], value: object, word: str
) -> None:
    # A change of version or data changes every point's id, and with them the digest.
    spec = ledger.read_spec()
    spec[key[0]][key[1]] = value
    spec["plan"]["digest"] = "of other ids"
    ledger.write_spec(spec)
    with pytest.raises(InputError, match=word):
        replan(read_manifest(ledger))


def test_the_commit_is_that_of_the_code_not_of_the_working_directory(tmp_path: Path) -> None:
    """Also where the code is installed inside a repository that does not hold it."""
    for command in (
        ["init", "-q"],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "m"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    source = Path(sweeps.__file__).parent
    shutil.copytree(source, tmp_path / "sweeps", ignore=shutil.ignore_patterns("__pycache__"))
    own = subprocess.run(
        ["git", "-C", str(source), "rev-parse", "HEAD"], capture_output=True, text=True
    )
    found = {
        path: subprocess.run(
            [sys.executable, "-c", "import sweeps.store.manifest as m; print(m.git_commit())"],
            cwd=elsewhere, env={**os.environ, "PYTHONPATH": str(path)}, check=True,
            capture_output=True, text=True,
        ).stdout.strip()
        for path in (source.parent, tmp_path)
    }  # fmt: skip
    assert found == {source.parent: own.stdout.strip() or "None", tmp_path: "None"}


@pytest.mark.parametrize("change", [{"format": 2}, {"extra": 1}, {"plan": {"points": 0}}])
def test_an_invalid_spec_is_refused(ledger: Ledger, change: dict[str, object]) -> None:
    ledger.write_spec({**ledger.read_spec(), **change})
    with pytest.raises(InputError, match=r"spec\.yaml is damaged or of another version"):
        read_manifest(ledger)


def test_a_new_name_is_not_taken(tmp_path: Path) -> None:
    first = new_sweep_name(str(tmp_path), "study")
    for suffix in ("", "-2"):
        Path(tmp_path, first + suffix).mkdir()
    second = new_sweep_name(str(tmp_path), "study")
    assert second not in {first, f"{first}-2"}
    assert second.startswith("study-")


def test_an_unreadable_storage_is_reported_without_its_password(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be read") as refused:
        new_sweep_name(f"file://{tmp_path}/file?password=hunter2", "study")
    assert "hunter2" not in str(refused.value)


def test_a_sweep_of_another_version_is_named_so_although_its_study_is_now_invalid(
    ledger: Ledger,
) -> None:
    spec = ledger.read_spec()
    spec["plan"]["experiment_version"] = 0
    spec["study"]["fixed"]["removed_field"] = 4
    ledger.write_spec(spec)
    with pytest.raises(InputError, match="had version 0 and now has"):
        replan(read_manifest(ledger))


OWN = """
name: own
experiment: membership
fixed:
  dataset: {table: people.csv, target: outcome}
  model: {sklearn: "sklearn.linear_model:LogisticRegression"}
  train_size: 20
  draws: 32
  records: 10
space: {model.params.C: {grid: [0.1, 1.0]}}
"""


def test_a_sweep_of_own_data_and_models_takes_new_values_of_its_grid(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},{'yn'[i % 2]}\n" for i in range(60))
    (tmp_path / "people.csv").write_text(f"age,outcome\n{rows}")
    (tmp_path / "own.yaml").write_text(OWN)
    first = make_plan(load(tmp_path / "own.yaml"))
    ledger = Ledger(str(tmp_path), "own")
    write_manifest(ledger, create_manifest(first, "own", command="", tracking_uri=""))
    manifest, more = read_manifest(ledger), "space.model.params.C.grid=[0.1, 1.0, 10.0]"
    extended = plan_extension(manifest, study=load(tmp_path / "own.yaml", [more]))
    assert len(extended.points) == 3
    assert {p.point_id for p in first.points} < {p.point_id for p in extended.points}
    fewer = load(tmp_path / "own.yaml", ["space.model.params.C.grid=[1.0, 10.0]"])
    with pytest.raises(InputError, match=r"space.model.params.C.grid was \[0.1, 1.0\] and is now"):
        plan_extension(manifest, study=fewer)


def test_a_file_that_only_the_storage_names_is_not_read(tmp_path: Path) -> None:
    """The recorded study names a table that is absent: reading it would fail with its name."""
    rows = "".join(f"{i % 7},{'yn'[i % 2]}\n" for i in range(60))
    (tmp_path / "people.csv").write_text(f"age,outcome\n{rows}")
    (tmp_path / "own.yaml").write_text(OWN)
    study = load(tmp_path / "own.yaml")
    ledger = Ledger(str(tmp_path), "own")
    write_manifest(ledger, create_manifest(make_plan(study), "own", command="", tracking_uri=""))
    spec = ledger.read_spec()
    spec["study"]["fixed"]["dataset"]["table"] = "other.csv"
    ledger.write_spec(spec)
    with pytest.raises(
        InputError, match=r"fixed.dataset was .*other.csv.* and is now .*people.csv"
    ):
        plan_extension(read_manifest(ledger), study=study)
