"""Files that points come with: stored beside the ledger, read when asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from privnets.points import TradeoffPoint
from sweeps.store.filesystem import Directory

_MOST_BYTES = 256 * 2**20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def is_safe_name(name: str) -> bool:
    """Whether a name can only be a file's or a directory's own, never a way to another."""
    return bool(_NAME.fullmatch(name))


@dataclass(frozen=True)
class StoredArtifacts(Mapping[str, bytes]):
    """A replicate's files, each read anew whenever it is looked up."""

    directory: Directory
    seed: int
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            OSError: If it is absent, larger than 256 MiB, or cannot be read.
        """
        if name not in self.names:
            raise KeyError(name)
        return self.directory.read(_stored(self.seed, name), _MOST_BYTES)

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self.names)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.names)


def write_artifacts(directory: Directory, points: Iterable[TradeoffPoint]) -> None:
    """Put every replicate's files at `<point_id>/<seed>-<name>`.

    Raises:
        OSError: If one cannot be written.
        ValueError: If a name could lead out of its directory.
    """
    for point in points:
        for replicate in point.replicates:
            for name, content in replicate.artifacts.items():
                if not is_safe_name(name):
                    raise ValueError(f"an artifact's name must be a plain file name; got {name!r}.")
                (directory / point.point_id).write(_stored(replicate.seed, name), content)


def _stored(seed: int, name: str) -> str:
    return f"{seed}-{name}"
