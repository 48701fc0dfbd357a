"""Doctor: its report, the judgements that a client makes too, and asking a cluster for one.

Importing this module does not load Ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field

from cluster.auth import is_loopback
from cluster.jobs import JobClient
from cluster.probe import ProbeResult
from sweeps.remote.commands import (
    TRACKING_ADVICE,
    check_public,
    check_remote_path,
    parse_reply,
    run_remotely,
)
from sweeps.store.manifest import PROJECT_NAME, installed_versions
from sweeps.study.shipped_files import shipped_name
from sweeps.study.spec import Study

State = Literal["ok", "warning", "failed"]
Versions = Mapping[str, str]

CLIENT: Final = "this machine"
"""Name for the machine that submits to a cluster."""

_Text = Annotated[str, Field(max_length=10_000)]
_TOKEN_ADVICE = (
    "start every node with RAY_AUTH_MODE=token and the same token: `ray get-auth-token --generate` "
    "makes one; copy it to ~/.ray/auth_token on each node with mode 0600"
)
_DOCTOR_SECONDS = 300.0
_TLS_ADVICE = "use https:// (a proxy with TLS before the head), an SSH tunnel or a private network"
_VERSIONS_ADVICE = "install equal versions (constraints.txt, or one image), then restart Ray there"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check; `failed` if a sweep would not run, or would not be safe.

    `node` is empty for the cluster, or this machine, as a whole.
    """

    subject: _Text
    state: State
    found: _Text
    remedy: _Text = ""
    node: _Text = ""


class Report(BaseModel):
    """Results of all checks, in the order to show them, and the versions of the driver."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    checks: tuple[Check, ...]
    versions: dict[str, str]

    @property
    def failed(self) -> list[Check]:
        """Checks that failed."""
        return [check for check in self.checks if check.state == "failed"]


def examine_remotely(
    client: JobClient,
    storage: str | None,
    tracking_uri: str | None,
    study: Study | None,
    data: str | None,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> Report:
    """Runs the checks on a cluster's head, and those that only this machine can make.

    Args:
        files: Files of the study, by their paths from its folder.
    """
    check_remote_path("--storage", storage)
    check_remote_path("--data", data)
    check_public("--tracking-uri", tracking_uri, TRACKING_ADVICE)
    options = {"--storage": storage, "--tracking-uri": tracking_uri}
    shipped = dict(files)
    if study is not None:
        options["--study"] = file = shipped_name(study)
        shipped[file] = yaml.safe_dump(study.to_dict(), sort_keys=False).encode()
    words = [word for option, value in options.items() if value for word in (option, value)]
    words = ["doctor", "--address", "auto", "--json", *words]
    reply = run_remotely(client, words, data=data, files=shipped, timeout=_DOCTOR_SECONDS)
    report = parse_reply(Report, reply)
    own = check_versions(report.versions, installed_versions(), CLIENT)
    loopback = is_loopback(urlsplit(client.address).hostname or "")
    checks = [check_authentication("accepted", loopback)] if client.is_open() else []
    if client.address.startswith("http://") and not loopback:
        found = f"{client.address} has no TLS: the network can read the token"
        checks.append(Check("authentication", "warning", found, _TLS_ADVICE))
    return report.model_copy(update={"checks": (*checks, *report.checks, own)})


def merge_nodes(checks: Iterable[Check], nodes: Sequence[str]) -> tuple[Check, ...]:
    """Merges results that differ in their node alone; a result of all `nodes` says so."""
    found_on: dict[Check, list[str]] = {}
    for check in checks:
        found_on.setdefault(replace(check, node=""), []).append(check.node)
    merged = []
    for check, names in found_on.items():
        is_everywhere = len(nodes) > 1 and set(names) >= set(nodes)
        node = f"all {len(nodes)} nodes" if is_everywhere else ", ".join(dict.fromkeys(names))
        merged.append(replace(check, node=node))
    return tuple(merged)


def check_authentication(result: ProbeResult, is_loopback: bool) -> Check:
    """Judges how a head, on loopback or not, answers a request without a token."""
    if result == "rejected":
        return Check("authentication", "ok", "a request without the token is rejected")
    if result != "accepted":
        found = "the head neither accepts nor rejects a request without a token"
        return Check("authentication", "warning", found, "try again; else read the head's log")
    users = "every user of this machine" if is_loopback else "everyone who reaches the head"
    found = f"off: {users} can run code on it"
    return Check("authentication", "warning" if is_loopback else "failed", found, _TOKEN_ADVICE)


def check_versions(driver: Versions, own: Versions | None = None, node: str = "") -> Check:
    """Compares a machine's versions, by default this one's, with those of the driver.

    A client sends only this project's code to the cluster. The same release built for another
    accelerator computes the same.
    """
    own = own or installed_versions()
    names = differing(driver, own)
    if not names:
        return Check("versions", "ok", ", ".join(f"{n} {v}" for n, v in own.items()), "", node)
    found = ", ".join(f"{n} {own.get(n, 'absent')}, not {driver.get(n, 'absent')}" for n in names)
    vital = [PROJECT_NAME] if node == CLIENT else names
    same = all(_release(driver, name) == _release(own, name) for name in vital)
    return Check("versions", "warning" if same else "failed", found, _VERSIONS_ADVICE, node)


def differing(left: Versions, right: Versions) -> list[str]:
    """Returns the names that have other values in one of two mappings."""
    return [name for name in {**left, **right} if left.get(name) != right.get(name)]


def _release(versions: Versions, name: str) -> str:
    return versions.get(name, "absent").partition("+")[0]
