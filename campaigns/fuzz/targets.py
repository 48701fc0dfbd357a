"""The readers that are fuzzed, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from campaigns.fuzz.edits import Strategy

Read = Callable[[bytes], bool]


@dataclass
class Target:
    """A reader to feed.

    Attributes:
        name: Of the target.
        folder: Where it may write.
        read: Whether bytes were read; False where they were refused in order. Raises what a user
            would see as a traceback, or an AssertionError where something was lost.
        corpus: Valid inputs.
        inputs: What Hypothesis draws.
    """

    name: str
    folder: Path
    read: Read
    corpus: Callable[[], list[bytes]]
    inputs: Callable[[], Strategy]


TARGETS: Mapping[str, str] = {
    "documents": "of_documents",
    "studies": "of_documents",
    "overrides": "of_documents",
    "manifests": "of_documents",
    "packs": "of_ledgers",
    "failures": "of_ledgers",
    "checkpoints": "of_ledgers",
    "artifacts": "of_ledgers",
    "runs": "of_ledgers",
    "releasers": "of_releasers",
    "adult": "of_data",
    "location30": "of_data",
    "mnist": "of_data",
    "eco_aggregated": "of_data",
    "eco_published": "of_data",
    "commands": "of_commands",
}
"""Target to the module that makes it."""


def target(name: str, folder: Path) -> Target:
    """A target that writes below a folder."""
    module = import_module(f"campaigns.fuzz.{TARGETS[name]}")
    made: Target = getattr(module, name)(folder)
    return made
