"""`sweeps audit`: table, verdict, gates, files and errors."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from support import run_command


@pytest.fixture
def run(tmp_path: Path, monkeypatch):
    """Runs `sweeps audit` in an empty directory: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    return partial(run_command, "audit")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Scores of one model with a large leak: unit Gaussians, two standard deviations apart."""
    member = np.arange(400) % 2 == 0
    scores = np.random.default_rng(0).standard_normal(400) + 2 * member
    path = tmp_path / "saved.csv"
    pd.DataFrame({"score": scores, "member": member}).to_csv(path, index=False)
    return path


def test_the_table_and_the_verdict_are_printed(run, saved) -> None:
    code, shown, _ = run(str(saved))
    assert code == 0
    assert "tpr_at_fpr_0.01" in shown
    assert max(map(len, shown.partition("\n\n")[0].partition("*")[0].splitlines())) <= 120
    assert "the outputs reveal membership" in shown
    assert "Not run: " in shown


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        (["advantage=0.1"], 1),
        (["advantage=0.9"], 0),
        (["auc=0.99", "epsilon_lower_bound=20"], 0),
        (["auc=0.99", "tpr_at_fpr_0.1=0.1"], 1),
    ],
)
def test_a_gate_that_fails_gives_exit_code_1(run, saved, gates, expected) -> None:
    code, shown, _ = run(str(saved), *(word for gate in gates for word in ("--fail-above", gate)))
    assert code == expected
    assert ("FAILS" in shown) == bool(expected)


def test_a_gate_judges_the_upper_end_and_others_on_request(run, saved) -> None:
    code, shown, _ = run(str(saved), "--fail-above", "advantage=0.0", "--json")
    (answer,) = json.loads(shown)["gates"]
    assert (code, answer["has_passed"], answer["judge"]) == (1, False, "upper")
    assert answer["low"] < answer["value"] < answer["high"]
    for judge, end in (("upper", "high"), ("estimate", "value"), ("lower", "low")):
        for step, expected in ((0.002, 0), (-0.002, 1)):
            gate = f"advantage={answer[end] + step}"
            code, shown, _ = run(str(saved), "--fail-above", gate, "--judge", judge)
            assert code == expected, (judge, step)
            assert ("more records narrow it" in shown) == (judge == "upper" and expected == 1)
            assert ("only its lower end was judged" in shown) == (judge == "lower" and not expected)
    assert "Not seen: these attackers have no reference models" in shown


@pytest.mark.parametrize(
    "gate", ["advantage=10", "tpr_at_fpr_0.01=5", "auc=60", "advantage=inf", "auc=1", "auc=-0.1"]
)
def test_a_limit_that_can_never_fail_is_refused(run, saved, gate) -> None:
    code, shown, errors = run(str(saved), "--fail-above", gate)
    assert (code, shown) == (2, "")
    assert " is in [" in errors
    assert ("divide percentages by 100" in errors) == gate.endswith(("10", "5", "60"))


def test_a_signal_of_the_wrong_sign_passes_no_gate(run, tmp_path) -> None:
    member = np.arange(600) % 2 == 0
    random = np.random.default_rng(0)
    p = np.where(member, random.beta(8, 1.5, 600), random.beta(4, 2, 600))
    pd.DataFrame({"loss": np.log(p), "member": member}).to_csv("loglik.csv", index=False)
    pd.DataFrame({"confidence": p, "member": ~member}).to_csv("swapped.csv", index=False)
    for file in ("loglik.csv", "swapped.csv"):
        code, shown, _ = run(file, "--fail-above", "advantage=0.9")
        assert code == 1
        assert "Is the sign right?" in shown


def test_gates_are_written_as_junit_and_json(run, saved, tmp_path) -> None:
    words = ["--fail-above", "advantage=0.1", "--fail-above", "auc=0.99", "--junit", "gates.xml"]
    code, shown, _ = run(str(saved), *words, "--json")
    assert code == 1
    document = json.loads(shown)
    assert (document["passed"], len(document["gates"])) == (False, 2)
    assert document["attacks"][0]["attack"] == "score"
    root = ElementTree.parse(tmp_path / "gates.xml").getroot()
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert cases["auc <= 0.99 (threshold)"].find("failure") is None
    failure = cases["advantage <= 0.1 (threshold)"].find("failure")
    assert failure is not None
    assert "FAILS 0.1" in (failure.get("message") or "")


MODEL = """
import pandas as pd
from sklearn.ensemble import RandomForestClassifier

