"""The single checks, and their report, which travels as JSON.

Each check looks at one thing, or judges what nodes report about it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

import tracking
from cluster.auth import TOKEN_PATH, check_private
from cluster.connection import Machine
from cluster.errors import SecretError
from cluster.nodes import NoAnswer
from cluster.probe import ProbeResult
from sweeps.analysis.text import format_count
from sweeps.engine.capacity import cluster_capacity
from sweeps.errors import InputError
from sweeps.store.manifest import PROJECT_NAME
from sweeps.study.spec import Study
from tracking.errors import CredentialsRejectedError, TrackingError

State = Literal["ok", "warning", "failed"]
Versions = Mapping[str, str]

_Text = Annotated[str, Field(max_length=10_000)]
_MIB = 2**20
_CLOCK_SECONDS = 3.0
_WORKER_BYTES = 512 * _MIB
_LEAST_SHARED_BYTES = 64 * _MIB
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# Computes on each GPU: a driver or architecture that torch does not support shows only then.
_GPU_PROGRAM = """
import torch
for index in range(torch.cuda.device_count()):
    ones = torch.ones(8, 8, device=f"cuda:{index}")
    assert float((ones @ ones).sum()) == 512
    print(torch.cuda.get_device_name(index))
"""
_DATA_ADVICE = (
    "`sweeps data fetch NAME` fetches it on this machine, with --address ADDRESS on every node; "
    "--from DIR copies it from a directory that all nodes see; --data DIR names a shared one"
)
_TOKEN_ADVICE = (
    "start every node with RAY_AUTH_MODE=token and the same token: `ray get-auth-token --generate` "
    "makes one; copy it to ~/.ray/auth_token on each node with mode 0600"
)
_VERSIONS_ADVICE = (
    "install the same versions everywhere, from constraints.txt or as one container image, and "
    "restart Ray there"
)
_GPU_ADVICE = (
    "install a torch built for the CUDA driver (nvidia-smi prints its version), or start Ray there "
    "with --num-gpus 0"
)


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


def check_authentication(result: ProbeResult, is_loopback: bool) -> Check:
    """Judges how a head, on loopback or not, answers a request without a token."""
    if result == "rejected":
        return Check("authentication", "", "ok", "a request without the token is rejected")
    if result != "accepted":
        found = "the head neither accepts nor rejects a request without a token"
        return Check("authentication", "", "warning", found, "try again; else read the head's log")
    users = "every user of this machine" if is_loopback else "everyone who reaches the head"
    state: State = "warning" if is_loopback else "failed"
    return Check("authentication", "", state, f"off: {users} can run code on it", _TOKEN_ADVICE)


def check_versions(driver: Versions, node: str, versions: Versions) -> Check:
    """Compares the versions of a node with those of the driver."""
    if not (names := _differing(driver, versions)):
        return Check("versions", node, "ok", _list_versions(driver))
    found = ", ".join(f"{n} {versions.get(n, 'absent')}, not {driver.get(n)}" for n in names)
    # The same release built for another accelerator computes the same.
    same = all(_release(driver, name) == _release(versions, name) for name in names)
    return Check("versions", node, "warning" if same else "failed", found, _VERSIONS_ADVICE)


def check_client_versions(client: Versions, nodes: Mapping[str, Versions]) -> Check:
    """Compares the versions of a machine that submits with those of the cluster."""
    names = sorted({name for versions in nodes.values() for name in _differing(client, versions)})
    if not names:
        return Check("versions", "this machine", "ok", _list_versions(client))
    remote = {n: " and ".join(sorted({v.get(n, "absent") for v in nodes.values()})) for n in names}
    found = ", ".join(f"{n} {client.get(n, 'absent')}, on the cluster {remote[n]}" for n in names)
    state: State = "failed" if PROJECT_NAME in names else "warning"
    return Check("versions", "this machine", state, found, "install the cluster's versions here")


def check_clock(node: str, time: float, before: float, after: float) -> Check:
    """Judges a node's Unix time that was read between two moments of this machine's clock."""
    offset = max(before - time, time - after, 0.0)
    if offset <= _CLOCK_SECONDS:
        return Check("clock", node, "ok", f"within {_CLOCK_SECONDS:g} s of the driver's")
    remedy = "synchronise it by NTP (chrony, systemd-timesyncd): recorded times would be wrong"
    return Check("clock", node, "warning", f"off by {offset:,.0f} s or more", remedy)


def check_memory(cpus: float) -> list[Check]:
    """Checks this machine's memory for one worker per CPU, and for Ray's object store."""
    checks, needed = [], int(max(cpus, 1) * _WORKER_BYTES)
    if (free := _available_bytes()) is not None and free < needed:
        found = f"{free // _MIB:,} MiB free; {cpus:g} workers need {needed // _MIB:,} MiB"
        remedy = "start Ray there with fewer CPUs (--num-cpus), or set resources.concurrency"
        checks.append(Check("memory", "", "warning", found, remedy))
    folder = Path("/dev/shm")
    if folder.is_dir() and (shared := shutil.disk_usage(folder).free) <= _LEAST_SHARED_BYTES:
        found = f"{folder} has {shared // _MIB:,} MiB free: Ray's object store goes to disk"
        checks.append(Check("memory", "", "warning", found, "in a container: --shm-size=1g"))
    return checks or [Check("memory", "", "ok", "enough for one worker per CPU")]


def check_gpus(promised: float, is_needed: bool, seconds: float) -> list[Check]:
    """Checks that torch can compute on the `promised` GPUs that Ray counts on this machine."""
    if not promised:
        return [Check("GPUs", "", "ok", "none, and Ray counts none")]
    names, problem = _list_gpus(seconds)
    if not problem and len(names) >= promised:
        return [Check("GPUs", "", "ok", ", ".join(names))]
    found = f"Ray counts {promised:g}; {problem or f'torch finds {len(names)}'}"
    return [Check("GPUs", "", "failed" if is_needed else "warning", found, _GPU_ADVICE)]


def check_secret_files(in_cluster: bool) -> list[Check]:
    """Checks that only their owner can read this machine's token of Ray and account of MLflow."""
    token = Path(os.environ.get(TOKEN_PATH) or Path.home() / ".ray" / "auth_token").expanduser()
    files = [path for path in (token, Path.home() / ".mlflow" / "credentials") if path.is_file()]
    problems = []
    for path in files:
        try:
            check_private(path)
        except SecretError as error:
            state: State = "failed" if in_cluster or path != token else "warning"
            remedy = f"{error.remedy}; if others had time to read it, change the secret too"
            problems.append(Check("secret files", "", state, error.problem, remedy))
    found = f"only the owner can read {', '.join(map(str, files))}" if files else "none"
    return problems or [Check("secret files", "", "ok", found)]


