"""Results of checks: one per subject and node, gathered in a report that travels as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal["ok", "warning", "failed"]
_Text = Annotated[str, Field(max_length=10_000)]


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check.

    Attributes:
        subject: Checked property, such as `storage`.
        node: Name of the node; empty for the cluster, or this machine, as a whole.
        state: `failed` if a sweep would not run, or would not be safe.
        found: Observation.
        remedy: Advice; empty if nothing is wrong.
    """

    subject: _Text
    node: _Text
    state: State
    found: _Text
    remedy: _Text = ""


class Report(BaseModel):
    """Results of all checks, in the order to show them, and the versions of each node."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    checks: tuple[Check, ...]
    versions: dict[str, dict[str, str]] = Field(default_factory=dict)

    @property
    def failed(self) -> list[Check]:
        """Checks that failed."""
        return [check for check in self.checks if check.state == "failed"]


def merge_nodes(checks: Iterable[Check], nodes: Sequence[str]) -> list[Check]:
    """Merges results that differ in their node alone; a result of all `nodes` says so."""
    found_on: dict[Check, list[str]] = {}
    for check in checks:
        found_on.setdefault(replace(check, node=""), []).append(check.node)
    return [replace(check, node=_join(names, nodes)) for check, names in found_on.items()]


def _join(names: Sequence[str], nodes: Sequence[str]) -> str:
    if len(nodes) > 1 and set(names) >= set(nodes):
        return f"all {len(nodes)} nodes"
    return ", ".join(dict.fromkeys(name for name in names if name))
