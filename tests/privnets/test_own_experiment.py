"""A user's function as an experiment: fields of its parameters, metrics, errors by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

import privnets
from privnets.data import UserFormError
from privnets.references.user_files import set_folder
from privnets.testing import check_experiment

CODE = '''
from typing import Literal

def run(size: int, noise: float = 0.5, kind: Literal["a", "b"] = "a",
        limit: float | None = None, seed: int = 0):
    """What it measures."""
    return {"leakage": size * noise, "accuracy": float(seed)}

run.metrics = {"leakage": "min", "accuracy": "max"}
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine_train.py").write_text(CODE)
    set_folder(tmp_path)
    return tmp_path


def test_parameters_are_fields_and_returned_values_metrics(folder: Path) -> None:
    experiment = privnets.experiment("mine_train:run")
    config = experiment.Config(size=3, seed=7)
    assert config.resolved() == {"size": 3, "noise": 0.5, "kind": "a", "limit": None}
    (point,) = experiment.run([config])
    assert point.replicates[0].metrics == {"leakage": 1.5, "accuracy": 7.0}
    assert experiment.default_objectives(config) == {"leakage": "min", "accuracy": "max"}
    for wrong in ({"size": 3, "kind": "c"}, {"size": 3, "widht": 1}, {}):
        with pytest.raises(ValidationError):
            experiment.Config(**wrong)


def test_function_meets_the_checks_of_experiments(folder: Path) -> None:
    experiment = privnets.experiment("mine_train:run")
    check_experiment(experiment, [experiment.Config(size=3, seed=s) for s in (0, 1)])


def test_edited_function_gives_other_points_and_an_equal_one_the_same(folder: Path) -> None:
    first = privnets.experiment("mine_train:run")
    assert privnets.experiment("mine_train:run") is first
    identity = first.point_id(first.Config(size=3))
    (folder / "mine_train.py").write_text(CODE.replace("size * noise", "size - noise"))
    second = privnets.experiment("mine_train:run")
    config = second.Config(size=3)
    assert second.run([config])[0].replicates[0].metrics["leakage"] == 2.5
    assert second.point_id(config) != identity
    (folder / "mine_train.py").write_text(CODE)
    assert privnets.experiment("mine_train:run").point_id(config) == identity


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("run.metrics", "run.others"), "no attribute metrics"),
        (('"leakage": "min"', '"leakage": "low"'), "metrics = "),
        ((", seed: int = 0", ""), "without a parameter seed"),
        (("size: int", "size: list"), "with the parameter size: list"),
        (("def run", "def ran"), "cannot be imported"),
        (("noise: float = 0.5", 'noise: float = "x"'), "with the parameter noise"),
        (("noise: float = 0.5", 'noise: float = float("inf")'), "with the parameter noise"),
        (("noise", "structure"), "with the parameter structure"),
        (("noise", "_noise"), "with the parameter _noise"),
        (("float | None", '"Unknown"'), "cannot be read"),
        (('"leakage": "min"', '"leakage": ["min"]'), "metrics = "),
        (('"leakage": "min"', '"status": "min"'), "with the metric 'status'"),
        (('"leakage": "min"', '"accuracy.std": "min"'), "with the metric 'accuracy.std'"),
    ],
)
def test_function_that_is_no_experiment_is_refused(
    folder: Path, change: tuple[str, str], reason: str
) -> None:
    assert change[0] in CODE
    (folder / "mine_train.py").write_text(CODE.replace(*change))
    with pytest.raises(UserFormError, match=reason):
        privnets.experiment("mine_train:run")


def test_default_none_widens_the_type(folder: Path) -> None:
    (folder / "mine_train.py").write_text(CODE.replace("noise: float = 0.5", "noise: float = None"))
    config = privnets.experiment("mine_train:run").Config
    assert config(size=1).noise is None  # type: ignore[attr-defined]
    assert config(size=1, noise=0.5).noise == 0.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("return None", "must return the metrics leakage, accuracy; got None"),
        ("open('absent.csv')", "FileNotFoundError.*mine_train.py, line 7"),
    ],
)
def test_failing_functions_are_named(folder: Path, code: str, reason: str) -> None:
    before = 'return {"leakage": size * noise, "accuracy": float(seed)}'
    assert before in CODE
    (folder / "mine_train.py").write_text(CODE.replace(before, code))
    experiment = privnets.experiment("mine_train:run")
    with pytest.raises((ValueError, RuntimeError), match=reason):
        experiment.run([experiment.Config(size=1)])


def test_other_metrics_than_declared_are_refused(folder: Path) -> None:
    (folder / "mine_train.py").write_text(CODE.replace('"accuracy": float', '"precision": float'))
    experiment = privnets.experiment("mine_train:run")
    with pytest.raises(
        ValueError, match="must return the metrics leakage, accuracy; got leakage, p"
    ):
        experiment.run([experiment.Config(size=1)])