table = pd.read_csv("table.csv")


def fitted():
    part = table[table["member"] == 1]
    return RandomForestClassifier(20, random_state=0).fit(part[["a", "b"]], part["y"])


def recipe(x, y, seed):
    return RandomForestClassifier(20, random_state=seed).fit(x, y)


ready = fitted()
"""


@pytest.mark.parametrize("name", ["fitted", "ready"])
def test_a_model_is_audited_with_references_and_its_outputs_can_be_read_back(
    run, tmp_path, name
) -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(240, 2)), columns=["a", "b"])
    frame = frame.assign(id=range(240), y=random.choice(["n", "y"], 240), member=[0, 1] * 120)
    frame.to_csv("table.csv", index=False)
    (tmp_path / "own_forest.py").write_text(MODEL)
    words = ["--model", f"own_forest:{name}", "--data", "table.csv", "--labels", "y"]
    words += ["--ignore", "id", "--references", "4", "--fit", "own_forest:recipe"]
    words += ["--report", "page.html"]
    code, shown, _ = run(*words, "--save", "saved.npz", "--json", "--fail-above", "advantage=0.2")
    trained = json.loads(shown)
    assert "not given" not in trained["not_run"]
    page = (tmp_path / "page.html").read_text()
    assert f"own_forest:{name}" in page
    assert "table.csv" in page
    assert code == 1
    assert {"threshold", "offline", "online"} <= {row["family"] for row in trained["attacks"]}
    code, shown, _ = run("saved.npz", "--target", "0", "--json", "--fail-above", "advantage=0.2")
    read = json.loads(shown)
    assert (code, read["attacks"], read["gates"]) == (1, trained["attacks"], trained["gates"])


def test_the_report_and_the_records_are_written(run, saved, tmp_path) -> None:
    code, _, said = run(str(saved), "--report", "page.html", "--records", "records.csv")
    assert code == 0
    assert "page.html" in said
    assert "<h1>Membership audit</h1>" in (tmp_path / "page.html").read_text()
    records = pd.read_csv(tmp_path / "records.csv")
    assert len(records) == 400
    assert records["exposed"].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.csv"], "absent.csv is not a file"),
        (["saved.csv", "--member", "membr"], "(did you mean member?)"),
        (["saved.csv", "--member", "inside"], "member must name the column that has 1 for"),
        (["saved.csv", "--target", "3"], "target must be a model from 0 to 0; got 3"),
        (["saved.csv", "--family", "online"], "family must be one of threshold"),
        (["saved.csv", "--fail-above", "advantag=1"], "--fail-above: metric must be one of adv"),
        (["saved.csv", "--fail-above", "advantag=1"], "(did you mean advantage?); got 'advantag'"),
        (["saved.csv", "--fail-above", "advantage"], "expected METRIC=NUMBER, as advantage=0.1"),
        (["saved.csv", "--fail-above", "advantage=12.5%"], "METRIC=NUMBER; write 12.5% as 0.125"),
        (
            ["saved.csv", "--fail-above", "advantage=0.05", "--fail-above", "advantage=0.9"],
            "--fail-above: advantage must have one limit; got 0.05 and 0.9",
        ),
        (["saved.csv", "--fail-above", "advantage=nan"], "a limit must be at least -1"),
        (["saved.csv", "--report", "page.pdf"], "must end in .html"),
        (["saved.csv", "--report", "absent/page.html"], "there is no directory absent"),
        (["saved.csv", "--records", "records.txt"], "must end in .csv or .parquet"),
        (["saved.csv", "--data", "saved.csv"], "--data needs --model"),
        ([], "give a FILE of saved outputs, or --model"),
        (["--model", "a:b"], "--model needs --data TABLE"),
        (
            ["--model", "m.joblib", "--data", "saved.csv", "--labels", "score"],
            "are not loaded, as pickles",
        ),
        (["--model", "a:b", "--data", "saved.csv"], "saved.csv has no column 'label'"),
        (["--model", "a:b", "--data", "saved.csv", "--labels", "scor"], "(did you mean score?)"),
        (["--model", "a:b", "--data", "no.csv"], "--data no.csv does not exist; give a table"),
        (["--model", "absent:b", "--data", "saved.csv", "--labels", "score"], "'absent:b', which"),
    ],
)
def test_bad_input_gets_one_error_and_exit_code_2(run, saved, arguments, message) -> None:
    code, shown, errors = run(*arguments)
    assert code == 2
    assert message in errors
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
    assert not shown
