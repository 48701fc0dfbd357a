"""Artifacts: files of replicates, stored beside the ledger and read on access."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from privnets.points import TradeoffPoint
from sweeps.store.filesystem import Directory

_MAX_BYTES: Final = 256 * 2**20
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def is_safe_name(name: str) -> bool:
    """Returns whether a name can only be that of a file or directory, never a path elsewhere."""
    return bool(_SAFE_NAME.fullmatch(name))


@dataclass(frozen=True)
class StoredArtifacts(Mapping[str, bytes]):
    """Artifacts of a replicate by name; each access reads the file in the point's directory."""

    directory: Directory
    seed: int
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> bytes:
        """Reads an artifact.

        Raises:
            KeyError: If the replicate has no artifact of that name.
            OSError: If the file is absent, larger than 256 MiB, or cannot be read.
        """
        if name not in self.names:
            raise KeyError(name)
        return self.directory.read(_file_name(self.seed, name), _MAX_BYTES)

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names."""
        return iter(self.names)

    def __len__(self) -> int:
        """Number of artifacts."""
        return len(self.names)


def write_artifacts(directory: Directory, points: Iterable[TradeoffPoint]) -> None:
    """Writes the artifacts of every replicate to `<point_id>/<seed>-<name>`.

    Raises:
        ValueError: If a name could lead out of its directory.
    """
    for point in points:
        for replicate in point.replicates:
            for name, content in replicate.artifacts.items():
                if not is_safe_name(name):
                    raise ValueError(f"an artifact's name must be a plain file name; got {name!r}.")
                (directory / point.point_id).write(_file_name(replicate.seed, name), content)


def _file_name(seed: int, name: str) -> str:
    return f"{seed}-{name}"
