"""Looking at a cluster from a machine that has but its address and its token."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from sweeps.doctor import authentication, versions
from sweeps.doctor.asking import Request
from sweeps.doctor.check import Report
from sweeps.engine.handing_over import answer, check_place, check_public
from sweeps.store.manifest import installed_versions

if TYPE_CHECKING:
    from sweeps.doctor.check import Check

_STUDY: Final = "study.yaml"
_SECONDS: Final = 300.0
_TIMEOUT: Final = (5.0, 15.0)
_TRACKING_REMEDY = (
    "put MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD into the environment of the "
    "cluster's head, or ~/.mlflow/credentials there with mode 0600"
)


def examine_over_http(request: Request) -> Report:
    """Have the cluster's head examine the cluster, and look at what shows from here alone.

    Args:
        request: With the address of the job server.

    Raises:
        ConnectError: If it does not answer, or does not let us in.
        JobError: If the cluster cannot examine itself; the message is its own.
        InputError: If what is asked for means something else over there, or holds a secret that
            others would see.
    """
    from sweeps.engine.data_on_nodes import environment
    from sweeps.engine.handing_over import run_on_cluster

    address = request.address or ""
    said = run_on_cluster(
        address,
        _arguments(request),
        environment=environment(request.data),
        files=_files(request),
        timeout=_SECONDS,
    )
    report = answer(Report, said)
    own = versions.compare_own(installed_versions(), report.versions)
    checks = (*_server(address), *report.checks, own)
    return report.model_copy(update={"checks": checks})


def _arguments(request: Request) -> list[str]:
    """Of `sweeps` on the head.

    Raises:
        InputError: If one means something else there, or holds a secret.
    """
    for option, value in (("--storage", request.storage), ("--data", request.data)):
        check_public(option, value, "put them into the environment of the cluster's nodes")
        check_place(option, value)
    check_public("--tracking-uri", request.tracking_uri, _TRACKING_REMEDY)
    words = ["doctor", "--address", "auto", "--json"]
    words += ["--storage", request.storage] if request.storage is not None else []
    words += ["--tracking-uri", request.tracking_uri] if request.tracking_uri is not None else []
    return words + (["--study", _STUDY] if request.study is not None else [])


def _files(request: Request) -> dict[str, bytes]:
    import yaml

    if request.study is None:
        return {}
    return {_STUDY: yaml.safe_dump(request.study.to_dict(), sort_keys=False).encode()}


def _server(address: str) -> list[Check]:
    from urllib.parse import urlsplit

    import requests

    from cluster.auth import is_loopback

    # A session of its own: not even a netrc file is to speak for us. An authority is still ours.
    authority = os.environ.get("REQUESTS_CA_BUNDLE") or True
    with requests.Session() as stranger:
        stranger.trust_env = False
        try:
            place = f"{address.rstrip('/')}/api/jobs/"
            answer = stranger.get(place, timeout=_TIMEOUT, verify=authority, allow_redirects=False)
            answers = answer.status_code == requests.codes.ok
        except requests.RequestException:  # as where only a proxy leads there
            answers = False
    loopback = is_loopback(urlsplit(address).hostname or "")
    return authentication.judge_server(address, answers, loopback)
