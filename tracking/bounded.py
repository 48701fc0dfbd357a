"""Answers of tracking servers within bounds: no server is trusted to come to an end.

MLflow reads whatever a server sends, for as long as it sends, and waits for as long as it says.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

MOST_BYTES: Final = 2**29
"""Of an answer; a thousand runs with all that they say have some tens of megabytes."""

MOST_SECONDS: Final = 300.0
"""That the body of an answer may take."""

_CHUNK: Final = 2**16


@cache
def bound_answers() -> None:
    """Have MLflow's client refuse answers without end, in this process."""
    from mlflow.utils import request_utils
    from urllib3.util import Retry

    name = "TCPKeepAliveHTTPAdapter"  # which not every version has
    name = name if hasattr(request_utils, name) else "HTTPAdapter"
    base: Any = getattr(request_utils, name)

    class Bounded(base):  # type: ignore[misc]
        """Reads no answer beyond the bounds, and does not wait because a server says so."""

        def __init__(self, *args: Any, **options: Any) -> None:
            retries = options.get("max_retries")
            if isinstance(retries, Retry):
                options["max_retries"] = retries.new(respect_retry_after_header=False)
            super().__init__(*args, **options)

        def send(self, request: PreparedRequest, stream: bool = False, **options: Any) -> Response:
            answer: Response = super().send(request, stream=stream, **options)
            if not stream:
                _read(answer)
            return answer

    setattr(request_utils, name, Bounded)


def _read(answer: Response) -> None:
    """Read an answer's body.

    Raises:
        ContentDecodingError: If it is too long, or takes too long.
    """
    from requests.exceptions import ContentDecodingError, RequestException

    found, late = bytearray(), threading.Event()
    # Sent byte by byte, each in time, an answer may take for ever.
    timer = threading.Timer(MOST_SECONDS, _hang_up, [answer, late])
    timer.daemon = True
    timer.start()
    broken = None
    try:
        for part in answer.iter_content(_CHUNK):
            found += part
            if len(found) > MOST_BYTES:
                break
    except RequestException as error:  # also what comes of hanging up
        broken = error
    finally:
        timer.cancel()
    if late.is_set() or len(found) > MOST_BYTES:
        answer.close()
        raise ContentDecodingError(
            f"an answer of more than {MOST_BYTES >> 20} MiB or {MOST_SECONDS:.0f} s"
        )
    if broken is not None:
        raise broken
    answer._content = bytes(found)


def _hang_up(answer: Response, late: threading.Event) -> None:
    late.set()
    with suppress(ValueError, RuntimeError, OSError):  # it has just ended
        answer.raw.shutdown()
