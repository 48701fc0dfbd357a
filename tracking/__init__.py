"""Trade-off points in MLflow: record them, read them back, and verify that none is missing.

Every function takes a `tracking_uri`. None means `MLFLOW_TRACKING_URI`, or else `mlflow.db` in
the working directory. Importing this package loads neither MLflow nor pandas: each public name is
imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tracking.errors import TrackingError

if TYPE_CHECKING:
    from tracking.reading import compare, load_points, read_sweep_file
    from tracking.recorder import Recorder, record
    from tracking.store import check, create
    from tracking.uris import resolve_uri

_MODULES = {
    "Recorder": "tracking.recorder",
    "check": "tracking.store",
    "compare": "tracking.reading",
    "create": "tracking.store",
    "load_points": "tracking.reading",
    "read_sweep_file": "tracking.reading",
    "record": "tracking.recorder",
    "resolve_uri": "tracking.uris",
}

OBJECTIVE = "Objective/"
"""Prefix of objectives in MLflow. Its pages sort names, and *Compare* opens with the first metric:
capital letters come before small ones."""

__all__ = [
    "OBJECTIVE",
    "Recorder",
    "TrackingError",
    "check",
    "compare",
    "create",
    "load_points",
    "read_sweep_file",
    "record",
    "resolve_uri",
]


def __getattr__(name: str) -> object:
    """Imports a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'tracking' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
