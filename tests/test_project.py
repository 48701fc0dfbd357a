"""Properties of the whole project: light imports, safe readers, and the content of a wheel."""

from __future__ import annotations

import ast
import os
import re
import resource
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
STUDIES = {
    "quickstart",
    "adult-train-size",
    "adult-train-size-network",
    "adult-regularization",
    "adult-features",
    "adult-noise",
    "adult-epsilon",
    "adult-leakage-regularizer",
    "cifar10-shadows",
    "mnist-dp-sgd",
}
HEAVY = {"matplotlib", "mlflow", "numpy", "optuna", "pandas", "plotly", "pyarrow", "pydantic"}
HEAVY |= {"ray", "scipy", "sklearn", "torch"}
# Packages, the command line, the client of clusters and the names of experiments.
LIGHT = """
import cluster.jobs, cluster.submission, privnets, sweeps.cli.main, tracking
from privnets.registry import EXPERIMENTS
EXPERIMENTS.names()
"""
PACKAGES = ("cluster", "privnets", "sweeps", "tracking")
UNSAFE_MODULES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
UNSAFE_CALLS = {"full_load", "load", "load_all", "unsafe_load"}
# Places of one person's machine; /home/sweeps is one of the image that `cluster/deploy` builds.
LOCAL_PATH = re.compile(r"(?<![\w.])/(?!home/sweeps\b)(home|mnt|root|Users|work)/\w")


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _script(name: str) -> Path:
    return Path(sys.executable).with_name(name)


def _sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_imports_load_nothing_heavy() -> None:
    loaded = _run(sys.executable, "-c", f"{LIGHT}\nimport sys\nprint(*sys.modules)")
    assert HEAVY & set(loaded.split()) == set()


def test_help_answers_within_half_a_second_of_cpu() -> None:
    assert "pareto" in _run(_script("sweeps"), "--help")
    # The least of several: another process on the same core can only add to it.
    assert min(_cpu_seconds(_script("sweeps"), "--help") for _ in range(3)) < 0.5


def _cpu_seconds(*command: str | Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(*command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_nothing_read_can_run_code() -> None:
    """No source imports a pickling module, nor loads YAML or tensors in the unsafe way."""
    trees = {path: ast.parse(path.read_text()) for path in _sources()}
    found = [
        (path, name) for path in trees for node in ast.walk(trees[path]) for name in _unsafe(node)
    ]
    assert not found


def _unsafe(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (name.name for name in names if name.name in UNSAFE_MODULES)
        case ast.ImportFrom(module=str(module)) if module in UNSAFE_MODULES:
            yield module
        case ast.Call(func=ast.Attribute(value=ast.Name(id="yaml"), attr=attr)):
            if attr in UNSAFE_CALLS:
                yield f"yaml.{attr}"
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load"), keywords=words):
            if not any(w.arg == "weights_only" and ast.unparse(w.value) == "True" for w in words):
                yield "torch.load"


def test_no_file_names_a_place_of_one_machine() -> None:
    texts = [*_sources(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "sweeps").rglob("*.yaml")]
    texts += [ROOT / name for name in ("Makefile", "README.md", "constraints.txt")]
    assert not [path for path in texts if LOCAL_PATH.search(path.read_text())]


def test_every_requirement_is_pinned_to_the_version_tested_here() -> None:
    """The project's requirements and all that these require, down to the last."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    # Without a build's own suffix, as in 2.13.0+cpu.
    installed = {name: version(name).partition("+")[0] for name in _closure(wanted)}
    assert {name for name in installed if pinned.get(name) != installed[name]} == set()


def _closure(requirements: Iterable[str]) -> set[str]:
    found: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, asked_by = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": asked_by}):
            continue
        name = canonicalize_name(requirement.name)
        for extra in {(name, part) for part in ("", *requirement.extras)} - found:
            found.add(extra)
            waiting += [(Requirement(text), extra[1]) for text in requires(name) or ()]
    return {name for name, _ in found}


def test_wheel_carries_every_study_and_nothing_of_the_tests(tmp_path: Path) -> None:
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    carried = set(zipfile.ZipFile(wheel).namelist())
    assert {f"sweeps/studies/{study}.yaml" for study in STUDIES} <= carried
    assert {str(path.relative_to(ROOT)) for path in _sources()} <= carried
    assert {name.split("/")[0] for name in carried if "dist-info" not in name} == set(PACKAGES)


@pytest.mark.ray
def test_wheel_in_a_fresh_environment_runs_the_demo_study(tmp_path: Path) -> None:
    """Without the checkout; the requirements are those of this environment."""
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    _run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    _run(python, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", wheel)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    settings = ("replicates=2", "space.noise_std.grid=[0.0, 10.0]", "fixed.draws=112")
    changes = [word for setting in settings for word in ("--set", setting)]
    sweeps, home = python.with_name("sweeps"), tmp_path / "home"
    home.mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for words in (["run", "quickstart", "--name", "demo", *changes], ["verify", "demo"]):
        subprocess.run([sweeps, *words], cwd=home, env=environment, check=True)
    assert (home / "sweep-results" / "demo" / "report.html").exists()
    code = "import sweeps; print(sweeps.__file__); sweeps.open_result('recorded:quickstart')"
    shown = subprocess.run(
        [python, "-c", code], cwd=home, env=environment, check=True, capture_output=True, text=True
    )
    assert Path(shown.stdout.strip()).is_relative_to(packages)
