"""Files and modules of users, which a study names relative to its own folder."""

from __future__ import annotations

import ast
import hashlib
import importlib
import os
import resource
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions, version
from pathlib import Path

from privnets.config import did_you_mean
from privnets.data.files import UserFormError, digest

_folder: Path | None = None
# Folder on the search path; folder and digest of the source of each of the user's modules.
_searched: str | None = None
_imported: dict[str, str] = {}
_ROOT = Path(__file__).parents[2]
_LIBRARIES = (
    *(f"{sysconfig.get_path(name)}{os.sep}" for name in ("purelib", "platlib", "stdlib")),
    *(f"{_ROOT / package}{os.sep}" for package in ("privnets", "sweeps")),
)
_MESSAGE_LENGTH = 600


def set_folder(folder: str | os.PathLike[str]) -> None:
    """Sets the folder of the study that this process works on; until then it is the current one."""
    global _folder
    _folder = Path(folder).absolute()


def set_portable_folder(portable: str) -> None:
    """Sets the folder that `portable_folder` described, perhaps on another node."""
    set_folder(_ROOT / portable)


def portable_folder(folder: Path) -> str:
    """Describes a study's folder for other nodes.

    It is relative to the directory of this package if it lies there, because a submitted job ships
    both; otherwise it is an absolute path, which every node must have.
    """
    return str(folder.relative_to(_ROOT) if folder.is_relative_to(_ROOT) else folder)


def folder() -> Path:
    """Returns the folder of the study that this process works on."""
    return _folder or Path.cwd()


def absolute_path(path: str) -> Path:
    """Returns the place of a file that a study names."""
    return folder() / Path(path).expanduser()


def import_object(location: str, field: str) -> object:
    """Imports the object at a location `module:name`.

    The module is an installed one, or lies in the study's folder. One that has changed since its
    import is imported again.

    Args:
        field: Entry of a `UserForm` that gave the location.

    Raises:
        UserFormError: If the location has another form, or cannot be imported. An exception that
            the module raises is its cause.
    """
    module_name, colon, name = location.partition(":")
    if not colon or not module_name or not name:
        raise UserFormError(field, repr(location), "the form module:name")
    _search_folder()
    top = module_name.partition(".")[0]
    sources = _sources_in_folder(top)
    source = f"{folder()} {combine_digests(sources)}"
    if _imported.get(top, source) != source:  # forget the module, and those that it imports
        tops = {Path(file).parts[0].removesuffix(".py") for file in sources}
        for loaded in [each for each in sys.modules if each.partition(".")[0] in tops]:
            del sys.modules[loaded]
        for each in tops:
            _imported.pop(each, None)
        importlib.invalidate_caches()
    try:
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:  # compiled modules would hide an edit that keeps the file's size and second
            value: object = importlib.import_module(module_name)
        finally:
            sys.dont_write_bytecode = before
        if _lies_in_folder(top):
            _imported[top] = source
        for part in name.split("."):
            value = getattr(value, part)
    except Exception as error:  # any exception of the user's module
        given = f"{location!r}, which cannot be imported ({describe_error(error)})"
        if module := sys.modules.get(module_name):
            hint = did_you_mean(name, [each for each in dir(module) if not each.startswith("_")])
        else:
            hint = did_you_mean(module_name, [path.stem for path in folder().glob("*.py")])
        expected = f"a module in {folder()} or an installed package, and a name in it{hint}"
        raise UserFormError(field, given, expected) from error
    return value


def _search_folder() -> None:
    """Puts the study's folder on the search path in place of another study's."""
    global _searched
    wanted = str(folder())
    if _searched == wanted:
        return
    if _searched in sys.path:
        sys.path.remove(_searched)
    if wanted not in sys.path:
        sys.path.append(wanted)  # last, so that no file there replaces a library's module
        _searched = wanted
    importlib.invalidate_caches()


def _lies_in_folder(top: str) -> bool:
    """Whether a module in memory comes from the study's folder, not from an installed package."""
    module = sys.modules[top]
    paths = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    return any(Path(path).is_relative_to(folder()) for path in paths if path)


def _sources_in_folder(top: str) -> dict[str, str]:
    """Digests of a module's Python files, and of all modules in the folder that they import.

    Returns:
        Path from the study's folder to digest; empty for a module that is not in the folder.
    """
    sources: dict[str, str] = {}
    pending, seen = [top], {top}
    while pending:
        spec = PathFinder.find_spec(pending.pop(), [str(folder())])
        if spec is None:
            continue
        places = spec.submodule_search_locations  # of a package
        alone = [Path(spec.origin)] if spec.origin else []
        files = (
            alone if places is None else sorted(p for q in places for p in Path(q).rglob("*.py"))
        )
        for path in files:
            sources[str(path.relative_to(folder()))] = content = digest(path)
            imported = _imported_names(path, content) - seen
            seen |= imported
            pending += imported
    return sources


@lru_cache(maxsize=1024)
def _imported_names(path: Path, _content: str) -> frozenset[str]:
    """Top-level modules that a file imports anywhere; empty if it is not valid Python."""
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (SyntaxError, ValueError):
        return frozenset()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
    ]
    return frozenset(name.partition(".")[0] for name in names)


def describe_error(error: BaseException) -> str:
    """Type and message of an exception, in one line, with the user's innermost file and line."""
    # Of libraries' compiled code, tracebacks name a relative path.
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.isabs(frame.filename) and not frame.filename.startswith(_LIBRARIES)
        if not {"site-packages", "dist-packages"} & set(Path(frame.filename).parts)
    ]
    place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    is_limit = isinstance(error, MemoryError) and is_memory_limited()
    reason = "memory limit of the process reached: " if is_limit else ""
    # Libraries in C++ append their stack to the message.
    text = " ".join(str(error).partition("\nStack trace:")[0].split())
    if len(text) > _MESSAGE_LENGTH:
        text = f"{text[:_MESSAGE_LENGTH]}..."
    message = f"{type(error).__name__}: {text}".removesuffix(": ")
    return f"{reason}{message}{place}"


def is_memory_limited() -> bool:
    """Whether this process may not allocate all memory of its machine."""
    return resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY


def source_digest(location: str, field: str) -> str:
    """Identifies the source of the object at a location `module:name`.

    For a module in the study's folder it is a hash of all Python files of its top-level package,
    and of the modules in the folder that these import. For an installed package it is the
    package's name and version.

    Raises:
        UserFormError: If it cannot be imported.
    """
    import_object(location, field)
    top = location.partition(":")[0].partition(".")[0]
    if _lies_in_folder(top):
        return combine_digests(_sources_in_folder(top))
    if distributions := packages_distributions().get(top):
        return " ".join(f"{name} {version(name)}" for name in sorted(set(distributions)))
    file = getattr(sys.modules[top], "__file__", None)
    python = f"python {sys.version_info.major}.{sys.version_info.minor}"
    return digest(Path(file)) if file else python


def combine_digests(digests: Mapping[str, str]) -> str:
    """Hash of names and digests: 32 hexadecimal digits."""
    text = "\n".join(f"{name} {value}" for name, value in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
