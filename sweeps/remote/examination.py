"""Checks of this machine, or of every node of a cluster; each takes a bounded time."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import ray

import tracking
from cluster.auth import TOKEN_PATH, read_private
from cluster.connection import Connection, Machine, alive_nodes, connect, local_machine
from cluster.errors import SecretError
from cluster.nodes import NoAnswer, node_names, on_every_node
from cluster.probe import probe
from privnets.credentials import redact
from privnets.references.user_files import portable_folder
from sweeps.analysis.text import format_count
from sweeps.engine.capacity import cluster_capacity, format_amount, resolve_study_resources
from sweeps.errors import InputError, StudyError
from sweeps.planning.devices import usable_gpus
from sweeps.planning.node_data import local_fingerprints
from sweeps.remote.doctor import (
    Check,
    Report,
    State,
    Versions,
    check_authentication,
    check_versions,
    differing,
    merge_nodes,
)
from sweeps.remote.node_data import data_variables
from sweeps.store.filesystem import (
    DEFAULT_STORAGE,
    Directory,
    absolute_storage,
    open_directory,
)
from sweeps.store.manifest import installed_versions
from sweeps.study.spec import Study
from sweeps.study.validation import validate_study
from tracking.errors import CredentialsRejectedError, TrackingError

_DRIVER = "driver"
_PART_SECONDS, _PROBE_SECONDS = 40.0, 10.0
_START_SECONDS = 45.0  # Ray starts a process on a node whose CPUs may all be busy.
_LEAST_FREE_BYTES = 2**30
_MARK_BYTES = 2**17  # Large enough to show a full disk.
_GPU_ADVICE = "install a torch for the CUDA of nvidia-smi, or start Ray there with --num-gpus 0"
_NODE_ADVICE = "read the raylet's log there (/tmp/ray/session_latest/logs), then restart Ray there"
_SHARE_ADVICE = "mount the same file system on every node, or give a URI (s3://...) as --storage"
_ADVICE: Final = {
    "data": "`sweeps data fetch NAME` fetches it on this machine, with --address ADDRESS on every "
    "node; --from DIR copies it from a directory that all nodes see; --data DIR names a shared one",
    "storage": "let the user that runs Ray there write to it, free space, or change --storage",
}


@dataclass(frozen=True)
class _Task:
    """Values for the checks of one machine; `versions` and `data` are the driver's.

    `marks` names a new directory in the storage, for the files that its check writes; `folder` is
    the study's, as `portable_folder` describes it.
    """

    is_driver: bool
    storage: str | None
    marks: str
    study: Mapping[str, Any] | None
    folder: str
    versions: Versions
    data: Versions | None = None


def examine(
    address: str | None = None,
    storage: str | None = None,
    tracking_uri: str | None = None,
    study: Study | None = None,
    data: str | None = None,
) -> Report:
    """Runs all checks; takes seconds if all is well, and minutes at the most.

    The arguments are the options of `sweeps doctor`. A check that hangs leaves a thread behind,
    which may keep this process from ending.
    """
    if study is not None and (errors := validate_study(study, data=False).errors):
        raise StudyError(errors)
    place = absolute_storage(storage or DEFAULT_STORAGE) if storage or not address else None
    if place is not None:
        open_directory(place)  # An unusable location is bad input.
    marks, values = f".doctor-{uuid.uuid4().hex}", None if study is None else study.to_dict()
    folder = "." if study is None else portable_folder(study.source.folder)
    task = _Task(True, place, marks, values, folder, installed_versions())
    if address is None:
        machine = local_machine()
        nodes, checks = {machine: ""}, _examine_machine(task, machine, tracking_uri)
    else:
        with connect(address) as connection:
            own = _examine_machine(task, None, tracking_uri)  # Its mark comes first.
            if values is not None and all(c.state == "ok" for c in own if c.subject == "data"):
                task = replace(task, data=local_fingerprints(values, folder))
            others = replace(task, is_driver=False)
            nodes, checks = _examine_nodes(connection, others, data_variables(data))
            checks += [replace(check, node=_DRIVER) for check in own]
    if study is not None:
        checks.append(check_capacity([*nodes], study))
    if place is not None:
        checks += _run_all({"storage": lambda: _marks(task).remove()})
    checks.sort(key=lambda check: check.subject.lower())
    return Report(checks=merge_nodes(checks, [*nodes.values()]), versions=dict(task.versions))


def _examine_nodes(
    connection: Connection, task: _Task, variables: Mapping[str, str]
) -> tuple[dict[Machine, str], list[Check]]:
    """Returns the nodes of a cluster with their names, and the results of their checks."""
    reaction = probe(connection.address, None, _PROBE_SECONDS)
    checks = [check_authentication(reaction, not connection.is_remote())]
    limits: Any = {"seconds": _PART_SECONDS + _START_SECONDS, "environment": variables}
    answers = on_every_node(_examine_node, task, **limits)
    names = node_names(answers)
    for machine, answer in answers.items():
        name = names[machine]
        if isinstance(answer, NoAnswer):
            checks.append(Check("nodes", "failed", answer.reason, _NODE_ADVICE, name))
        else:
            checks += [replace(check, node=name) for check in answer]
    cpus, gpus = (sum(getattr(m, kind) for m in names) for kind in ("cpus", "gpus"))
    size = f"{format_count(cpus, 'CPU')} and {format_count(gpus, 'GPU')}"
    return names, [*checks, Check("nodes", "ok", f"{len(names)} alive, with {size}")]


def _examine_node(task: _Task) -> list[Check]:
    """Looks at the node that this process runs on."""
    own_id = ray.get_runtime_context().get_node_id()
    (machine,) = (Machine.from_node(node) for node in alive_nodes() if node["NodeID"] == own_id)
    return _examine_machine(task, machine)


def _examine_machine(
    task: _Task, machine: Machine | None, tracking_uri: str | None = None
) -> list[Check]:
    """Runs the checks of this machine; `machine` is None for a driver that joined a cluster."""
    study, is_local = task.study, task.is_driver and machine is not None
    parts: dict[str, Callable[[], list[Check] | None]] = {
        "secret files": lambda: check_secret_files(not is_local)
    }
    if machine is not None:
        asked = 0 if study is None else study["resources"]["gpus"]
        needs_gpus = asked not in (0, "auto")  # with auto, a run leaves out what torch cannot use
        parts["versions"] = lambda: [check_versions(task.versions)]
        parts["GPUs"] = lambda: [check_gpus(machine.gpus, needs_gpus, _PART_SECONDS - 1)]
    if task.is_driver:
        parts["tracking"] = lambda: [check_tracking(tracking_uri, is_local)]
    if study is not None:
        parts["data"] = lambda: [check_data(task.data, study, task.folder)]
    if task.is_driver or task.storage is not None:
        parts["storage"] = lambda: [_check_storage(task)]
    return _run_all(parts)


def _run_all(parts: Mapping[str, Callable[[], list[Check] | None]]) -> list[Check]:
    """Runs checks in threads; leaves behind those that hang, as on a dead file system."""
    pool = ThreadPoolExecutor(len(parts))
    futures = {pool.submit(part): subject for subject, part in parts.items()}
    wait(futures, _PART_SECONDS)
    pool.shutdown(wait=False)
    checks: list[Check] = []
    for future, subject in futures.items():
        try:
            checks += future.result(timeout=0) or []
        except Exception as error:
            reason = redact(str(error)).rstrip(".") or f"no answer within {_PART_SECONDS:g} s"
            checks.append(Check(subject, "failed", reason, _ADVICE.get(subject, "")))
    return checks


def check_gpus(promised: float, is_needed: bool, seconds: float) -> Check:
    """Checks that torch can compute on the `promised` GPUs that Ray counts on this machine."""
    if not promised:
        return Check("GPUs", "ok", "none, and Ray counts none")
    try:
        gpus = usable_gpus(seconds)
        problem = f"torch finds {len(gpus)}"
        if len(gpus) >= promised:
            return Check("GPUs", "ok", ", ".join(gpu.name for gpu in gpus))
    except RuntimeError as error:
        problem = str(error)
    found = f"Ray counts {promised:g}; {problem}"
    return Check("GPUs", "failed" if is_needed else "warning", found, _GPU_ADVICE)


def check_secret_files(in_cluster: bool) -> list[Check]:
    """Checks that only their owner can read this machine's token of Ray and account of MLflow."""
    token = Path(os.environ.get(TOKEN_PATH) or Path.home() / ".ray" / "auth_token").expanduser()
    files = [path for path in (token, Path.home() / ".mlflow" / "credentials") if path.is_file()]
    problems = []
    for path in files:
        try:
            read_private(path)
        except SecretError as error:
            state: State = "failed" if in_cluster or path != token else "warning"
            remedy = f"{error.remedy}; if others had time to read it, change the secret too"
            problems.append(Check("secret files", state, error.problem, remedy))
    found = f"only the owner can read {', '.join(map(str, files))}" if files else "none"
    return problems or [Check("secret files", "ok", found)]


