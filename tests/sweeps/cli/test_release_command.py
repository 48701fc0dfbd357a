"""`sweeps release`: a stored releaser on the user's files, and its check."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from support import run_command

from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.trained_releaser import save_releaser
from privnets.points import Replicate, TradeoffPoint
from sweeps.cli.main import main
from sweeps.planning.plan import create_manifest, make_plan
from sweeps.store.artifacts import write_artifacts
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest
from sweeps.study.loader import load

RECORDS = 600
STUDY = """\
name: own
experiment: adversarial
fixed:
  problem: {table: people.csv, secret: sex, ignore: [id]}
  releaser: linear
  noise_std: 0.1
space:
  privacy_weight: {grid: [0.0, 1.0]}
"""


@pytest.fixture
def point_ids(tmp_path, monkeypatch) -> list[str]:
    """Points of a stored sweep: the first copies its input, the second releases noise alone."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    sex = random.choice(["F", "M"], RECORDS)
    frame = pd.DataFrame(
        {
            "id": range(RECORDS),
            "height": 160 + 20 * (sex == "M") + random.standard_normal(RECORDS),
            "age": random.integers(18, 80, RECORDS),
            "sex": sex,
        }
    )
    frame.to_csv("people.csv", index=False)
    (tmp_path / "own.yaml").write_text(STUDY)
    plan = make_plan(load(tmp_path / "own.yaml"))
    ledger = Ledger(str(tmp_path / "sweep-results"), "first")
    write_manifest(ledger, create_manifest(plan, "first", command="", tracking_uri=""))
    points = []
    for point, weights in zip(plan.points, (torch.eye(2), torch.zeros(2, 2)), strict=True):
        stored = save_releaser(problem_of(point.config), point.config, [weights])
        replicates = [
            Replicate(seed, {}, artifacts={"releaser.safetensors": stored}, finished_at=1.0)
            for seed in plan.seeds
        ]
        config = point.config.resolved()
        points.append(TradeoffPoint(point.point_id, "adversarial", config, tuple(replicates)))
    write_artifacts(ledger.directory / "artifacts", points)
    ledger.write_pack("pack", points)
    return [point.point_id for point in plan.points]


@pytest.fixture
def run():
    return partial(run_command, "release")


def test_a_table_is_released_with_its_noise_and_without_the_secret(run, point_ids) -> None:
    original = pd.read_csv("people.csv")
    repeated = original.drop(columns="sex").head(50).set_axis([7] * 50)
    repeated.to_parquet("new.parquet")
    code, shown, _ = run("first", point_ids[0][:6], "new.parquet", "-o", "out.csv", "--keep", "id")
    first, *changes = shown.splitlines()
    assert (code, first) == (0, "released 50 records to out.csv")
    assert [line.partition(", mean")[0] for line in changes] == ["height: numbers", "age: integers"]
    released = pd.read_csv("out.csv")
    assert released.columns.tolist() == ["height", "age", "id"]
    noise = (released["age"] - original["age"][:50]) / original["age"].std()
    assert 0.05 < noise.std() < 0.2  # of 0.1
    assert released["id"].tolist() == list(range(50))
    run("first", point_ids[0], "new.parquet", "-o", "again.csv", "--keep", "id")
    assert not pd.read_csv("again.csv").equals(released)


def test_a_seed_repeats_the_noise(run, point_ids) -> None:
    for name in ("one.csv", "two.csv"):
        assert run("first", point_ids[1], "people.csv", "-o", name, "--seed", "5")[0] == 0
    assert pd.read_csv("one.csv").equals(pd.read_csv("two.csv"))