def check_capacity(machines: Sequence[Machine], study: Study) -> Check:
    """Checks that some machine has the CPUs and GPUs of a pack."""
    try:
        workers = cluster_capacity(machines, study.resources).workers
    except InputError as error:
        remedy = "set resources.cpus and resources.gpus to what a node has, or add such a node"
        return Check("resources", "", "failed", str(error), remedy)
    return Check("resources", "", "ok", f"room for {format_count(workers, 'pack')} in parallel")


def check_data(driver: Versions | NoAnswer, node: str, data: Versions | NoAnswer) -> Check:
    """Compares a node's fingerprint of each data set with the driver's, if the driver has any."""
    if isinstance(data, NoAnswer):
        return Check("data", node, "failed", data.reason.rstrip("."), _DATA_ADVICE)
    if not isinstance(driver, NoAnswer) and (others := _differing(driver, data)):
        found = f"other data than the driver's under the name {', '.join(others)}"
        return Check("data", node, "failed", found, _DATA_ADVICE)
    return Check("data", node, "ok", ", ".join(f"{n} ({mark[:8]})" for n, mark in data.items()))


def check_tracking(uri: str | None, is_local: bool) -> Check:
    """Checks that the tracking store answers, accepts the account and has a known schema."""
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI")
    if uri is None and not is_local:
        remedy = "give --tracking-uri, or set MLFLOW_TRACKING_URI on the cluster's head"
        return Check("tracking", "", "warning", "not checked: no store is named", remedy)
    try:
        resolved = tracking.resolve_uri(uri)
        tracking.check(resolved)
    except TrackingError as error:
        remedy = error.remedy or "repair it, or publish later with `sweeps sync`"
        if isinstance(error, CredentialsRejectedError) and not is_local:
            remedy += ", on the cluster's head, where the driver runs"
        return Check("tracking", "", "failed", error.problem, remedy)
    return Check("tracking", "", "ok", f"{tracking.redact(resolved)} can be used")


def _join(names: Sequence[str], nodes: Sequence[str]) -> str:
    if len(nodes) > 1 and set(names) >= set(nodes):
        return f"all {len(nodes)} nodes"
    return ", ".join(dict.fromkeys(name for name in names if name))


def _available_bytes() -> int | None:
    """Returns the bytes of memory that new processes can use; None if unknown."""
    facts = Path("/proc/meminfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    sizes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return sizes[0] * 1024 if sizes else None


def _differing(left: Versions, right: Versions) -> list[str]:
    return [name for name in {**left, **right} if left.get(name) != right.get(name)]


def _release(versions: Versions, name: str) -> str:
    return versions.get(name, "absent").partition("+")[0]


def _list_versions(versions: Versions) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _list_gpus(seconds: float) -> tuple[list[str], str]:
    """Returns the names of the GPUs on which torch computes, and a problem if there is one."""
    # Ray hides GPUs from a task that reserved none.
    environment = {k: v for k, v in os.environ.items() if k not in _GPU_VARIABLES}
    try:
        process = subprocess.run(
            [sys.executable, "-c", _GPU_PROGRAM],
            env=environment, capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [], f"torch does not answer within {seconds:g} s"
    if process.returncode:
        return [], f"torch fails: {(process.stderr.strip().splitlines() or ['?'])[-1][:300]}"
    return process.stdout.splitlines(), ""