def check_capacity(machines: Sequence[Machine], study: Study) -> Check:
    """Checks that some machine has the CPUs and GPUs of a pack; a sweep waits for a first one."""
    if not any(machine.cpus or machine.gpus for machine in machines):
        found = "no node has CPUs or GPUs yet: a sweep waits for an hour"
        return Check("resources", "warning", found, "start nodes: ray start --address=HEAD:PORT")
    try:
        configs = validate_study(study, data=False).configs
        resources = resolve_study_resources(study, configs, machines)
        workers = cluster_capacity(machines, resources).workers
    except InputError as error:
        remedy = "set resources.cpus and resources.gpus to what a node has, or add such a node"
        return Check("resources", "failed", str(error), remedy)
    room = f"room for {format_count(workers, 'pack')} in parallel, each with"
    return Check("resources", "ok", f"{room} {format_amount(resources)}")


def check_data(driver: Versions | None, study: Mapping[str, Any], folder: str = ".") -> Check:
    """Compares the fingerprint of each data set of a study with the driver's, if it has any."""
    data = local_fingerprints(study, folder)
    if driver is not None and (others := differing(driver, data)):
        found = f"other data than the driver's under the name {', '.join(others)}"
        return Check("data", "failed", found, _ADVICE["data"])
    return Check("data", "ok", ", ".join(f"{n} ({mark[:8]})" for n, mark in data.items()))


