"""Whether every node has the data of a study, and all the same."""

from __future__ import annotations

from collections.abc import Mapping

from sweeps.doctor.bounded import Trouble
from sweeps.doctor.check import Check

SUBJECT = "data"
_LENGTH = 8
_REMEDY = (
    "`sweeps data fetch NAME` gets it on this machine, with --address ADDRESS on every node of a "
    "cluster, with --from DIR from a directory that all nodes see; --data DIR names a data "
    "directory that nodes share"
)

Data = Mapping[str, str]


def compare(wanted: Data | Trouble, nodes: Mapping[str, Data | Trouble]) -> list[Check]:
    """What nodes lack.

    Args:
        wanted: Data set to its fingerprint where the sweep is led from.
        nodes: Node to the same there.
    """
    return [_of(node, wanted, found) for node, found in nodes.items()]


def _of(node: str, wanted: Data | Trouble, found: Data | Trouble) -> Check:
    if isinstance(found, Trouble):
        return Check(SUBJECT, node, "failed", found.reason.rstrip("."), _REMEDY)
    if isinstance(wanted, Trouble):
        return Check(SUBJECT, node, "ok", _shown(found))
    others = sorted(name for name in {**wanted, **found} if wanted.get(name) != found.get(name))
    if others:
        where = "other data than where the sweep is led from go by the name"
        return Check(SUBJECT, node, "failed", f"{where} {', '.join(others)}", _REMEDY)
    return Check(SUBJECT, node, "ok", _shown(found))


def _shown(data: Data) -> str:
    return ", ".join(f"{name} ({fingerprint[:_LENGTH]})" for name, fingerprint in data.items())
