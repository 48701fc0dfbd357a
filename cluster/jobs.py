"""Client of a cluster's job server: Ray's Jobs REST API over HTTP, without loading Ray."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import BadStatusLine, RemoteDisconnected
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

import requests
from requests.utils import get_environ_proxies, select_proxy

from cluster.auth import TOKEN, TOKEN_PATH, bypass_proxies_for_loopback, read_token
from cluster.errors import ConnectError, JobError, UnreachableError

JobState = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]

# Seconds to connect and to answer: for the first request, and for later ones.
_FIRST_TIMEOUT: Final = (5.0, 15.0)
_TIMEOUT: Final = (10.0, 120.0)
_POLL_SECONDS = 0.5
_MESSAGE_LENGTH = 2000
_TOKEN_ADVICE = (
    "put it into RAY_AUTH_TOKEN, or into ~/.ray/auth_token with mode 0600 (the cluster's head has "
    "it in the same places)"
)


@dataclass(frozen=True, slots=True)
class Job:
    """Status of a job, as Ray reports it.

    Attributes:
        job_id: Submission id.
        state: Ray's name of its state.
        message: Ray's remark on the state.
        started, ended: Unix times in seconds, by the cluster's clock; None before.
        metadata: Values that were submitted with it.
    """

    job_id: str
    state: JobState
    message: str = ""
    started: float | None = None
    ended: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """Whether it runs or waits to start."""
        return self.state in ("PENDING", "RUNNING")

    @property
    def is_finished(self) -> bool:
        """Whether it ended with success."""
        return self.state == "SUCCEEDED"


class JobClient:
    """Connection to the job server of a cluster's head.

    Each method raises `ConnectError` if the server does not answer or rejects the token, and
    `JobError` if the job does not exist or the server does not accept the request.

    Attributes:
        address: `http://HOST:PORT` or `https://HOST:PORT`.
    """

    def __init__(self, address: str) -> None:
        """Check the address and the token with one request; takes at most 20 seconds.

        Each request reads the token again from where Ray reads it: RAY_AUTH_TOKEN, the file named
        by RAY_AUTH_TOKEN_PATH, or `~/.ray/auth_token`. `~/.netrc` is not used.

        Raises:
            ConnectError: If the address has another form, no job server of Ray answers there, its
                certificate is not trusted, or it rejects the token.
        """
        try:
            parts = urlsplit(address)
            is_valid = (
                parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            )
            has_more = parts.username is not None or parts.query or parts.path.strip("/")
        except ValueError:  # an unclosed bracket, or a port that is not a number
            is_valid = False
        if not is_valid or has_more:
            given = "an address with a password in it" if "@" in address else repr(address)
            raise ConnectError(
                "a job server's address must be http://HEAD:8265 or https://HEAD:PORT and nothing "
                f"else; got {given}"
            )
        self.address = f"{parts.scheme}://{parts.netloc}"
        bypass_proxies_for_loopback()
        response = self._request("GET", "/api/version", timeout=_FIRST_TIMEOUT)
        try:
            response.json()["ray_version"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConnectError(
                f"{self.address} is not a Ray job server (status {response.status_code}). Give the "
                "address of the head's dashboard (port 8265 by default); the head needs "
                "ray[default]"
            ) from error

    def is_open(self) -> bool:
        """Returns whether the server answers a request without a token."""
        try:  # Any `auth` keeps requests from sending an account of `~/.netrc`.
            response = self._request("GET", "/api/jobs/", auth=lambda request: request)
            return response.status_code == requests.codes.ok  # not a redirect to a login page
        except ConnectError:
            return False

    def find(self, job_id: str) -> Job | None:
        """Returns a job's status; None if the cluster has no job of that id."""
        response = self._request("GET", _job_path(job_id))
        if response.status_code == requests.codes.not_found:
            return None
        return _job(job_id, _parse_reply(response))

    def list_jobs(self) -> list[Job]:
        """Returns the jobs that were submitted to the server and not deleted."""
        entries = _parse_reply(self._request("GET", "/api/jobs/"))
        return [_job(each["submission_id"], each) for each in entries if each["submission_id"]]

    def upload(self, archive: bytes) -> str:
        """Stores a zip archive on the cluster, unless it has the same one; returns its URI."""
        name = f"_ray_pkg_{hashlib.sha256(archive).hexdigest()[:32]}.zip"
        path = f"/api/packages/gcs/{name}"
        # This request also keeps the archive from being removed before a job uses it.
        if self._request("GET", path).status_code != requests.codes.ok:
            _check_status(self._request("PUT", path, data=archive))
        return f"gcs://{name}"

    def start(
        self,
        job_id: str,
        entrypoint: str,
        *,
        package: str,
        environment: Mapping[str, str],
        metadata: Mapping[str, str],
    ) -> None:
        """Starts a job that reserves no CPU. Every user of the cluster can read these arguments.

        Args:
            job_id: Submission id that is not in use.
            entrypoint: Shell command.
            package: URI of an uploaded archive, the working directory of its processes.
            environment: Variables of all its processes.
            metadata: Values to keep with it.
        """
        body = {
            "entrypoint": entrypoint,
            "submission_id": job_id,
            "runtime_env": {"env_vars": dict(environment), "working_dir": package},
            "metadata": dict(metadata),
        }
        _check_status(self._request("POST", "/api/jobs/", json=body))

    def stop(self, job_id: str) -> bool:
        """Asks a job to end, which may take it a while; returns whether it ran."""
        return bool(_parse_reply(self._request("POST", f"{_job_path(job_id)}/stop"))["stopped"])

    def delete(self, job_id: str) -> None:
        """Removes a job that ended seconds ago or earlier, so that its id can be used again."""
        _check_status(self._request("DELETE", _job_path(job_id)))

    def log(self, job_id: str) -> str:
        """Returns everything that a job has printed so far."""
        return str(_parse_reply(self._request("GET", f"{_job_path(job_id)}/logs"))["logs"] or "")

    def page(self, job_id: str) -> str:
        """Returns the address of a job's page in Ray's dashboard."""
        return f"{self.address}/#/jobs/{quote(job_id, safe='')}"

    def follow(self, job_id: str) -> Iterator[Job]:
        """Yields a job's status twice a second, until it has ended."""
        while True:
            job = self.find(job_id)
            if job is None:
                raise JobError(f"the cluster at {self.address} has no job {job_id!r}")
            yield job
            if not job.is_active:
                return
            time.sleep(_POLL_SECONDS)

    def _request(self, method: str, path: str, **options: Any) -> requests.Response:
        options = {"timeout": _TIMEOUT, "auth": _authorize, "allow_redirects": False, **options}
        try:
            response = requests.request(method, f"{self.address}{path}", **options)
        except requests.RequestException as error:
            raise UnreachableError(_describe_failure(self.address, error)) from error
        if response.status_code in (401, 403):
            fault = f"requires the cluster's token, and none is set: {_TOKEN_ADVICE}"
            if read_token() is not None:
                source = "~/.ray/auth_token"
                source = f"the file of {TOKEN_PATH}" if os.environ.get(TOKEN_PATH) else source
                source = TOKEN if os.environ.get(TOKEN, "").strip() else source
                fault = f"rejects the token in {source}: {_TOKEN_ADVICE}"
            raise ConnectError(f"{self.address} {fault}{_proxy_hint(self.address)}")
        return response


