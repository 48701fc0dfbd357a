"""What a tracking server's failure means, in one sentence instead of its transport's own words."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tracking.errors import CredentialsRejectedError, TrackingError

_UNKNOWN = 401
REFUSED = (_UNKNOWN, 403)

_MOST = 200
_LONGEST = 1000


def nonsense() -> tuple[type[Exception], ...]:
    """What MLflow's client raises where a server's answer is not what it should be."""
    from google.protobuf.json_format import Error  # type: ignore[import-untyped, unused-ignore]

    return (json.JSONDecodeError, Error, RecursionError, AttributeError, TypeError, KeyError)


def told(uri: str, error: Exception) -> TrackingError:
    """What went wrong between here and an `http(s)` tracking server.

    Args:
        uri: Of the server.
        error: As MLflow or its transport raised it.

    Returns:
        What to raise.
    """
    from mlflow.exceptions import MlflowException
    from requests import exceptions

    status = error.get_http_status_code() if isinstance(error, MlflowException) else None  # type: ignore[no-untyped-call]
    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        status = error.response.status_code
    if status in REFUSED:
        return refusal(uri, status, str(error))
    # MLflow wraps what requests raises, which wraps what urllib3 raises, and so on.
    chain = list(_chain(error))
    if any(isinstance(e, exceptions.ConnectionError | exceptions.Timeout) for e in chain):
        return silence(uri, _reason(chain))
    broken: tuple[type[Exception], ...]
    broken = (exceptions.RetryError, exceptions.ContentDecodingError, *nonsense())
    if any(isinstance(e, broken) for e in chain):
        said = _innermost_text(chain)
        return TrackingError(f"{uri} does not answer as an MLflow server: {said}.")
    return TrackingError(f"{uri}: {str(error)[:_LONGEST]}")


def is_refused(error: Exception) -> bool:
    """Whether MLflow, here or on a server, understood what it was sent and found it wrong."""
    from mlflow.exceptions import MlflowException

    return isinstance(error, MlflowException) and error.error_code == "INVALID_PARAMETER_VALUE"


def silence(uri: str, reason: str) -> TrackingError:
    """That nobody answers at an address, and what to do about it."""
    return TrackingError(
        f"no MLflow server answers at {uri} ({reason})",
        "start it, or leave --tracking-uri out and publish later with `sweeps sync`",
    )


def refusal(uri: str, status: int, answer: str) -> TrackingError:
    """What an answer of 401 or 403 means: wrong credentials, or a host that is not allowed."""
    said = " ".join(answer[:_MOST].split())
    if "Invalid Host" in answer:
        return TrackingError(
            f"{uri} refuses that name of its host ({said})", "start it with --allowed-hosts"
        )
    # MLflow's own words of a 401 lead to its manual, and say no more than the number.
    code = f"{status}: {said}" if status != _UNKNOWN else str(status)
    return CredentialsRejectedError(
        f"{uri} refuses the credentials ({code})",
        "put MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or MLFLOW_TRACKING_TOKEN) as "
        "it knows them into the environment, or the former two into ~/.mlflow/credentials "
        "(chmod 600)",
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        # urllib3 keeps what ended its retries in `reason`, also where nothing links to it.
        inner = getattr(error, "reason", None)
        linked = error.__cause__ or error.__context__
        error = linked or (inner if isinstance(inner, BaseException) else None)


def _reason(chain: list[BaseException]) -> str:
    from requests.exceptions import Timeout
    from urllib3.exceptions import NameResolutionError

    if any(isinstance(error, ConnectionRefusedError) for error in chain):
        return "connection refused"
    if any(isinstance(error, NameResolutionError) for error in chain):
        return "no such host"
    if any(isinstance(error, TimeoutError | Timeout) for error in chain):
        return "timed out"
    return _innermost_text(chain)


def _innermost_text(chain: list[BaseException]) -> str:
    innermost = chain[-1]
    text = innermost.strerror if isinstance(innermost, OSError) else None
    return " ".join((text or str(innermost))[:_MOST].split())
