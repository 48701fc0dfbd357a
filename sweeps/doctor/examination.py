"""Runs all checks, on this machine or on every node of a cluster, each in bounded time."""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ray

from cluster.connection import Machine, connect, local_machine
from cluster.nodes import NoAnswer, node_names, on_every_node
from cluster.probe import probe
from sweeps.analysis.results import DEFAULT_STORAGE
from sweeps.analysis.text import format_count
from sweeps.doctor import checks as single
from sweeps.doctor.checks import Check, Report, merge_nodes
from sweeps.engine.node_data import data_variables, local_fingerprints
from sweeps.errors import StudyError
from sweeps.store.filesystem import Directory, absolute_storage, open_directory
from sweeps.store.manifest import installed_versions
from sweeps.study.spec import Study
from sweeps.study.validation import validate_study
from tracking.redaction import redact

_Function = Callable[..., Any]

DRIVER: Final = "driver"
_THREADS = "doctor"
_PART_SECONDS, _STORAGE_SECONDS, _CLOCK_SECONDS, _PROBE_SECONDS = 40.0, 20.0, 20.0, 10.0
_START_SECONDS = 40.0  # Ray starts a process on a node whose CPUs may all be busy.
_MARK_BYTES = 2**17  # Large enough to show a full disk.
_LEAST_FREE_BYTES = 2**30
_NODE_ADVICE = "read the raylet's log there (/tmp/ray/session_latest/logs), then restart Ray there"
_WRITE_ADVICE = "let the user that runs Ray there write to it, free space, or change --storage"
_SHARE_ADVICE = "mount the same file system on every node, or give a URI (s3://...) as --storage"


@dataclass(frozen=True)
class Party:
    """This process, and the nodes of its Ray by id; a machine alone has the driver's id."""

    nodes: Mapping[str, Machine]
    names: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether this machine is alone."""
        return DRIVER in self.nodes

    def ask(
        self, function: Callable[..., Any], *arguments: object, seconds: float
    ) -> dict[str, Any]:
        """Calls `function(id, *arguments)` on every node; returns results or `NoAnswer` by id."""
        if self.is_local:
            return {}
        answers = on_every_node(
            _call_on_node, function, *arguments,
            seconds=seconds + _START_SECONDS, environment=self.variables,
        )  # fmt: skip
        by_id = {machine.node: answer for machine, answer in answers.items()}
        return {node: by_id.get(node, NoAnswer("the node is gone")) for node in self.nodes}


@dataclass(frozen=True)
class NodeTask:
    """Values for a node's checks: study, need for GPUs, storage with a directory for marks."""

    study: Mapping[str, Any] | None
    needs_gpus: bool
    storage: str | None
    directory: str
    is_local: bool


def examine(
    address: str | None = None,
    storage: str | None = None,
    tracking_uri: str | None = None,
    study: Study | None = None,
    data: str | None = None,
) -> Report:
    """Runs all checks; takes seconds if all is well, and minutes at the most.

    Args:
        address: Ray cluster to join; None for this machine alone.
        storage: Path or URI; this machine alone has a default.
        tracking_uri: MLflow store; MLFLOW_TRACKING_URI if None.
        study: Study whose data and resources to check.
        data: Data directory on the nodes; None for their own.
    """
    if study is not None and (errors := validate_study(study, data=False).errors):
        raise StudyError(errors)
    place = absolute_storage(storage or DEFAULT_STORAGE) if storage or not address else None
    if place is not None:
        open_directory(place)  # An unusable location is bad input.
    if address is None:
        return _examine(Party({DRIVER: local_machine()}, {DRIVER: ""}), study, place, tracking_uri)
    with connect(address) as connection:
        reaction = probe(connection.address, None, _PROBE_SECONDS)
        token = single.check_authentication(reaction, not connection.is_remote())
        machines = connection.machines()
        names = {machine.node: name for machine, name in node_names(machines).items()}
        party = Party({m.node: m for m in machines}, names | {DRIVER: DRIVER}, data_variables(data))
        report = _examine(party, study, place, tracking_uri)
    return report.model_copy(update={"checks": (token, *report.checks)})