def last_line(text: str) -> str:
    """Returns the last line of a message, such as a traceback, that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_MESSAGE_LENGTH] if lines else ""


def _authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Sends the current token, instead of an account that `~/.netrc` has for the host."""
    request.headers.pop("Authorization", None)
    if token := read_token():
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _job_path(job_id: str) -> str:
    return f"/api/jobs/{quote(job_id, safe='')}"


def _check_status(response: requests.Response) -> None:
    if response.status_code != requests.codes.ok:
        raise JobError(last_line(response.text) or f"status {response.status_code}")


def _parse_reply(response: requests.Response) -> Any:
    _check_status(response)
    try:
        return response.json()
    except ValueError as error:
        raise JobError("the job server's reply is not JSON") from error


def _job(job_id: str, entry: Mapping[str, Any]) -> Job:
    started, ended = (entry.get(name) for name in ("start_time", "end_time"))
    return Job(
        job_id,
        entry["status"],
        entry.get("message") or "",
        None if started is None else started / 1000,
        None if ended is None else ended / 1000,
        entry.get("metadata") or {},
    )


def _describe_failure(address: str, error: Exception) -> str:
    root: BaseException = error
    while (inner := root.__cause__ or root.__context__) is not None:
        root = inner
    text = getattr(root, "strerror", None) or str(root)
    # A malformed proxy address may hold a password.
    cause = text.rstrip(".") if text and "@" not in text else type(root).__name__
    if isinstance(root, BadStatusLine) and not isinstance(root, RemoteDisconnected):
        cause = "the server there does not speak HTTP"
    if isinstance(error, requests.exceptions.SSLError):
        return (
            f"no trusted connection to {address}: {cause}. Name the certificate of "
            "the authority in REQUESTS_CA_BUNDLE, or use http:// if the server has no TLS"
        )
    return (
        f"no Ray job server answers at {address}: {cause}. Check the address (port "
        "8265 of the head by default), that the head runs, and that this machine reaches it; use "
        f"an SSH tunnel if the job server listens on loopback only{_proxy_hint(address)}"
    )


def _proxy_hint(address: str) -> str:
    """Advice for an answer that may be a proxy's; the proxy's own address may hold a password."""
    if select_proxy(address, get_environ_proxies(address, no_proxy=None)) is None:
        return ""
    host = urlsplit(address).hostname
    return (
        ". The request went through the proxy of the environment (http_proxy and the like); set "
        f"NO_PROXY={host} to bypass it"
    )
