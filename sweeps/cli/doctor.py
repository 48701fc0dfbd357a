"""`sweeps doctor`: checks of everything that a sweep needs, here or on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer
import yaml
from rich.text import Text

import sweeps.doctor as examination
from cluster.auth import is_loopback
from cluster.jobs import JobClient
from sweeps.cli import remote
from sweeps.cli.options import AnyAddress, Data, Json, Storage, TrackingUri
from sweeps.cli.terminal import print_rows
from sweeps.engine.node_data import data_variables
from sweeps.store.manifest import installed_versions
from sweeps.study.loader import load
from sweeps.study.shipped_files import shipped_name
from sweeps.study.spec import Study

_STYLES: Final = {"ok": "green", "warning": "yellow", "failed": "bold red"}
_REMOTE_SECONDS = 300.0
_TLS_ADVICE = "use https:// (a proxy with TLS before the head), an SSH tunnel or a private network"


def doctor(
    address: AnyAddress = None,
    storage: Storage = None,
    tracking_uri: TrackingUri = None,
    study: Annotated[
        str | None, typer.Option(help="Study whose data and resources to check.")
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Check everything that a sweep needs, on every node, and advise on each failure.

    Versions are equal everywhere; Ray rejects requests without its token; secret files are private;
    every node can write the same storage; the tracking store answers; the study's data are on every
    node; torch can use the GPUs; memory; clocks.

    Exit codes: 0 nothing failed, though there may be warnings; 1 a check failed; 2 bad input, such
    as an address where no Ray answers, or one that rejects the token.
    """
    loaded = None if study is None else load(study)
    if address is not None and remote.is_job_server(address):
        report = examine_remotely(JobClient(address), storage, tracking_uri, loaded, data)
    else:
        os.environ.update(data_variables(data))
        report = examination.examine(address, storage, tracking_uri, loaded, data)
    if json:
        typer.echo(report.model_dump_json())
    else:
        _print(report)
    sys.stdout.flush()
    os._exit(1 if report.failed else 0)  # Python would wait for a check that hangs.


def examine_remotely(
    client: JobClient,
    storage: str | None,
    tracking_uri: str | None,
    study: Study | None,
    data: str | None,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> examination.Report:
    """Runs the checks on a cluster's head, and those that only this machine can make.

    Args:
        files: Files of the study, by their paths from its folder.
    """
    remote.check_remote_path("--storage", storage)
    remote.check_remote_path("--data", data)
    remote.check_public("--tracking-uri", tracking_uri, remote.TRACKING_ADVICE)
    options = {"--storage": storage, "--tracking-uri": tracking_uri}
    shipped = dict(files)
    if study is not None:
        options["--study"] = file = shipped_name(study)
        shipped[file] = yaml.safe_dump(study.to_dict(), sort_keys=False).encode()
    words = [word for option, value in options.items() if value for word in (option, value)]
    words = ["doctor", "--address", "auto", "--json", *words]
    reply = remote.run_remotely(client, words, data=data, files=shipped, timeout=_REMOTE_SECONDS)
    report = remote.parse_reply(examination.Report, reply)
    own = examination.check_versions(report.versions, installed_versions(), examination.CLIENT)
    checks = (*_check_job_server(client), *report.checks, own)
    return report.model_copy(update={"checks": checks})


def _check_job_server(client: JobClient) -> list[examination.Check]:
    loopback = is_loopback(urlsplit(client.address).hostname or "")
    checks = [examination.check_authentication("accepted", loopback)] if client.is_open() else []
    if client.address.startswith("http://") and not loopback:
        found = f"{client.address} has no TLS: the network can read the token"
        checks.append(examination.Check("authentication", "warning", found, _TLS_ADVICE))
    return checks


def _print(report: examination.Report) -> None:
    rows = [
        (c.subject, c.node, Text(c.state, style=_STYLES[c.state]), c.found, c.remedy)
        for c in report.checks
    ]
    print_rows(("subject", "node", "state", "found", "remedy"), rows)
    failed, total = len(report.failed), len(report.checks)
    typer.echo(f"{failed} of {total} checks failed." if failed else "No check failed.")
