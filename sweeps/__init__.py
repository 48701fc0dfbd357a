"""Sweeps of privacy-utility trade-offs: load a study, run it, and read its Pareto front.

The module of a public name loads when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from sweeps.analysis.pareto import attainment, hypervolume, pareto_front
    from sweeps.analysis.results import Result, open_result
    from sweeps.cli.submission import submit
    from sweeps.study.loader import load
    from sweeps.study.spec import Study

__all__ = [
    "Result",
    "Study",
    "attainment",
    "hypervolume",
    "load",
    "open_result",
    "pareto_front",
    "run",
    "submit",
]

_DEFINED_IN = {
    "Result": "sweeps.analysis.results",
    "Study": "sweeps.study.spec",
    "attainment": "sweeps.analysis.pareto",
    "hypervolume": "sweeps.analysis.pareto",
    "load": "sweeps.study.loader",
    "open_result": "sweeps.analysis.results",
    "pareto_front": "sweeps.analysis.pareto",
    "submit": "sweeps.cli.submission",
}


def run(
    study: Study | str | Path,
    tracking_uri: str | None = None,
    address: str | None = None,
    storage: str | None = None,
    name: str | None = None,
    num_points: int | None = None,
) -> Result:
    """Runs a sweep of a study to its end.

    Args:
        study: A study, a packaged study's name, or a path to a YAML file.
        tracking_uri: URI of the MLflow store; MLflow's default if None.
        address: Address of the Ray cluster; None starts a local one.
        storage: Directory or URI for the sweep's files; `./sweep-results` if None.
        name: Name of the sweep; derived from the study's if None.
        num_points: Number of points, in place of the study's own.

    Raises:
        StudyError: With every mistake of the study, before anything starts.
        InputError: If another argument is invalid, before anything starts.
        KeyboardInterrupt: If it was interrupted; finished points are kept.
    """
    from sweeps.engine.executor import run_study
    from sweeps.study.loader import load
    from sweeps.study.spec import Study

    return run_study(
        study if isinstance(study, Study) else load(study),
        name=name,
        storage=storage,
        tracking_uri=tracking_uri,
        address=address,
        num_points=num_points,
    )


def __getattr__(name: str) -> object:
    """Imports the module of a public name."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_DEFINED_IN[name]), name)


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