@pytest.mark.parametrize(
    ("place", "words"),
    [(0, "the release reveals the secret: at least"), (1, "cannot tell: with")],
)
def test_the_check_tells_a_leaking_release_from_noise(run, point_ids, place, words) -> None:
    arguments = ("first", point_ids[place], "people.csv", "-o", "out.csv")
    code, shown, warned = run(*arguments, "--seed", "1", "--check", "--panel", "quick")
    assert code == 0
    assert "INPUT has the records that the sweep trained on" in warned
    assert "floor 0.500" in shown
    assert words in shown
    assert "leakage of the secret" in shown
    assert "450 records to learn from, 60 to tune the attackers, 90 to test on" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("first", "zz", "people.csv", "-o", "o.csv"),
            "no id of a finished point; expected one",
        ),
        (("first", "", "people.csv", "-o", "o.csv"), "the ids of 2 points; expected one of"),
        (("first", "ID", "absent.csv", "-o", "o.csv"), "absent.csv, which cannot be parsed"),
        (("first", "ID", "people.csv", "-o", "no/o.csv"), "no/o.csv cannot be written"),
        (("first", "ID", "people.csv", "-o", "o.csv", "--keep", "age"), "got 'age'"),
        (("first", "ID", "people.csv", "-o", "o.csv", "--replicate", "99"), "got 99; expected"),
        (("first", "ID", "people.csv", "-o", "./people.csv"), "a place apart from the records"),
        (("first", "ID", "people.csv", "-o", "o.txt"), "a file that ends in .csv"),
        (("first", "ID", "people.csv", "-o", "o.csv", "--labels", "x.csv"), "without --check"),
        (
            ("first", "ID", "people.csv", "-o", "o.csv", "--check", "--labels", "x.csv"),
            "labels: got x.csv; expected none",
        ),
        (("first", "ID", "own.csv", "-o", "o.csv"), "got 'height'; expected columns"),
        (("first", "ID", "people.csv", "-o", "old.csv"), "old.csv, which exists; expected a new"),
        (("first", "ID", "nameless.csv", "-o", "o.csv", "--check"), "secret: got 'sex'; expected"),
    ],
)
def test_a_mistake_is_one_message(run, point_ids, arguments, message) -> None:
    pd.DataFrame({"x": [1]}).to_csv("own.csv", index=False)
    pd.DataFrame({"x": [1]}).to_csv("old.csv", index=False)
    pd.read_csv("people.csv").drop(columns="sex").to_csv("nameless.csv", index=False)
    code, _, error = run(*(point_ids[0] if word == "ID" else word for word in arguments))
    assert code == 2
    assert message in error
    assert not Path("o.csv").exists()
    assert Path("old.csv").read_text() == "x\n1\n"


def test_an_existing_output_is_replaced_on_request(run, point_ids) -> None:
    for options, code in (((), 0), ((), 2), (("--overwrite",), 0)):
        assert run("first", point_ids[0], "people.csv", "-o", "o.csv", *options)[0] == code


@pytest.mark.parametrize("options", [(), ("--set", "resources.cpus=2")])
def test_resume_imports_no_code_that_only_the_storage_names(
    point_ids, monkeypatch, capsys, options
) -> None:
    Path("stored_code.py").write_text("raise SystemExit('the code in storage ran')")
    spec = Path("sweep-results/first/spec.yaml")
    releaser = "releaser: {torch: 'stored_code:Net'}"
    spec.write_text(spec.read_text().replace("releaser: linear", releaser))
    assert releaser in spec.read_text()
    monkeypatch.setattr("sys.argv", ["sweeps", "resume", "first", *options])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "continue it with its study file: sweeps run STUDY.yaml" in capsys.readouterr().err


def test_a_damaged_releaser_is_refused(run, point_ids, tmp_path) -> None:
    stored = tmp_path / "sweep-results/first/artifacts" / point_ids[0] / "0-releaser.safetensors"
    stored.write_bytes(stored.read_bytes()[:100])
    code, _, error = run("first", point_ids[0], "people.csv", "-o", "out.csv")
    assert code == 2
    assert "releaser.safetensors is not a valid safetensors file" in error
