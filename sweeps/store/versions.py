"""Which versions of what matters are installed here."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PROJECT_NAME = "privnets-sweeps"
_PACKAGES = (PROJECT_NAME, "torch", "ray", "mlflow", "numpy", "scikit-learn")
_ABSENT = "absent"


def installed_versions() -> dict[str, str]:
    """Python's version, and that of each package on which results depend; `absent` for none."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return _ABSENT
