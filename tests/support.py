"""Skip marks and commands of several test modules."""

from __future__ import annotations

import io
import sys
from collections.abc import Generator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from privnets import data

T = TypeVar("T")


def requires_data(name: str) -> pytest.MarkDecorator:
    """Skips a test, with the reason, if a data set is absent; altered files fail it.

    Raises:
        DataError: If no data set has that name.
    """
    return pytest.mark.skipif(
        data.status(name) == "absent",
        reason=f"data set {name!r} is not in {data.directory()} (PRIVNETS_DATA)",
    )


def add_data_set(monkeypatch: pytest.MonkeyPatch, info: data.DatasetInfo, root: Path) -> None:
    """Adds a data set to the catalog, and makes `root` the data directory."""
    source = type("Source", (data.DataSource,), {"info": info})()
    monkeypatch.setitem(data.DATASETS._loaded, info.name, source)
    monkeypatch.setenv("PRIVNETS_DATA", str(root))


class Ended(NamedTuple):
    """Exit code and output of a command."""

    exit_code: int
    stdout: str
    stderr: str


def run_command(*words: str) -> Ended:
    """Runs `sweeps WORDS` in this process, which has loaded its libraries already."""
    from sweeps.cli.main import main

    output, errors = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        patch.setattr(sys, "argv", ["sweeps", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
    return Ended(int(stopped.value.code or 0), output.getvalue(), errors.getvalue())


def finish(work: Generator[object, None, T]) -> T:
    """Runs work that pauses to its end, and returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
