"""What a running driver writes down of itself every few seconds: `<sweep>/progress.json`.

Whoever looks at a sweep from elsewhere learns from it what the ledger does not say: how fast it
goes, on what, and that the driver lives. Nothing depends on it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from sweeps.engine.progress import ResourceUse, SweepProgress
from sweeps.store.ledger import Ledger

SECONDS: Final = 5.0
"""Between two writings."""

Phase = Literal["starting", "training", "publishing", "ended", "stopped"]

_FILE = "progress.json"
_MOST_BYTES = 64 * 1024
_LAST_SECONDS = 15.0

_Count = Annotated[int, Field(ge=0)]
_Words = Annotated[str, Field(max_length=1000)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Heartbeat(BaseModel):
    """How a driver was when it last wrote.

    Attributes:
        format: Of the file.
        phase: What it was at; `ended` and `stopped` are the last words of one.
        updated_at: When, by its own clock.
        doing: What it does before training, in words.
        share: Of the work, in [0, 1].
        rate: Points per minute since this run of it began; None before the first.
        eta: Seconds left; None while that cannot be told.
        use: What it works on; None before.
        trainings: Done, and in all; None before that is known.
        waiting: What training waits for, in words.
        setbacks: Packs that were lost in training, and are tried again.
        setback: The last of these, in words.
    """

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    phase: Phase
    updated_at: AwareDatetime
    doing: _Words | None = None
    share: Annotated[float, Field(ge=0, le=1)] = 0.0
    rate: _Amount | None = None
    eta: _Amount | None = None
    use: ResourceUse | None = None
    trainings: tuple[_Count, _Count] | None = None
    waiting: _Words | None = None
    setbacks: _Count = 0
    setback: _Words | None = None

    @property
    def over(self) -> bool:
        """Whether the driver said that it ends."""
        return self.phase in ("ended", "stopped")


class HeartbeatWriter:
    """Keeps what there is to write.

    Attributes:
        phase: What the driver is at.
        problem: Why it could not be written, if it could not.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Of a sweep, whose directory is there."""
        self.phase: Phase = "starting"
        self.problem: str | None = None
        self._ledger = ledger
        self._progress: SweepProgress | None = None

    def show(self, progress: SweepProgress) -> None:
        """Take in how far the sweep is."""
        self._progress = progress

    def beat(self) -> None:
        """Write; a failure is noted in `problem`."""
        try:
            pulse = _pulse(self.phase, self._progress)
            self._ledger.directory.write(_FILE, pulse.model_dump_json().encode())
        except (OSError, ValidationError) as error:
            self.problem = f"{_FILE} could not be written: {error}"


@contextmanager
def beating(ledger: Ledger) -> Iterator[HeartbeatWriter]:
    """Have it written every few seconds while the block runs, and at its end.

    A block that breaks off, or whose phase is `stopped` at its end, has stopped; others have ended.
    """
    heart, over = HeartbeatWriter(ledger), threading.Event()

    def keep_beating() -> None:
        heart.beat()
        while not over.wait(SECONDS):
            heart.beat()

    thread = threading.Thread(target=keep_beating, name="pulse", daemon=True)
    thread.start()
    try:
        yield heart
        if heart.phase != "stopped":
            heart.phase = "ended"
    except BaseException:
        heart.phase = "stopped"
        raise
    finally:
        over.set()
        thread.join(_LAST_SECONDS)
        if not thread.is_alive():  # else the storage hangs
            heart.beat()


def read_heartbeat(ledger: Ledger) -> Heartbeat | None:
    """What a sweep's driver wrote last; None if there is nothing that can be read."""
    try:
        content = ledger.directory.read(_FILE, _MOST_BYTES)
        return Heartbeat.model_validate_json(content)
    except (OSError, ValidationError):
        return None


def _pulse(phase: Phase, progress: SweepProgress | None) -> Heartbeat:
    now = datetime.now(UTC)
    if progress is None:
        return Heartbeat(phase=phase, updated_at=now)
    return Heartbeat(
        phase=phase,
        updated_at=now,
        doing=progress.doing,
        share=progress.share,
        rate=progress.rate,
        eta=progress.eta,
        use=progress.use,
        trainings=progress.trainings,
        waiting=progress.waiting,
        setbacks=progress.setbacks,
        setback=progress.setback,
    )
