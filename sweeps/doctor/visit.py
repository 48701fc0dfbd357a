"""What is looked at on one machine: all of it at once, each part for a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sweeps.doctor import credentials, gpus, memory
from sweeps.doctor.bounded import Trouble, at_once
from sweeps.doctor.check import Check
from sweeps.doctor.storage import Left, Place, leave
from sweeps.store.manifest import installed_versions

if TYPE_CHECKING:
    from cluster.connection import Machine

PART_SECONDS: Final = 40.0
"""That each part may take."""

_STORAGE_SECONDS: Final = 20.0
_LOOKS = (memory.SUBJECT, gpus.SUBJECT, credentials.SUBJECT)


@dataclass(frozen=True, slots=True)
class Question:
    """What to look at.

    Attributes:
        study: Whose data are needed, as `Study.to_dict` gives it; None if of none.
        gpus_wanted: Whether the work is to be given GPUs.
        place: Where to leave a mark; None if nowhere.
        clustered: Whether machines are looked at as parts of a cluster.
    """

    study: Mapping[str, Any] | None = None
    gpus_wanted: bool = False
    place: Place | None = None
    clustered: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found on a machine.

    Attributes:
        versions: Package to version.
        checks: What can be judged there and then.
        data: Data set to fingerprint, or why that is not known; None where no study was named.
        left: What came of leaving a mark; None where none was to be left.
    """

    versions: Mapping[str, str]
    checks: tuple[Check, ...] = ()
    data: Mapping[str, str] | Trouble | None = None
    left: Left | None = None


def visit(mark: str, question: Question, machines: Mapping[str, Machine]) -> Facts:
    """Look at this machine.

    Args:
        mark: What it is known by.
        question: What to look at.
        machines: Mark to what a machine is taken to have; one that trains nothing is not there.
    """
    found = at_once(_parts(mark, question, machines.get(mark)), PART_SECONDS)
    checks: list[Check] = []
    for subject in _LOOKS:
        told = found.get(subject, [])
        checks += [_unknown(subject, told)] if isinstance(told, Trouble) else told
    left = found.get("storage")
    return Facts(
        installed_versions(),
        tuple(checks),
        found.get("data"),
        Left(left.reason, hung=True) if isinstance(left, Trouble) else left,
    )


def time_of(mark: str) -> float:
    """The time by this machine's clock, in seconds since 1970.

    Args:
        mark: What it is known by.
    """
    return time.time()


def _parts(mark: str, question: Question, machine: Machine | None) -> dict[str, Callable[[], Any]]:
    wanted, study, place = question.gpus_wanted, question.study, question.place
    parts: dict[str, Callable[[], Any]] = {
        credentials.SUBJECT: lambda: credentials.look(question.clustered)
    }
    if machine is not None:
        parts[memory.SUBJECT] = lambda: memory.look(machine.cpus)
        parts[gpus.SUBJECT] = lambda: gpus.look(machine.gpus, wanted, PART_SECONDS - 1)
    if study is not None:
        parts["data"] = lambda: _data(study)
    if place is not None:
        parts["storage"] = lambda: at_once({"": lambda: leave(place, mark)}, _STORAGE_SECONDS)[""]
    return parts


def _data(study: Mapping[str, Any]) -> dict[str, str]:
    from sweeps.engine.node_data import fingerprints

    return fingerprints(study)


def _unknown(subject: str, trouble: Trouble) -> Check:
    remedy = "look at that machine: what was asked of it takes milliseconds otherwise"
    return Check(subject, "", "failed", trouble.reason, remedy)