def check_tracking(uri: str | None, is_local: bool) -> Check:
    """Checks that the tracking store answers, accepts the account and has a known schema."""
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI")
    if uri is None and not is_local:
        remedy = "give --tracking-uri, or set MLFLOW_TRACKING_URI on the cluster's head"
        return Check("tracking", "warning", "not checked: no store is named", remedy)
    try:
        resolved = tracking.resolve_uri(uri)
        tracking.check(resolved)
    except TrackingError as error:
        remedy = error.remedy or "repair it, or publish later with `sweeps sync`"
        if isinstance(error, CredentialsRejectedError) and not is_local:
            remedy += ", on the cluster's head, where the driver runs"
        return Check("tracking", "failed", error.problem, remedy)
    return Check("tracking", "ok", f"{redact(resolved)} can be used")


def _check_storage(task: _Task) -> Check:
    """Writes a mark into the storage, and reads the driver's mark, which stays until the end."""
    if task.storage is None:
        return Check("storage", "warning", "not checked: none is named", "give --storage")
    place, marks = redact(task.storage), _marks(task)
    try:
        is_shared = task.is_driver or _DRIVER in marks.files()
        marks.write(_DRIVER if task.is_driver else uuid.uuid4().hex, os.urandom(_MARK_BYTES))
        if not is_shared:
            marks.remove()
            found = f"{place} here is another directory than the driver's"
            return Check("storage", "failed", found, _SHARE_ADVICE)
        marks.read(_DRIVER)
    except OSError as error:
        found = f"{place} cannot be written: {redact(str(error))}"
        return Check("storage", "failed", found, _ADVICE["storage"])
    if not task.is_driver or marks.local_path is None:
        return Check("storage", "ok", f"{place}: written and read")
    if (free := shutil.disk_usage(marks.local_path).free) < _LEAST_FREE_BYTES:
        found = f"{place} has {free // 2**20:,} MiB free"
        return Check("storage", "warning", found, "free space, or choose another --storage")
    return Check("storage", "ok", f"{place}: written and read, {free // 2**30:,} GiB free")


def _marks(task: _Task) -> Directory:
    """Returns a directory in the storage or, if that does not exist yet, in the nearest above."""
    place = open_directory(task.storage or "")
    if (local := place.local_path) is not None:
        nearest = next(path for path in (local, *local.parents) if os.path.lexists(path))
        place = open_directory(str(nearest))
    return place / task.marks