def has_hung_work() -> bool:
    """Returns whether a check has not ended; its thread may keep this process from ending."""
    return any(thread.name.startswith(_THREADS) for thread in threading.enumerate())


def _examine(
    party: Party, study: Study | None, storage: str | None, tracking_uri: str | None
) -> Report:
    values, gpus = (None, 0.0) if study is None else (study.to_dict(), study.resources.gpus)
    task = NodeTask(values, gpus > 0, storage, f".doctor-{uuid.uuid4().hex}", party.is_local)
    own = _examine_node(DRIVER, task, party.nodes, tracking_uri)  # Its mark comes first.
    answers = party.ask(_examine_node, task, party.nodes, seconds=_PART_SECONDS + 5)
    lost = {key: answer for key, answer in answers.items() if isinstance(answer, NoAnswer)}
    facts = {DRIVER: own, **{key: answers[key] for key in answers if key not in lost}}
    names = party.names
    checks = [
        *(Check("nodes", names[k], "failed", lost[k].reason, _NODE_ADVICE) for k in lost),
        *([] if lost or party.is_local else [_count_nodes(party)]),
        *(
            single.check_versions(own["versions"], names[k], facts[k]["versions"])
            for k in party.nodes
            if k in facts
        ),
        *_local_checks(party, facts),
        *_check_clocks(party),
        *([single.check_capacity(list(party.nodes.values()), study)] if study else []),
        *(single.check_data(own["data"], names[k], facts[k]["data"]) for k in facts if study),
        *_check_storage(party, task, {key: facts[key]["storage"] for key in facts}),
        *own["tracking"],
    ]
    merged = merge_nodes(checks, [names[key] for key in party.nodes])
    return Report(checks=tuple(merged), versions={names[k]: facts[k]["versions"] for k in facts})


def _examine_node(
    key: str, task: NodeTask, nodes: Mapping[str, Machine], tracking_uri: str | None = None
) -> dict[str, Any]:
    """Looks at this machine, all parts at the same time; returns checks and facts by subject."""
    parts: dict[str, Callable[[], Any]] = {
        "secret files": lambda: single.check_secret_files(not task.is_local)
    }
    if (machine := nodes.get(key)) is not None:
        parts["memory"] = lambda: single.check_memory(machine.cpus)
        parts["GPUs"] = lambda: single.check_gpus(machine.gpus, task.needs_gpus, _PART_SECONDS - 1)
    if key == DRIVER:
        parts["tracking"] = lambda: [single.check_tracking(tracking_uri, task.is_local)]
    if (study := task.study) is not None:
        parts["data"] = lambda: local_fingerprints(study)
    if task.storage is not None:
        parts["storage"] = lambda: _write_mark(key, task)
    results = _run_all(parts, _PART_SECONDS)
    for subject in results.keys() - {"data", "storage"}:
        if isinstance(answer := results[subject], NoAnswer):
            results[subject] = [Check(subject, "", "failed", answer.reason)]
    return {"versions": installed_versions(), "storage": None, **results}


def _run_all(parts: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, Any]:
    """Calls functions in threads; leaves behind those that hang, as on a dead file system."""
    pool = ThreadPoolExecutor(len(parts), thread_name_prefix=_THREADS)
    futures = {name: pool.submit(part) for name, part in parts.items()}
    wait(futures.values(), seconds)
    pool.shutdown(wait=False)
    return {name: _outcome(future, seconds) for name, future in futures.items()}


def _outcome(future: Future[Any], seconds: float) -> Any:
    if not future.done():
        return NoAnswer(f"no answer within {seconds:g} s", is_lost=True)
    error = future.exception()
    return future.result() if error is None else NoAnswer(str(error) or type(error).__name__)


def _call_on_node(function: Callable[..., Any], *arguments: object) -> Any:
    return function(ray.get_runtime_context().get_node_id(), *arguments)


