"""Experiments of other packages, found by their entry points."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import privnets
from privnets.registry import EXPERIMENTS, ExtensionError, Registry

TRIVIAL = Path(__file__).resolve().parents[2] / "benchmarks" / "trivial"


def install_package(
    folder: Path,
    entry: str,
    code: str = "",
    package: str = "added",
    group: str = EXPERIMENTS.group,
) -> None:
    """Creates a package of one module and one entry point, as an installer does."""
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    (folder / f"{package}.py").write_text(code)


def test_a_package_on_the_path_adds_its_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "trivial" not in EXPERIMENTS.names()
    monkeypatch.syspath_prepend(TRIVIAL)
    assert EXPERIMENTS.names() == ("adversarial", "membership", "trivial")
    found = privnets.experiment("trivial")
    points = found.run([found.Config.model_validate({"x": 0.25, "seed": seed}) for seed in (0, 1)])
    assert {point.experiment for point in points} == {"trivial"}
    assert points[0].metrics["utility/error"] == pytest.approx(1 - 0.25**0.5)
    assert privnets.experiments()["trivial"] is found


@pytest.mark.parametrize(
    ("entry", "code", "reason"),
    [
        ("broken = added:Missing", "", "AttributeError"),
        ("broken = added:Broken", "raise OSError('no driver')", "OSError: no driver"),
        ("broken = added:number", "number = 3", "must be a class or an instance of .*got 3"),
        (
            "broken = added:Named",
            "from privnets.membership.experiment import Membership as Named",
            "with the name 'broken'",
        ),
        (
            "broken = added:Half",
            "from privnets.contract import Experiment\nclass Half(Experiment): name = 'broken'",
            "abstract",
        ),
    ],
)
def test_an_experiment_that_cannot_be_loaded_is_reported_with_the_reason(
    entry: str, code: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path, entry, code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "added", raising=False)
    with pytest.raises(ExtensionError, match=reason):
        privnets.experiment("broken")
    assert privnets.experiment("membership").name == "membership"


def test_a_package_cannot_replace_a_built_in_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path, "membership = added:Missing")
    monkeypatch.syspath_prepend(tmp_path)
    own = Registry(
        "experiment",
        EXPERIMENTS.group,
        "privnets.contract:Experiment",
        {"membership": "privnets.membership.experiment:Membership"},
    )
    assert own.names() == ("membership",)
    assert type(own.get("membership")).__module__ == "privnets.membership.experiment"


def test_two_packages_with_one_name_are_both_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        install_package(folder, f"both = {name}:Experiment", package=name)
        monkeypatch.syspath_prepend(folder)
    with pytest.raises(ExtensionError, match=r"one:Experiment.*two:Experiment"):
        privnets.experiment("both")


def test_an_unknown_experiment_is_refused_with_the_known_names() -> None:
    with pytest.raises(ValueError, match="one of adversarial, membership; got 'none'"):
        privnets.experiment("none")
