"""A Ray head and a node of it that differ as tests need it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ray_head import Head


@dataclass(frozen=True)
class Pair:
    """A head and a node, which differ as tests need it.

    Attributes:
        head: The head.
        node: Process id of the node.
        folder: Holds `shared`; `split`, which is another on the node; `head-data` and `node-data`,
            their data directories; `extra`, which the node's Python looks into first.
    """

    head: Head
    node: int
    folder: Path

    @property
    def data(self) -> tuple[Path, Path]:
        """Data directories of the head and of the node."""
        return self.folder / "head-data", self.folder / "node-data"

    @property
    def token(self) -> dict[str, str]:
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.head.token}
