"""One thing that was looked at, and all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal["ok", "warning", "failed"]

_Text = Annotated[str, Field(max_length=10_000)]


@dataclass(frozen=True, slots=True)
class Check:
    """What was found out about one thing.

    Attributes:
        subject: What was looked at.
        node: Where; empty for the cluster, or this machine, as a whole.
        state: `failed` if a sweep would not run, or not be safe.
        found: What is there, in words.
        remedy: What to do about it; empty where nothing is to be done.
    """

    subject: _Text
    node: _Text
    state: State
    found: _Text
    remedy: _Text = ""

    def on(self, node: str) -> Check:
        """The same, found on a node."""
        return replace(self, node=node)


class Report(BaseModel):
    """All that was found out.

    Attributes:
        format: Of its JSON form.
        checks: In the order in which they read best.
        versions: Node to package to version.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    checks: tuple[Check, ...]
    versions: dict[str, dict[str, str]] = Field(default_factory=dict)

    @property
    def failed(self) -> tuple[Check, ...]:
        """What must be mended first."""
        return tuple(check for check in self.checks if check.state == "failed")


def together(checks: Iterable[Check], nodes: Sequence[str]) -> list[Check]:
    """Checks of which only the node differs as one, in the order of the first of each.

    Args:
        checks: To bring together.
        nodes: All there are; a check that is the same on all of several says so.
    """
    where: dict[Check, list[str]] = {}
    for check in checks:
        where.setdefault(check.on(""), []).append(check.node)
    return [check.on(_listed(found, nodes)) for check, found in where.items()]


def _listed(found: Sequence[str], nodes: Sequence[str]) -> str:
    if len(nodes) > 1 and set(found) >= set(nodes):
        return f"all {len(nodes)} nodes"
    return ", ".join(dict.fromkeys(name for name in found if name))
