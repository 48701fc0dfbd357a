"""Looking at everything that a sweep needs, where it is to run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sweeps.analysis.formatting import format_count
from sweeps.doctor import authentication, clocks, data, storage, versions
from sweeps.doctor.asking import Request
from sweeps.doctor.bounded import Trouble
from sweeps.doctor.check import Check, Report, together
from sweeps.doctor.parties import Alone, Cluster, Parties
from sweeps.doctor.storage import Place
from sweeps.doctor.tracked import Tracking
from sweeps.doctor.visit import PART_SECONDS, Facts, Question, time_of, visit
from sweeps.errors import InputError, StudyError
from sweeps.store.filesystem import absolute_storage, open_directory

if TYPE_CHECKING:
    from cluster.connection import Connection
    from sweeps.study.spec import Study

_VISIT_SECONDS = PART_SECONDS + 5.0
_ROUND_SECONDS = 20.0
_PROBE_SECONDS = 10.0
_DEAD = "look at the raylet's log there (/tmp/ray/session_latest/logs), and start Ray there again"
_NO_STORAGE = Check(
    storage.SUBJECT, "", "warning", "not looked at: none is named", "give --storage"
)


def examine(request: Request) -> Report:
    """Look at everything; takes seconds where all is well, and minutes at the most.

    Args:
        request: Where a sweep is to run, and what it needs.

    Raises:
        ConnectError: If there is no Ray at the address, or it does not let us in.
        InputError: If the storage cannot be opened, or something is asked that cannot be.
        StudyError: If there is more wrong with the study than that its data are missing.
    """
    if request.study is not None:
        _check_study(request.study)
    if request.over_http:
        from sweeps.doctor.remote import examine_over_http

        return examine_over_http(request)
    if request.address is None:
        return _examine_here(request)
    return _examine_cluster(request, request.address)


def _examine_here(request: Request) -> Report:
    from cluster.connection import local_machine
    from sweeps.analysis.results import DEFAULT_STORAGE

    where = absolute_storage(request.storage or DEFAULT_STORAGE)
    open_directory(where)  # before anything is asked of it
    tracked = Tracking(request.tracking_uri, default=True)
    return _report(Alone(local_machine()), request.study, where, tracked)


def _examine_cluster(request: Request, address: str) -> Report:
    from cluster.connection import connect
    from sweeps.engine.data_on_nodes import environment

    where = None if request.storage is None else absolute_storage(request.storage)
    if where is not None:
        open_directory(where)  # before anything is asked of it
    tracked = Tracking(request.tracking_uri, default=False)
    with connect(address) as connection:
        refused = _stranger(connection)
        everybody = Cluster(connection.machines(), environment(request.data))
        report = _report(everybody, request.study, where, tracked)
    return report.model_copy(update={"checks": (refused, *report.checks)})


def _check_study(study: Study) -> None:
    """Whether it could be run, were its data there.

    Raises:
        StudyError: With everything that is wrong with it.
    """
    from sweeps.study.validation import validate_study

    if problems := validate_study(study, data=False).errors:
        raise StudyError(problems)


def _stranger(connection: Connection) -> Check:
    """A call without a token."""
    from cluster.probe import probe

    result = probe(connection.address, None, _PROBE_SECONDS)
    return authentication.judge(result, not connection.is_remote())


def _report(parties: Parties, study: Study | None, where: str | None, tracked: Tracking) -> Report:
    place = None if where is None else Place.new(where)
    question = _question(study, place, not isinstance(parties, Alone))
    told = parties.ask(visit, question, parties.machines, seconds=_VISIT_SECONDS)
    facts = {mark: found for mark, found in told.items() if not isinstance(found, Trouble)}
    found_there = {parties.called[mark]: dict(found.versions) for mark, found in facts.items()}
    checks = [
        *_alive(parties, told),
        *_together(parties, _versions(parties, facts)),
        *sorted(_together(parties, _judged_there(parties, facts)), key=lambda c: c.subject),
        *_together(parties, _clocks(parties)),
        *_room(parties, study),
        *_together(parties, _data(parties, facts)),
        *([_NO_STORAGE] if place is None else _together(parties, _storage(parties, place, facts))),
        tracked.check(),
    ]
    return Report(checks=tuple(checks), versions=found_there)


def _question(study: Study | None, place: Place | None, clustered: bool) -> Question:
    if study is None:
        return Question(place=place, clustered=clustered)
    return Question(study.to_dict(), study.resources.gpus > 0, place, clustered)


def _together(parties: Parties, checks: Iterable[Check]) -> list[Check]:
    return together(checks, [parties.called[mark] for mark in parties.nodes()])


def _alive(parties: Parties, told: Mapping[str, Facts | Trouble]) -> list[Check]:
    silent = [
        Check("nodes", parties.called[mark], "failed", found.reason, _DEAD)
        for mark, found in told.items()
        if isinstance(found, Trouble)
    ]
    if silent or isinstance(parties, Alone):
        return silent
    machines = parties.machines.values()
    cpus, gpus = sum(m.cpus for m in machines), sum(m.gpus for m in machines)
    found = (
        f"{len(machines)} alive, with {format_count(cpus, 'CPU')} and {format_count(gpus, 'GPU')}"
    )
    return [Check("nodes", "", "ok", found)]


def _versions(parties: Parties, facts: Mapping[str, Facts]) -> list[Check]:
    own = facts.get(parties.leader)
    there = {parties.called[m]: facts[m].versions for m in parties.nodes() if m in facts}
    return [] if own is None else versions.compare(own.versions, there)


def _judged_there(parties: Parties, facts: Mapping[str, Facts]) -> Iterator[Check]:
    for mark, found in facts.items():
        for check in found.checks:
            yield check.on(parties.called[mark])


def _clocks(parties: Parties) -> list[Check]:
    before = time.time()
    told = parties.ask(time_of, seconds=_ROUND_SECONDS)
    after = time.time()
    known = {
        parties.called[mark]: found
        for mark, found in told.items()
        if mark != parties.leader and not isinstance(found, Trouble)
    }
    return clocks.compare(known, before, after)


def _room(parties: Parties, study: Study | None) -> list[Check]:
    from sweeps.engine.capacity import cluster_capacity

    if study is None:
        return []
    try:
        workers = cluster_capacity(list(parties.machines.values()), study.resources).workers
    except InputError as error:
        remedy = "set resources.cpus and resources.gpus to what a node has, or add such a node"
        return [Check("resources", "", "failed", str(error), remedy)]
    return [Check("resources", "", "ok", f"room for {format_count(workers, 'pack')} at once")]


def _data(parties: Parties, facts: Mapping[str, Facts]) -> list[Check]:
    found = {mark: told.data for mark, told in facts.items() if told.data is not None}
    if parties.leader not in found:
        return []
    named = {parties.called[mark]: own for mark, own in found.items()}
    return data.compare(found[parties.leader], named)


def _storage(parties: Parties, place: Place, facts: Mapping[str, Facts]) -> list[Check]:
    left = {mark: told.left for mark, told in facts.items() if told.left is not None}
    named = {parties.called[mark]: told for mark, told in left.items()}
    if all(told.hung for told in left.values()):
        return storage.judge(place.storage, named, {})
    seen = parties.ask(storage.seen, place, seconds=_ROUND_SECONDS)
    made = {mark: told.made for mark, told in left.items()}
    cleared = parties.ask(storage.clear, place, made, seconds=_ROUND_SECONDS)
    read = {
        parties.called[mark]: _named(parties, seen[mark])
        for mark, told in left.items()
        if told.problem is None
    }
    remains = {parties.called[mark]: told for mark, told in cleared.items()}
    return [
        *storage.judge(place.storage, named, read),
        *storage.judge_clearing(place, remains),
    ]


def _named(parties: Parties, marks: Sequence[str] | Trouble) -> Sequence[str] | Trouble:
    """Parties by name, instead of by the marks that they left."""
    if isinstance(marks, Trouble):
        return marks
    return [parties.called[mark] for mark in marks if mark in parties.called]
