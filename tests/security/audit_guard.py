"""Calls a function of a module in this process and reports what it did beyond reading.

Run as a script: MODULE, FUNCTION and its arguments, all text. Python's audit events tell of code
that is run, processes, connections and files that are written; what hostile files are made with
carries `MARK`, so that no code of theirs can hide among that of libraries.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from types import CodeType
from typing import Any

MARK = "hostile_7f3a1c"
"""In every payload: no source of a library has it."""

_NEVER = (
    "pickle.find_class",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "subprocess.Popen",
    "pty.spawn",
    "socket.connect",
    "socket.bind",
    "ctypes.dlopen",
    "code.__new__",
)
_CHANGES = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "shutil.rmtree",
    "shutil.move",
    "os.truncate",
)


def main() -> None:
    module, function, *arguments = sys.argv[1:]
    work: Callable[..., Any] = getattr(import_module(module), function)
    work_before = getattr(import_module(module), f"{function}_before", None)
    if work_before is not None:  # loads libraries, whose own ways are not what is watched
        work_before()
    seen: list[str] = []
    watching = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching and _is_amiss(event, args):
            seen.append(f"{event} {args!r}"[:300])

    sys.addaudithook(hook)
    try:
        said = work(*arguments)
    except Exception as error:
        said = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
    watching.clear()
    print(json.dumps({"said": said, "seen": seen}))


def _is_amiss(event: str, args: tuple[Any, ...]) -> bool:
    if event in _NEVER or event in _CHANGES:
        return not _is_library(args)
    if event in ("exec", "compile"):
        return _is_marked(args[0])
    if event == "import":
        return MARK in str(args[0])
    if event == "open":
        path, mode, flags = (*args, None, None)[:3]
        return MARK in str(path) or _writes(mode, flags, path)
    return False


def _writes(mode: Any, flags: Any, path: Any) -> bool:
    if str(path).startswith(("/dev/", "/proc/")):
        return False
    wanted = isinstance(mode, str) and bool(set(mode) & set("wax+"))
    return wanted or (isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR)))


def _is_library(args: tuple[Any, ...]) -> bool:
    """Whether a library that is loaded now does it, as ctypes loads shared objects of wheels."""
    return any(isinstance(a, str) and a.startswith(sys.prefix) for a in args)


def _is_marked(what: Any) -> bool:
    if isinstance(what, CodeType):
        inner = [c for c in what.co_consts if isinstance(c, CodeType)]
        return MARK in repr((what.co_names, what.co_consts)) or any(map(_is_marked, inner))
    return MARK in repr(what)


if __name__ == "__main__":
    main()
