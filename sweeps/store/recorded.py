"""Recorded sweeps: finished sweeps that come with the project, named `recorded:NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sweeps.errors import InputError
from sweeps.store.filesystem import DEFAULT_STORAGE
from sweeps.store.ledger import Ledger

PREFIX: Final = "recorded:"
_PACKAGE: Final = Path(__file__).parents[1]


def recorded_storage() -> str:
    """Directory of the recorded sweeps: in an installed package, or `docs/recorded` of a checkout.

    Raises:
        InputError: If this installation has none.
    """
    for folder in (_PACKAGE / "recorded", _PACKAGE.parent / "docs" / "recorded"):
        if folder.is_dir():
            return str(folder)
    raise InputError("this installation has no recorded sweeps; they are in a checkout's docs")


def open_ledger(sweep: str, storage: str | None = None) -> Ledger:
    """Names the directory of a sweep, or of a recorded one, to read it.

    Args:
        sweep: `SWEEP`, or `recorded:SWEEP`.
        storage: Local path or URI that contains the sweep; the default if None.

    Raises:
        InputError: If the name or the storage is invalid, or both name a place.
    """
    if not sweep.startswith(PREFIX):
        return Ledger(storage or DEFAULT_STORAGE, sweep)
    if storage is not None:
        raise InputError(f"{sweep} names its own storage; got {storage} as well")
    return Ledger(recorded_storage(), sweep.removeprefix(PREFIX))
