"""`sweeps doctor`: checks of everything that a sweep needs, here or on a cluster."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Final
from urllib.parse import urlsplit

import requests
import typer
import yaml
from rich.text import Text

from cluster.auth import is_loopback
from cluster.jobs import JobClient
from sweeps.cli.options import AnyAddress, Data, Json, Storage, TrackingUri
from sweeps.cli.remote import (
    TRACKING_ADVICE,
    check_public,
    check_remote_path,
    is_job_server,
    parse_reply,
    run_remotely,
)
from sweeps.cli.terminal import make_console, make_grid
from sweeps.doctor.checks import Check, Report, check_authentication, check_client_versions
from sweeps.doctor.examination import examine, has_hung_work
from sweeps.engine.node_data import data_variables
from sweeps.errors import make_printable
from sweeps.store.manifest import installed_versions
from sweeps.study.loader import load
from sweeps.study.spec import Study

_STYLES: Final = {"ok": "green", "warning": "yellow", "failed": "bold red"}
_STUDY_FILE = "study.yaml"
_REMOTE_SECONDS = 300.0
_HTTP_TIMEOUT = (5.0, 15.0)
_TLS_ADVICE = (
    "put a proxy with TLS before the head (https://), or use an SSH tunnel or a private network"
)


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
    if address is not None and is_job_server(address):
        report = examine_remotely(JobClient(address), storage, tracking_uri, loaded, data)
    else:
        os.environ.update(data_variables(data))
        report = examine(address, storage, tracking_uri, loaded, data)
    if json:
        typer.echo(report.model_dump_json())
    else:
        _print(report)
    code = 1 if report.failed else 0
    if has_hung_work():  # Python would wait for it, as for a dead file system.
        sys.stdout.flush()
        os._exit(code)
    raise typer.Exit(code)


def examine_remotely(
    client: JobClient,
    storage: str | None,
    tracking_uri: str | None,
    study: Study | None,
    data: str | None,
) -> Report:
    """Runs the checks on a cluster's head, and those that only this machine can make."""
    check_remote_path("--storage", storage)
    check_remote_path("--data", data)
    check_public("--tracking-uri", tracking_uri, TRACKING_ADVICE)
    words = ["doctor", "--address", "auto", "--json"]
    words += ["--storage", storage] if storage is not None else []
    words += ["--tracking-uri", tracking_uri] if tracking_uri is not None else []
    files = {}
    if study is not None:
        words += ["--study", _STUDY_FILE]
        files[_STUDY_FILE] = yaml.safe_dump(study.to_dict(), sort_keys=False).encode()
    reply = run_remotely(client, words, data=data, files=files, timeout=_REMOTE_SECONDS)
    report = parse_reply(Report, reply)
    own = check_client_versions(installed_versions(), report.versions)
    checks = (*_check_job_server(client.address), *report.checks, own)
    return report.model_copy(update={"checks": checks})


def _check_job_server(address: str) -> list[Check]:
    loopback = is_loopback(urlsplit(address).hostname or "")
    checks = [check_authentication("accepted", loopback)] if _is_open(address) else []
    if address.startswith("http://") and not loopback:
        found = f"{address} has no TLS: the network can read the token"
        checks.append(Check("authentication", "", "warning", found, _TLS_ADVICE))
    return checks


def _is_open(address: str) -> bool:
    """Returns whether the job server answers a request without a token."""
    with requests.Session() as session:
        session.trust_env = False  # No account from ~/.netrc, no proxy.
        try:
            response = session.get(
                f"{address}/api/jobs/",
                timeout=_HTTP_TIMEOUT,
                verify=os.environ.get("REQUESTS_CA_BUNDLE") or True,
                allow_redirects=False,
            )
        except requests.RequestException:  # Only a proxy leads there.
            return False
        return response.status_code == requests.codes.ok


def _print(report: Report) -> None:
    grid = make_grid("subject", "node", "state", "found", "remedy")
    for check in report.checks:
        state = Text(check.state, style=_STYLES[check.state])
        node, *texts = map(make_printable, (check.node, check.found, check.remedy))
        grid.add_row(check.subject, node, state, *texts)
    make_console().print(grid)
    failed, total = len(report.failed), len(report.checks)
    typer.echo(f"{failed} of {total} checks failed." if failed else "No check failed.")
