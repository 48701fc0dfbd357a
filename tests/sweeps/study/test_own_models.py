"""Studies of the user's own target models: swept parameters, and errors with lines."""

import pandas as pd
import psutil
import pytest

from privnets.membership.user_models import estimator_training
from sweeps.errors import StudyError
from sweeps.planning.packing import Capacity, make_packs
from sweeps.planning.plan import make_plan
from sweeps.study.loader import load

STUDY = """\
name: own
experiment: membership
fixed:
  dataset: {table: t.csv, target: outcome}
  model:
    sklearn: sklearn.tree:DecisionTreeClassifier
    params: {criterion: entropy}
  train_size: 8
  draws: 32
  records: 4
space:
  model.params.max_depth: {grid: [1, 2, 3]}
"""


@pytest.fixture
def write(tmp_path):
    """Writes a study beside its table and returns the study's path."""
    frame = pd.DataFrame({"age": range(40), "outcome": ["yes", "no"] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "broken_model.py").write_text("\n1 / 0\n")

    def write_study(text):
        (tmp_path / "own.yaml").write_text(text)
        return tmp_path / "own.yaml"

    return write_study


def test_parameters_of_a_model_are_swept_and_share_a_pack(write):
    plan = make_plan(load(write(STUDY)))
    depths = [point.config.resolved()["model.params.max_depth"] for point in plan.points]
    assert sorted(depths) == [1, 2, 3]
    replicates = plan.replicates()
    packs = make_packs(replicates, experiment="membership", size=3, capacity=Capacity(1, 2**30))
    assert len(packs) == len(replicates) // 3


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("max_depth", "max_dept", r"own.yaml:12 space.model.params.max_dept: .*mean max_depth\?"),
        ("criterion", "criterio", r"own.yaml:7 fixed.model.params.criterio: .*mean criterion\?"),
        ("params: {crit", "param: {crit", r"own.yaml:7 .*an unknown key.*did you mean params"),
        ("tree:DecisionTreeClassifier", "tree:Tree", r"own.yaml:6 fixed.model.sklearn: got 'skl"),
        ("sklearn.tree:DecisionTreeClassifier", "broken_model:A", r"broken_model.py, line 2\)"),
        ("train_size", "noise_std: 1.0\n  train_size", "noise_std: got 1"),
        ("TreeClassifier", "TreeClasifier", "did you mean DecisionTreeClassifier"),
        ("sklearn.tree:DecisionTreeClassifier", "brokn_model:A", "did you mean broken_model"),
    ],
)
def test_a_mistake_in_a_model_has_its_line(write, before, after, message):
    with pytest.raises(StudyError, match=message):
        make_plan(load(write(STUDY.replace(before, after))))


PIPELINES = """\
import os

from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

columns = ColumnTransformer([("numbers", SimpleImputer(strategy="median"), ["balance"])])
by_name = make_pipeline(columns, LogisticRegression())
whole = make_pipeline(SimpleImputer(), LogisticRegression())


class Own(LogisticRegression):
    def fit(self, x, y):
        raise RuntimeError("no licence")


class Ending(LogisticRegression):
    def fit(self, x, y):
        os._exit(3)
"""


@pytest.fixture
def patient(monkeypatch):
    """Waits for trials on a busy machine."""
    monkeypatch.setattr(estimator_training, "_TRIAL_SECONDS", 300.0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "by_name",
            r"own.yaml:6 fixed.model.sklearn: got 'own_pipes:by_name', whose training fails: "
            r"ValueError: Cannot use median strategy.*; the model gets the texts of 'balance'.*"
            r"'1,000', '1,001'.*thousands: \",\"\), unless its own code reads them; expected an "
            r"estimator that trains on 8 records",
        ),
        ("whole", r"Cannot use mean strategy with non-numeric data"),
        ("Own", r"RuntimeError: no licence \(.*own_pipes.py, line 15\)"),
    ],
)
def test_an_estimator_is_tried_before_a_sweep_starts(write, patient, tmp_path, model, message):
    (tmp_path / "own_pipes.py").write_text(PIPELINES)
    frame = pd.DataFrame({"balance": [f"1,{i:03}" for i in range(40)], "y": ["a", "b"] * 20})
    frame.to_csv(tmp_path / "raw.csv", index=False)
    table = "{table: raw.csv, target: y}"
    text = STUDY.replace("{table: t.csv, target: outcome}", table).partition("space:")[0]
    text = text.replace("sklearn.tree:DecisionTreeClassifier", f"own_pipes:{model}")
    text = text.replace("    params: {criterion: entropy}\n", "    columns: raw\n")
    with pytest.raises(StudyError, match=message):
        make_plan(load(write(text)))


def test_a_trial_that_ends_its_process_refuses_nothing(write, patient, tmp_path):
    (tmp_path / "own_pipes.py").write_text(PIPELINES)
    text = STUDY.partition("space:")[0].replace("    params: {criterion: entropy}\n", "")
    text = text.replace("sklearn.tree:DecisionTreeClassifier", "own_pipes:Ending")
    assert len(make_plan(load(write(text))).points) == 1


def test_mistakes_in_data_and_model_are_reported_together(write):
    text = STUDY.replace("outcome}", "outcom, ignore: [nam]}").replace("tree:Dec", "tree:Doc")
    with pytest.raises(StudyError) as refused:
        make_plan(load(write(text)))
    message = str(refused.value)
    for part in ("dataset.target: got 'outcom'", "dataset.ignore: got 'nam'", "model.sklearn: got"):
        assert part in message
    assert "user_files.py" not in message


def test_the_process_that_tried_an_estimator_ends_with_the_trial(write):
    """It would keep the output of a check on a cluster open, for which `submit` waits."""
    before = set(psutil.Process().children(recursive=True))
    make_plan(load(write(STUDY)))
    left = set(psutil.Process().children(recursive=True)) - before
    assert not [each for each in left if "popen_loky" in " ".join(each.cmdline())]
