"""Files of a study that travel with its job: its author's modules and data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from privnets.config import flatten
from sweeps.errors import InputError
from sweeps.study.spec import Study

PACKAGES: Final = ("sweeps", "privnets", "tracking", "cluster")
"""Packages of this project, which every job has."""

_STUDY_FILE: Final = "study.yaml"

MAX_BYTES: Final = 64 * 2**20
"""Largest total size of the files that travel with a job."""


def read_study_files(study: Study, directories: Sequence[Path] = ()) -> dict[str, bytes]:
    """Reads the files that a study's job needs, by their paths from the study's folder.

    These are the data files that the study names by relative paths. If it names a module in its
    folder, they include all Python modules and packages there.

    Args:
        directories: Further modules or packages to send: directories, by their names.

    Raises:
        InputError: If a file cannot be read, has the name of a package of this project, or if they
            are larger than 64 MiB in all.
    """
    folder = study.source.folder
    # Besides the experiment, texts in mappings, which only the author's own data and models are.
    entries = {name: [value] for name, value in flatten(study.constants).items()}
    entries |= {name: [*(axis.values() or ())] for name, axis in study.space.items()}
    texts = [text for name, values in entries.items() if "." in name for text in values]
    paths: dict[str, Path] = {}
    for text in (study.experiment, *texts):
        paths |= _named_files(folder, text) if isinstance(text, str) else {}
    for directory in directories:
        if not directory.is_dir():
            raise InputError(f"--with must be a directory; got {directory}")
        root = directory.resolve()
        paths |= {path.relative_to(root.parent).as_posix(): path for path in _files(root)}
    for name in paths:
        top = Path(name).parts[0]
        if top.removesuffix(".py") in PACKAGES:
            raise InputError(f"rename {top}: the job has a package of this name already")
    try:
        total = sum(path.stat().st_size for path in paths.values())
        if total > MAX_BYTES:
            largest = max(paths.values(), key=lambda path: path.stat().st_size)
            raise InputError(
                f"the study's files have {total:,} bytes, and at most {MAX_BYTES:,} travel with a "
                f"job; name large ones, such as {largest}, by an absolute path that every node has"
            )
        return {name: path.read_bytes() for name, path in paths.items()}
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read ({error.strerror})") from error


def shipped_name(study: Study) -> str:
    """Name of a study's file in its job: that of the author's own file, for error messages."""
    name = Path(study.source.file).name
    is_file = name.endswith((".yaml", ".yml")) and not name.startswith("-")
    return name if is_file else _STUDY_FILE


def _named_files(folder: Path, text: str) -> dict[str, Path]:
    """Files to which an entry refers, if it is a location `module:name` or a relative path."""
    top = text.partition(":")[0].partition(".")[0]
    if ":" in text and ((folder / f"{top}.py").is_file() or (folder / top).is_dir()):
        packages = [path.parent for path in folder.glob("*/__init__.py")]
        modules = [*folder.glob("*.py"), *(p for p in packages if p.name not in PACKAGES)]
        found = [path for module in modules for path in _files(module) if path.suffix == ".py"]
    else:
        path = Path(text)
        if path.is_absolute() or not text.strip() or not (folder / path).exists():
            return {}
        if ".." in path.parts:
            raise InputError(
                f"{text} is outside of the study's folder, so it cannot travel with the job; move "
                "it there, or name it by an absolute path that every node has"
            )
        found = [*_files(folder / path)]
    return {path.relative_to(folder).as_posix(): path for path in found}


def _files(place: Path) -> Iterator[Path]:
    """The file, or all files below a directory that are not hidden or compiled."""
    if place.is_file():
        yield place
        return
    for path in sorted(place.rglob("*")):
        parts = path.relative_to(place).parts
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in parts):
            yield path
