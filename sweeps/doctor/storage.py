"""Whether storage can be written, and is the same, wherever a sweep writes to it.

Every party puts a mark into a directory of this examination's own, then looks for the marks of all
the others; afterwards all of it is removed.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sweeps.doctor.bounded import Trouble
from sweeps.doctor.check import Check
from sweeps.store.filesystem import Directory, open_directory
from tracking.redaction import redact

SUBJECT = "storage"
# More than a file system keeps beside a name, so that a full disk shows.
_MARK_BYTES = 2**17
_LEAST_BYTES = 2**30
_ROUNDS = 3
_UNWRITABLE = (
    "give the user that runs Ray there leave to write to it, and room, or choose another --storage"
)
_UNSHARED = (
    "mount the same file system at the same place on every node, or give a URI (s3://...) as "
    "--storage"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where marks are put.

    Attributes:
        storage: Absolute path or URI of the storage.
        name: Of the directory in it, of this examination alone.
    """

    storage: str
    name: str

    @classmethod
    def new(cls, storage: str) -> Place:
        """A directory that nobody uses yet.

        Args:
            storage: Absolute path or URI of the storage.
        """
        return cls(storage, f".doctor-{uuid.uuid4().hex}")

    def open(self) -> Directory:
        """The directory that holds the marks."""
        return open_directory(self.storage) / self.name


@dataclass(frozen=True, slots=True)
class Left:
    """What came of leaving a mark.

    Attributes:
        problem: Why it could not be left; None if it was.
        free: Bytes that are free on a local or shared file system; None elsewhere.
        made: Directories that had to be made for it, the innermost first.
        hung: Whether nobody knows what became of it.
    """

    problem: str | None = None
    free: int | None = None
    made: tuple[str, ...] = ()
    hung: bool = False


def leave(place: Place, mark: str) -> Left:
    """Write a mark: aside first and then renamed, as all of a sweep's files are.

    Args:
        place: Where.
        mark: Its name.
    """
    marks = place.open()
    local = marks.parent.local_path
    made = _missing(local) if local is not None else ()
    try:
        marks.write(mark, os.urandom(_MARK_BYTES))
    except OSError as error:
        return Left(redact(str(error)), made=made)
    return Left(None, None if local is None else shutil.disk_usage(local).free, made)


def seen(mark: str, place: Place) -> list[str]:
    """The marks that can be read whole from here.

    Args:
        mark: This party's own.
        place: Where they are.

    Raises:
        OSError: If one of them cannot be read.
    """
    marks = place.open()
    return [name for name in marks.files() if len(marks.read(name)) == _MARK_BYTES]


def clear(mark: str, place: Place, made: Mapping[str, Sequence[str]]) -> None:
    """Remove all marks, and what this party made for them if nobody uses it by now.

    Args:
        mark: This party's own.
        place: Where they are.
        made: Mark to directories, the innermost first.

    Raises:
        OSError: If they cannot be removed.
    """
    for _ in range(_ROUNDS):
        with suppress(FileNotFoundError):  # another party was faster with some of it
            place.open().remove()
            break
    for path in made.get(mark, ()):
        with suppress(OSError):
            os.rmdir(path)


def judge(
    storage: str, left: Mapping[str, Left], read: Mapping[str, Sequence[str] | Trouble]
) -> list[Check]:
    """What the marks tell.

    Args:
        storage: Where they were left.
        left: Party to what came of leaving its mark.
        read: Party, of those that left a mark, to whose marks it read, or why it could not.
    """
    where = redact(storage)
    checks = [
        Check(SUBJECT, node, "failed", f"{where} cannot be written: {told.problem}", _UNWRITABLE)
        for node, told in left.items()
        if told.problem is not None
    ]
    for node, found in read.items():
        if isinstance(found, Trouble):
            reason = f"{where} cannot be read: {redact(found.reason)}"
            checks.append(Check(SUBJECT, node, "failed", reason, _UNWRITABLE))
        elif missing := [other for other in read if other not in found]:
            reason = f"{where} here lacks what was written to it on {', '.join(missing)}"
            checks.append(Check(SUBJECT, node, "failed", reason, _UNSHARED))
    return checks or [_sound(where, left)]


def judge_clearing(place: Place, cleared: Mapping[str, Trouble | None]) -> list[Check]:
    """What it means that marks could not be removed.

    Args:
        place: Where they are.
        cleared: Party to why it could not, if so.
    """
    where = redact(f"{place.storage}/{place.name}")
    remedy = "remove it by hand"
    return [
        Check(
            SUBJECT, node, "warning", f"{where} may be left behind: {redact(told.reason)}", remedy
        )
        for node, told in cleared.items()
        if told is not None
    ]


def _sound(where: str, left: Mapping[str, Left]) -> Check:
    rooms = [told.free for told in left.values() if told.free is not None]
    told = "written" if len(left) == 1 else "written and read from everywhere"
    if rooms and min(rooms) < _LEAST_BYTES:
        found = f"{where} has {min(rooms) // 2**20:,} MiB free"
        return Check(SUBJECT, "", "warning", found, "make room, or choose another --storage")
    room = f", {min(rooms) // 2**30:,} GiB free" if rooms else ""
    return Check(SUBJECT, "", "ok", f"{where}: {told}{room}")


def _missing(path: Path) -> tuple[str, ...]:
    return tuple(str(folder) for folder in (path, *path.parents) if not folder.exists())
