"""What is sent to a cluster with a job: this installation's own packages, and a few files.

So a cluster runs the submitter's code and needs only what that depends on. No data, no results, no
tests travel.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

PACKAGES: Final = ("sweeps", "privnets", "tracking", "cluster")
DISTRIBUTION: Final = "privnets-sweeps"
LAUNCHER: Final = "cluster/launch.sh"
"""Path in a shipment of what starts the cluster's own Python."""

# What a package is found by: its name, version and entry points.
_METADATA = ("METADATA", "entry_points.txt")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


@contextmanager
def shipment(files: Mapping[str, bytes] | None = None) -> Iterator[Path]:
    """A folder that holds what a job needs, for a block.

    Args:
        files: Name to content of further files; a name has no directory in it.
    """
    with TemporaryDirectory(prefix="sweeps-ship-") as made:
        folder = Path(made)
        for package in PACKAGES:
            shutil.copytree(_source(package), folder / package, ignore=_LEFT_OUT)
        _describe(folder)
        for name, content in (files or {}).items():
            if Path(name).name != name:
                raise ValueError(f"a file to ship must be a name alone; got {name!r}")
            (folder / name).write_bytes(content)
        yield folder


def _source(package: str) -> Path:
    """Where a package is installed, without loading it."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"the package {package} is not installed here")
    return Path(found.origin).parent


def _describe(folder: Path) -> None:
    """Write down which distribution this is, as the cluster may not have it installed."""
    try:
        installed: Distribution = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return  # run from a checkout that was never installed; nor would it have been found here
    name = f"{DISTRIBUTION.replace('-', '_')}-{installed.version}.dist-info"
    for part in _METADATA:
        content = installed.read_text(part)
        if content is not None:
            (folder / name).mkdir(exist_ok=True)
            (folder / name / part).write_text(content, encoding="utf-8")
