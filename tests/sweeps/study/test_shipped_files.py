"""Files of a study that travel with its job."""

import pytest

from sweeps.errors import InputError, StudyError
from sweeps.planning.node_data import local_fingerprints
from sweeps.study import shipped_files
from sweeps.study.loader import load
from sweeps.study.shipped_files import read_study_files, shipped_name

STUDY = """\
name: own
experiment: membership
fixed:
  dataset: {table: data/t.csv, target: outcome}
  model: {sklearn: "own_models:Forest"}
  train_size: 8
  draws: 32
  records: 4
"""


@pytest.fixture
def folder(tmp_path):
    """Folder of a study with a table, modules, and files of no use to it."""
    places = ("data/t.csv", "own_models.py", "helpers/__init__.py", "helpers/a.py", "helpers/b.txt")
    for name in (*places, "notes.txt", "__pycache__/own_models.pyc", "sweeps/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    return tmp_path


def ship(folder, text=STUDY, directories=()):
    (folder / "own.yaml").write_text(text)
    return read_study_files(load(folder / "own.yaml"), directories)


def test_data_and_modules_of_the_folder_travel(folder):
    files = ship(folder)
    assert files.keys() == {"data/t.csv", "own_models.py", "helpers/__init__.py", "helpers/a.py"}
    assert files["helpers/a.py"] == b"helpers/a.py"


def test_installed_models_and_absolute_paths_send_nothing(folder):
    text = STUDY.replace("own_models:Forest", "sklearn.tree:DecisionTreeClassifier")
    text = text.replace("data/t.csv", str(folder / "data/t.csv"))
    assert ship(folder, text) == {}


def test_further_directories_travel_by_their_names(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("x") / "library"
    other.mkdir()
    (other / "__init__.py").write_text("")
    assert "library/__init__.py" in ship(folder, directories=[other])
    with pytest.raises(InputError, match="must be a directory"):
        ship(folder, directories=[other / "__init__.py"])
    with pytest.raises(InputError, match="rename sweeps"):
        ship(folder, directories=[folder / "sweeps"])


def test_files_outside_or_too_large_are_refused_with_advice(folder, monkeypatch):
    (folder.parent / "t.csv").write_text("")
    with pytest.raises(InputError, match="absolute path that every node has"):
        ship(folder, STUDY.replace("data/t.csv", "../t.csv"))
    monkeypatch.setattr(shipped_files, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="absolute path that every node has"):
        ship(folder)


def test_a_node_without_the_experiment_names_the_file_of_the_author(folder):
    ship(folder)
    study = load(folder / "own.yaml")
    assert shipped_name(study) == "own.yaml"
    assert shipped_name(load({"name": "own", "experiment": "membership"})) == "study.yaml"
    lacking = {**study.to_dict(), "experiment": "absent"}
    with pytest.raises(StudyError, match=r'own.yaml experiment: got "absent"; .*installed here'):
        local_fingerprints(lacking, str(folder), shipped_name(study))
