"""Finding a cluster's job server, being let in, and saying why not.

Importing this module does not load Ray.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import BadStatusLine, RemoteDisconnected
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cluster.errors import ConnectionFailed
from cluster.proxies import spare_own_machine
from cluster.secrets import SecretRefused, ray_token
from cluster.uris import holds_secret

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient
    from requests import PreparedRequest

# Seconds to connect, and to wait for an answer: at first, and once the server is known to answer.
_KNOCK: Final = (5.0, 15.0)
_PATIENCE: Final = (10.0, 120.0)
# Each sends requests to another address than the one that was asked for.
_OVERRIDES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
# They report every step of an upload.
_TALKATIVE = ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging")
_TOKEN_REMEDY = (
    "put it into RAY_AUTH_TOKEN, or into ~/.ray/auth_token with mode 0600 (the cluster's head has "
    "it in the same places)"
)


class Unreachable(ConnectionFailed):
    """Nothing answers at the address now; it may later."""


def checked(address: str) -> str:
    """An address of the form that a job server's has, without what may follow it.

    Raises:
        ConnectionFailed: If it is of another form.
    """
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        more = parts.username is not None or parts.query or parts.path.strip("/")
    except ValueError:  # a bracket that does not close, a port that is no number
        usable = False
    if not usable or more:
        found = "one with a secret in it" if holds_secret(address) else repr(address)
        raise ConnectionFailed(
            "the address of a cluster's job server must be http://HEAD:8265 or "
            f"https://HEAD:PORT and nothing else; got {found}"
        )
    return f"{parts.scheme}://{parts.netloc}"


def identify(request: PreparedRequest) -> PreparedRequest:
    """Have a request say who we are: by the token as it is now, and by nothing else.

    `requests` would send what `~/.netrc` has for the host, in the token's place.

    Raises:
        ConnectionFailed: If there is a token that others could have read.
    """
    request.headers.pop("Authorization", None)
    if token := _token():
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _token() -> str | None:
    """What lets us in, whatever this process's own Ray is told of authentication."""
    try:
        return ray_token()
    except SecretRefused as error:
        raise ConnectionFailed(f"the cluster's token cannot be used: {error}") from error


def knock(address: str) -> str:
    """The version of the Ray whose job server is at an address and lets us in.

    Raises:
        ConnectionFailed: If there is none, or it does not, or our token cannot be used; within
            seconds.
    """
    import requests

    spare_own_machine()
    try:
        answer = requests.get(
            f"{address}/api/version", auth=identify, timeout=_KNOCK, allow_redirects=False
        )
    except requests.RequestException as error:
        raise Unreachable(unreachable(address, error)) from error
    if answer.status_code in (401, 403):
        raise ConnectionFailed(_not_let_in(address, _token() is not None) + _proxied(address))
    try:
        return str(answer.json()["ray_version"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectionFailed(
            f"there is no Ray job server at {address}: it answers with status "
            f"{answer.status_code} to what Ray's would know. The address is that of the head's "
            "dashboard (port 8265 unless it was told otherwise), which needs ray[default] there"
        ) from error


def _not_let_in(address: str, had_token: bool) -> str:
    if not had_token:
        return f"{address} wants the cluster's token, and there is none here: {_TOKEN_REMEDY}"
    sources = {
        "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN", "").strip(),
        "the file that RAY_AUTH_TOKEN_PATH names": os.environ.get("RAY_AUTH_TOKEN_PATH"),
        "~/.ray/auth_token": "otherwise",
    }
    source = next(name for name, there in sources.items() if there)
    return f"{address} refuses the token in {source}, which is not the cluster's: {_TOKEN_REMEDY}"


def unreachable(address: str, error: Exception) -> str:
    """What to say, and to do, where a request to a job server failed on its way."""
    import requests

    if isinstance(error, requests.exceptions.SSLError):
        return (
            f"no trusted connection to {address}: {_reason(error)}. Name the file of the authority "
            "that signed its certificate in REQUESTS_CA_BUNDLE, or use http:// if it has no TLS"
        )
    return (
        f"no Ray job server answers at {address}: {_reason(error)}. Check the address (port 8265 "
        "of the head unless it was told otherwise), that the head runs, and that this machine "
        "reaches it: a job server on loopback, as is best, through an SSH tunnel"
        f"{_proxied(address)}"
    )


def _proxied(address: str) -> str:
    """That a proxy is asked instead, in words; empty where none is. Its own address is a secret."""
    from requests.utils import get_environ_proxies, select_proxy

    if select_proxy(address, get_environ_proxies(address, no_proxy=None)) is None:
        return ""
    host = urlsplit(address).hostname
    return (
        f". It was asked through the proxy of the environment (http_proxy and the like), whose "
        f"answer this may be: NO_PROXY={host} leaves that out"
    )


def _reason(error: BaseException) -> str:
    """The innermost of an error's causes, which says what happened rather than to whom."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected):
        return "what listens there speaks no HTTP"
    said = getattr(error, "strerror", None) or str(error)
    # As where a proxy's address cannot be understood.
    return said.rstrip(".") if said and not holds_secret(said) else type(error).__name__


def client(address: str) -> JobSubmissionClient:
    """Ray's own client of a job server that answers.

    It goes through proxies as the environment says, and sends the token as it is at the time.

    Raises:
        ConnectionFailed: If it answers no more, or not as Ray's client wants it.
    """
    import requests
    from ray.exceptions import AuthenticationError

    try:
        with _without(_OVERRIDES):
            made = _kind()(address, verify=os.environ.get("REQUESTS_CA_BUNDLE") or True)
    except (OSError, RuntimeError, AuthenticationError, requests.RequestException) as error:
        raise ConnectionFailed(f"the Ray job server at {address} fails: {error}") from error
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    return made


def _kind() -> type[JobSubmissionClient]:
    from ray.job_submission import JobSubmissionClient

    class Client(JobSubmissionClient):
        """Waits for no head that is cut off, and asks no other server than it was told to."""

        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            own: dict[str, Any] = {"auth": identify, "timeout": _PATIENCE}
            return super()._do_request(method, endpoint, **options, **own, allow_redirects=False)

    return Client


@contextmanager
def _without(names: Sequence[str]) -> Iterator[None]:
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)