def _count_nodes(party: Party) -> Check:
    cpus, gpus = (sum(getattr(m, kind) for m in party.nodes.values()) for kind in ("cpus", "gpus"))
    size = f"{format_count(cpus, 'CPU')} and {format_count(gpus, 'GPU')}"
    return Check("nodes", "", "ok", f"{len(party.nodes)} alive, with {size}")


def _local_checks(party: Party, facts: Mapping[str, Any]) -> Iterator[Check]:
    for subject in ("GPUs", "memory", "secret files"):
        for key, fact in facts.items():
            yield from (replace(c, node=party.names[key]) for c in fact.get(subject, []))


def _check_clocks(party: Party) -> list[Check]:
    before = time.time()
    answers = party.ask(_read_clock, seconds=_CLOCK_SECONDS)
    times = {k: answer for k, answer in answers.items() if not isinstance(answer, NoAnswer)}
    after = time.time()
    return [single.check_clock(party.names[k], times[k], before, after) for k in times]


def _read_clock(key: str) -> float:
    return time.time()


def _write_mark(key: str, task: NodeTask) -> dict[str, Any]:
    """Writes a mark into the storage, and looks for the driver's mark there."""
    marks = _marks(task)
    path = open_directory(task.storage or "").local_path
    created = [] if path is None else [str(p) for p in (path, *path.parents) if not p.exists()]
    is_shared = key == DRIVER or DRIVER in _whole_marks(marks)
    marks.write(key, os.urandom(_MARK_BYTES))
    free = None if path is None else shutil.disk_usage(path).free
    if not is_shared:
        _remove_marks(marks, created)
    return {"is_shared": is_shared, "free": free, "created": created}


def _check_storage(party: Party, task: NodeTask, results: Mapping[str, Any]) -> list[Check]:
    """Judges whether every party could write to the storage, and all to the same one."""
    if task.storage is None:
        return [Check("storage", "", "warning", "not checked: none is named", "give --storage")]
    place, own = redact(task.storage), results[DRIVER]
    seen: Any = []
    if not isinstance(own, NoAnswer):
        seen = _run_all({"marks": lambda: _whole_marks(_marks(task))}, _STORAGE_SECONDS)["marks"]
        _run_all({"removal": lambda: _remove_marks(_marks(task), own["created"])}, _STORAGE_SECONDS)
    checks = []
    for key, result in results.items():
        name = party.names[key]
        if isinstance(result, NoAnswer):
            found = f"{place} cannot be written: {redact(result.reason)}"
            checks.append(Check("storage", name, "failed", found, _WRITE_ADVICE))
        elif isinstance(seen, NoAnswer):
            found = f"{place} cannot be read: {redact(seen.reason)}"
            checks.append(Check("storage", party.names[DRIVER], "failed", found, _WRITE_ADVICE))
        elif not result["is_shared"] or key not in seen:
            found = f"{place} here is another directory than the driver's"
            checks.append(Check("storage", name, "failed", found, _SHARE_ADVICE))
    return checks or [_describe_storage(place, list(results.values()))]


def _describe_storage(place: str, results: list[dict[str, Any]]) -> Check:
    free = [result["free"] for result in results if result["free"] is not None]
    if free and min(free) < _LEAST_FREE_BYTES:
        found = f"{place} has {min(free) // 2**20:,} MiB free"
        return Check("storage", "", "warning", found, "free space, or choose another --storage")
    access = "written" if len(results) == 1 else "written and read from everywhere"
    space = f", {min(free) // 2**30:,} GiB free" if free else ""
    return Check("storage", "", "ok", f"{place}: {access}{space}")


def _marks(task: NodeTask) -> Directory:
    return open_directory(task.storage or "") / task.directory


def _whole_marks(marks: Directory) -> list[str]:
    return [name for name in marks.files() if len(marks.read(name)) == _MARK_BYTES]


def _remove_marks(marks: Directory, created: list[str]) -> None:
    """Removes all marks, and the directories that were created for them."""
    with suppress(FileNotFoundError):
        marks.remove()
    for path in created:
        with suppress(OSError):  # Another program uses it by now.
            os.rmdir(path)
