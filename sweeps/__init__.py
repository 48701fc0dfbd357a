"""Sweeps that draw privacy-utility trade-off curves: load a study, run it, read its front.

Importing this package loads none of what they need; a name's module loads when it is first used.
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

__all__ = ["attainment", "hypervolume", "load", "open_result", "pareto_front", "run", "submit"]

_DEFINED_IN = {
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
    """Run a study's sweep to its end.

    Args:
        study: A study, a packaged study's name, or a path to a YAML file.
        tracking_uri: Of the MLflow store; MLflow's own default if None.
        address: Of the Ray cluster; None starts a local one.
        storage: Directory or URI that keeps the sweep; `./sweep-results` if None.
        name: The sweep's name; made from the study's if None.
        num_points: How many points the search draws, in place of the study's own number.

    Raises:
        StudyError: With everything that is wrong with the study; nothing was started.
        InputError: If another argument cannot be used; nothing was started.
        KeyboardInterrupt: If it was interrupted; what was finished is kept.
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
    """A public name, from the module that defines it."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_DEFINED_IN[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
