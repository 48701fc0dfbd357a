"""Studies of the user's own data: names with dots, errors with lines, and no code from storage."""

import pandas as pd
import pytest

from privnets.config import flatten, nest
from sweeps.errors import InputError, StudyError
from sweeps.planning.continuation import create_manifest, replan
from sweeps.planning.plan import make_plan
from sweeps.study.loader import load

STUDY = """\
name: own
experiment: membership
fixed:
  dataset: {table: t.csv, target: outcome}
  model: logistic
  draws: 32
  records: 4
space:
  dataset.scale: {grid: [standard, none]}
  train_size: {grid: [4]}
"""


@pytest.fixture
def write(tmp_path):
    """Writes a study beside its table and returns the study's path."""
    frame = pd.DataFrame({"age": range(40), "outcome": ["yes", "no"] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)

    def write_study(text):
        (tmp_path / "own.yaml").write_text(text)
        return tmp_path / "own.yaml"

    return write_study


def test_a_swept_entry_of_a_mapping_gives_points_of_their_own(write, monkeypatch):
    path = write(STUDY)
    monkeypatch.chdir("/")  # the table lies beside the study, wherever the command runs
    plan = make_plan(load(path))
    scales = [point.config.resolved()["dataset.scale"] for point in plan.points]
    assert scales == ["standard", "none"]
    assert len({point.point_id for point in plan.points}) == 2


def test_a_column_that_may_identify_records_is_noted(write):
    notes = make_plan(load(write(STUDY))).notes
    assert any(note.startswith("column age has another value in each of the 40") for note in notes)


def test_the_identity_of_a_point_follows_the_content_of_the_table(write, tmp_path):
    path = write(STUDY)
    first = make_plan(load(path)).digest
    assert make_plan(load(path)).digest == first
    frame = pd.read_csv(tmp_path / "t.csv")
    frame.assign(age=frame["age"] + 1).to_csv(tmp_path / "t.csv", index=False)
    assert make_plan(load(path)).digest != first


def test_overrides_reach_into_mappings(write):
    changes = ["fixed.dataset.categories=integer", "space.dataset.scale.grid=[none]"]
    (point,) = make_plan(load(write(STUDY), changes)).points
    assert point.config.resolved()["dataset.categories"] == "integer"
    assert point.config.resolved()["dataset.scale"] == "none"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("target: outcome", "target: outcom", r"own.yaml:4 fixed.dataset.target: got 'outcom'"),
        ("target: outcome", "x: 1", r"own.yaml:4 fixed.dataset.target: got nothing"),
        ("outcome}", "outcome, scal: 1}", r"scal: got an unknown key.*did you mean scale"),
        ("table: t.csv", "tabl: t.csv", r"own.yaml:4 fixed.dataset: .* keys table"),
        ("none]", "non]", r'own.yaml:9 space.dataset.scale: got "non"; expected standard or none'),
        ("dataset.scale:", "model.depth:", r"got an entry of model; expected a mapping at model"),
        ("train_size:", "train_siz.x:", r"space.train_siz.x: got an unknown field"),
        ("[4]", "[40]", r"train_size: got 40; expected at most 39 with t.csv"),
        ("  records: 4\n", "", r"records: got the default, 200; expected at most 40 with t.csv"),
    ],
)
def test_a_mistake_in_a_mapping_has_its_line(write, before, after, message):
    with pytest.raises(StudyError, match=message):
        make_plan(load(write(STUDY.replace(before, after))))


@pytest.mark.parametrize(
    ("table", "size", "messages"),
    [
        ("target: outcom, ignor: []", "train_size: ", ["dataset.ignor", "dataset.target"]),
        ("targt: outcome, ignore: [a]", "train_size: ", ["dataset.targt", "dataset.ignore"]),
        ("target: outcome, missin: drop", "train_sise: ", ["dataset.missin", "train_sise"]),
        ("target: outcome", "train_size: 4\n  train_sise: ", ["train_sise"]),
        ("target: outcome, dates: [a], ignore: [b]", "", ["dataset.ignore", "dataset.dates"]),
    ],
)
def test_a_misspelt_name_hides_only_the_entry_that_it_was_meant_for(
    write, tmp_path, table, size, messages
):
    gap = None if "missin" in table else 2.5
    frame = pd.DataFrame({"age": [gap, *[1.5] * 39], "outcome": ["yes", "no"] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    text = STUDY.replace("target: outcome", table).partition("space:")[0]
    path = write(f"{text}  {size or 'train_size: '}4\n")
    with pytest.raises(StudyError) as refused:
        make_plan(load(path))
    assert [error.key.removeprefix("fixed.") for error in refused.value.errors] == messages


def test_a_sweep_of_own_files_is_not_continued_from_its_storage_alone(write):
    plan = make_plan(load(write(STUDY)))
    manifest = create_manifest(plan, "s", command="", tracking_uri="sqlite:///m.db")
    with pytest.raises(InputError, match=r"sweeps run STUDY.yaml --name s"):
        replan(manifest)


def test_nested_values_and_names_with_dots_are_the_same():
    nested = {"model": {"sklearn": "a:B", "params": {"depth": 3}}, "n": 1}
    assert flatten(nested) == {"model.sklearn": "a:B", "model.params.depth": 3, "n": 1}
    assert nest(flatten(nested)) == nested
    with pytest.raises(ValueError, match="model must be a mapping"):
        nest({"model": "linear", "model.depth": 3})
