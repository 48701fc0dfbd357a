"""Readers of untrusted files, by name, for `audit_guard` to watch."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def stored_before() -> None:
    _load("safetensors.torch", "sweeps.analysis.results", "sweeps.store.checkpoints")


def studies_before() -> None:
    _load("sweeps.planning.plan", "sweeps.study.loader")


def datasets_before() -> None:
    _load(*(f"privnets.data.{name}" for name in ("adult", "eco_files", "location30", "mnist")))


def _load(*names: str) -> None:
    for name in names:
        import_module(name)


def stored(storage: str, sweep: str) -> str:
    """All that a ledger's and its checkpoints' readers read."""
    return f"{ledger(storage, sweep)} {checkpoint(storage, sweep)}"


def ledger(storage: str, sweep: str) -> str:
    """Everything that a ledger's readers read."""
    from sweeps.store.ledger import Ledger
    from sweeps.store.reader import read_failures

    found = Ledger(storage, sweep)
    points = found.read_points()
    names = [point.point_id for point in points]
    files = [_content(point.artifacts, name) for point in points for name in point.artifacts]
    failures = read_failures(found, set)
    return repr([names, sorted(found.finished_replicates()), found.unreadable, failures, files])


def checkpoint(storage: str, sweep: str) -> str:
    """Every checkpoint of a sweep."""
    from sweeps.store.checkpoints import Checkpoint, checkpointed_packs
    from sweeps.store.ledger import Ledger

    found = Ledger(storage, sweep)
    saved = [Checkpoint(found, pack, "label").load() for pack in checkpointed_packs(found)]
    return repr([(len(each.points), each.remaining, each.state is not None) for each in saved])


def studies(folder: str) -> str:
    """Every study file in a folder."""
    from sweeps.study.loader import load

    return repr(
        [_result_or_error(lambda path=path: load(path)) for path in sorted(Path(folder).iterdir())]
    )


def datasets(folder: str) -> str:
    """Every file in a folder, as the parser of the data set that it is named after gets it."""
    found = sorted(Path(folder).iterdir())
    return json.dumps(
        {path.name: _result_or_error(lambda path=path: _parse_data(path)) for path in found}
    )


def _parse_data(path: Path) -> object:
    from privnets import cache
    from privnets.data import adult, eco_files, location30, mnist

    content = path.read_bytes()
    match path.name.partition(".")[0]:
        case "adult":
            return adult.parse(content.decode("ascii", errors="replace"), "")[0].shape
        case "location30":
            return location30.parse(content)[0].shape
        case "mnist":
            return mnist.parse(content, "images.gz", (3, 4, 4)).shape
        case "eco_aggregated":
            return eco_files.parse_aggregated(content).dates.shape
        case _:
            return cache.read(path)


def _result_or_error(work: Callable[[], object]) -> str:
    try:
        return repr(work())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _content(files: object, name: str) -> bytes | str:
    try:
        return bytes(files[name])  # type: ignore[index]
    except OSError as error:
        return type(error).__name__
