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
        folder: Holds `shared`; `split`, which is another on the node; `extra`, which the node's
            Python looks into first; `home` of the node.
        data: Data directories of the head and of the node.
    """

    head: Head
    node: int
    folder: Path
    data: tuple[Path, Path]

    @property
    def token(self) -> dict[str, str]:
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.head.token}
