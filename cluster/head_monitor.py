"""Monitor of a cluster's head, which warns when the head stops answering.

Ray itself reports nothing for about a minute and then ends every process that joined, with a
message that names no remedy. A head that hangs still accepts connections, so each probe asks for an
answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cluster.probe import probe

_INTERVAL_SECONDS: Final = 2.0
_PROBE_SECONDS: Final = 5.0
_SILENT_SECONDS: Final = 8.0


@contextmanager
def monitor_head(
    address: str,
    token: str | None,
    on_silence: Callable[[float], None],
    silent_seconds: float = _SILENT_SECONDS,
) -> Iterator[None]:
    """Probes a head every other second while the block runs.

    Args:
        address: `HOST:PORT` of the head.
        token: Token to send with each probe; None for none.
        on_silence: Called in a thread with the seconds since the head's last answer; once, and
            again only after the head has answered in between.
        silent_seconds: Seconds without an answer before `on_silence` is called.
    """
    ended = threading.Event()

    def answers() -> bool:
        return probe(address, token, _PROBE_SECONDS) not in ("silent", "foreign")

    arguments = (answers, on_silence, silent_seconds, ended)
    threading.Thread(target=_monitor, args=arguments, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _monitor(
    answers: Callable[[], bool],
    on_silence: Callable[[float], None],
    silent_seconds: float,
    ended: threading.Event,
) -> None:
    last_answer, is_reported = time.monotonic(), False
    while not ended.wait(_INTERVAL_SECONDS):
        began = time.monotonic()
        if answers():
            last_answer, is_reported = began, False
            continue
        silence = time.monotonic() - last_answer
        if not is_reported and silence >= silent_seconds and not ended.is_set():
            is_reported = True
            on_silence(silence)
