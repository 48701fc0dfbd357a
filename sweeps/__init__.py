"""Sweeps of privacy-utility trade-offs: load a study, run it, and read its Pareto front.

The module of a public name loads when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privnets.points import TradeoffPoint
    from sweeps.analysis.pareto import attainment as attainment
    from sweeps.analysis.pareto import hypervolume as hypervolume
    from sweeps.analysis.pareto import pareto_front as pareto_front
    from sweeps.engine.executor import extend as extend
    from sweeps.engine.executor import run as run
    from sweeps.engine.local import train as train
    from sweeps.planning.frontier.sampler import FrontierSampler as FrontierSampler
    from sweeps.remote.submission import submit as submit
    from sweeps.report import display
    from sweeps.study.loader import load as load
    from sweeps.study.spec import Study as Study

    Point = TradeoffPoint
    Result = display.DisplayedResult
    open_result = display.open_displayed

_DEFINED_IN = {
    "FrontierSampler": "sweeps.planning.frontier.sampler",
    "Point": "privnets.points:TradeoffPoint",
    "Result": "sweeps.report.display:DisplayedResult",
    "Study": "sweeps.study.spec",
    "attainment": "sweeps.analysis.pareto",
    "extend": "sweeps.engine.executor",
    "hypervolume": "sweeps.analysis.pareto",
    "load": "sweeps.study.loader",
    "open_result": "sweeps.report.display:open_displayed",
    "pareto_front": "sweeps.analysis.pareto",
    "run": "sweeps.engine.executor",
    "submit": "sweeps.remote.submission",
    "train": "sweeps.engine.local",
}
__all__ = list(_DEFINED_IN)


def __getattr__(name: str) -> object:
    """Imports the module of a public name."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, other = _DEFINED_IN[name].partition(":")
    return getattr(import_module(module), other or name)


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
