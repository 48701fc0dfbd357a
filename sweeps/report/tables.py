"""What a report says in tables beside its points; cells are text, escaped where they meet HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from privnets.points import TradeoffPoint
from sweeps.tables import Table, cut, described


def notes_table(points: Iterable[TradeoffPoint], fields: Sequence[str]) -> Table:
    """Why metrics are undefined and flags raised, and for how many points."""
    found: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for point in points:
        for key, reason in point.notes.items():
            value = point.metrics.get(key)
            kind = "undefined" if value is not None and value != value else "flag"
            found[kind, key, reason] += 1
            examples.setdefault((kind, key, reason), described(point.config, fields))
    rows = [(*entry, str(count), examples[entry]) for entry, count in found.most_common()]
    return cut(("kind", "metric or flag", "reason", "points", "for example"), rows, len(rows))


def failures_table(
    points: Iterable[TradeoffPoint],
    packs: Mapping[str, str],
    files: Mapping[str, str],
    fields: Sequence[str],
) -> Table:
    """What failed and why.

    Args:
        points: Points; those that failed give their first failed replicate's reason.
        packs: Pack to why it came to nothing.
        files: Damaged file to why it was passed over.
        fields: Configuration fields that tell points apart.
    """
    rows = [
        *(("pack", reason, pack_id) for pack_id, reason in packs.items()),
        *(("damaged file", reason, name) for name, reason in files.items()),
        *(
            (described(point.config, fields), point.failure, point.point_id)
            for point in points
            if point.failure is not None
        ),
    ]
    return cut(("what", "why", "id"), rows, len(rows))


def stopped_table(points: Iterable[TradeoffPoint], fields: Sequence[str]) -> Table:
    """Which points were stopped early and why; one of which a replicate failed counts as failed."""
    rows = [
        (described(point.config, fields), str(point.stopped), point.point_id)
        for point in points
        if point.status == "stopped"
    ]
    return cut(("what", "why", "id"), rows, len(rows))


def facts_table(content: Mapping[str, Any]) -> Table:
    """Nested plain values, a row per leaf."""
    return Table(("what", "value"), tuple(_leaves(content, "")))


def _leaves(content: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key} ")
        elif isinstance(value, list | tuple):
            yield f"{path}{key}", ", ".join(map(str, value))
        else:
            yield f"{path}{key}", str(value)
