"""Whether all nodes run the same versions."""

from __future__ import annotations

from collections.abc import Mapping

from sweeps.doctor.check import Check, State

SUBJECT = "versions"
_REMEDY = (
    "install the same versions everywhere, from constraints.txt or as one container image, and "
    "start Ray there again"
)
_OWN_REMEDY = "install on this machine what the cluster has, or the other way round"

Versions = Mapping[str, str]


def compare(here: Versions, nodes: Mapping[str, Versions]) -> list[Check]:
    """How the versions of nodes differ from those of the process that leads the sweep.

    Args:
        here: That process's own.
        nodes: Node to package to version.
    """
    checks = []
    for node, there in nodes.items():
        other = _differences(here, there)
        if other:
            # The same release built for another accelerator computes the same.
            state: State = (
                "failed" if any(not _alike(here, there, name) for name in other) else "warning"
            )
            found = ", ".join(f"{name} {_of(there, name)}, not {_of(here, name)}" for name in other)
            checks.append(Check(SUBJECT, node, state, found, _REMEDY))
        else:
            checks.append(Check(SUBJECT, node, "ok", shown(here)))
    return checks


def compare_own(own: Versions, nodes: Mapping[str, Versions]) -> Check:
    """How this machine, which only hands work in, differs from the cluster.

    The cluster runs the code of this machine, with dependencies of its own.

    Args:
        own: This machine's.
        nodes: Node to package to version.
    """
    from sweeps.store.manifest import PROJECT_NAME

    differing = sorted({name for there in nodes.values() for name in _differences(own, there)})
    if not differing:
        return Check(SUBJECT, "this machine", "ok", shown(own))
    found = ", ".join(
        f"{name} {_of(own, name)}, on the cluster "
        + " and ".join(sorted({_of(there, name) for there in nodes.values()}))
        for name in differing
    )
    state: State = "failed" if PROJECT_NAME in differing else "warning"
    return Check(SUBJECT, "this machine", state, found, _OWN_REMEDY)


def shown(versions: Versions) -> str:
    """Versions in one line."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _differences(one: Versions, other: Versions) -> list[str]:
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def _alike(one: Versions, other: Versions, name: str) -> bool:
    """Whether two versions differ in what follows a `+` alone."""
    return _of(one, name).partition("+")[0] == _of(other, name).partition("+")[0]


def _of(versions: Versions, name: str) -> str:
    return versions.get(name, "absent")
