"""Directories that hold sweeps: local ones, shared ones, or any URI that pyarrow can write."""

from __future__ import annotations

import errno
import os
import re
import stat
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyarrow import fs

from sweeps.errors import InputError
from sweeps.study.yaml_reader import is_encodable
from tracking.errors import redact

MAX_BYTES: Final = 2**30
"""Larger files are not read unless a reader says that they may be."""
_ASIDE: Final = re.compile(r"\..+?(\.[0-9a-f]{32})?\.[0-9a-f]{32}")
_NO_SECOND_NAMES: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True)
class Directory:
    """A directory on any file system.

    Whoever else writes to it is not trusted: a file that is a link is not read, nor is a directory
    that is one listed, lest what is read and published be another's.

    Attributes:
        filesystem: Where it is.
        path: Its absolute path there.
        run_id: The run that writes to it, in hexadecimal digits; None for whoever is of none.
    """

    filesystem: fs.FileSystem
    path: str
    run_id: str | None = None

    def __truediv__(self, name: str) -> Directory:
        """The directory `name` inside this one."""
        return replace(self, path=f"{self.path}/{name}")

    @property
    def parent(self) -> Directory:
        """The directory that it is in."""
        return replace(self, path=self.path.rpartition("/")[0] or "/")

    @property
    def local_path(self) -> Path | None:
        """Its local path; None on any other file system."""
        return Path(self.path) if isinstance(self.filesystem, fs.LocalFileSystem) else None

    def exists(self) -> bool:
        """Whether it is there."""
        return bool(self.filesystem.get_file_info(self.path).type == fs.FileType.Directory)

    def create(self) -> None:
        """Make it and its parents, where they are not there yet.

        Raises:
            OSError: If it cannot be made.
        """
        self.filesystem.create_dir(self.path, recursive=True)

    def files(self, suffix: str = "") -> list[str]:
        """Names of the files right in it, sorted; empty when it is absent.

        Files that begin with a dot (those still being written) are left out.
        """
        return [n for n in self._names(fs.FileType.File) if n.endswith(suffix)]

    def directories(self) -> list[str]:
        """Names of the directories right in it, sorted, links left out; empty when it is absent."""
        found = self._names(fs.FileType.Directory)
        return [
            name
            for name in found
            if self.local_path is None or not (self.local_path / name).is_symlink()
        ]

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        """The content of a file.

        Args:
            name: The file's.
            most: Bytes that it may have.

        Raises:
            OSError: If it is absent, cannot be read, is larger, or is a link or a device.
        """
        path = f"{self.path}/{name}"
        if self.local_path is not None:
            return _local_content(path, most)
        with self.filesystem.open_input_file(path) as source:
            _check_size(source.size(), most, path)
            return bytes(source.read())

    def write(self, name: str, content: bytes) -> None:
        """Put a file whole: written aside, flushed to the disk, then moved over its name.

        On a local file system the name, too, is on the disk when this returns.

        Raises:
            OSError: If it cannot be written; no part of it is left behind then.
        """
        self._put(name, content, self._move)

    def create_exclusive(self, name: str, content: bytes) -> bool:
        """Put a file whole, as `write` does, unless there is one of that name.

        Where files can have two names, as on any local file system worth the name, no writer puts
        his over another's, however close they are.

        Returns:
            Whether it was put; if not, what was there is as it was.

        Raises:
            OSError: As `write`.
        """
        return self._put(name, content, self._move_new)

    def delete(self, name: str) -> None:
        """Delete a file in it.

        Raises:
            OSError: If it is absent or cannot be deleted.
        """
        self.filesystem.delete_file(f"{self.path}/{name}")

    def temporary_files(self) -> dict[str, bool]:
        """Paths from here to the files, in it and below, that their writers have yet to name.

        A writer that was killed leaves his for ever.

        Returns:
            Path to whether the writer is of a run.
        """
        found = ((path, _ASIDE.fullmatch(path.rpartition("/")[2])) for path in self._below())
        return {path: aside[1] is not None for path, aside in found if aside is not None}

    def modified_at(self, name: str) -> float | None:
        """When a file was written, in seconds since 1970 by the clock of whoever keeps it.

        Returns:
            The time; None where there is no such file.
        """
        moment = self.filesystem.get_file_info(f"{self.path}/{name}").mtime
        return None if moment is None else moment.timestamp()

    def remove(self) -> None:
        """Delete it with everything in it, if it is there."""
        if self.exists():
            self.filesystem.delete_dir(self.path)

    def _put(self, name: str, content: bytes, place: Callable[[str, str], bool]) -> bool:
        self.create()
        by = "" if self.run_id is None else f".{self.run_id}"
        aside = f"{self.path}/.{name}{by}.{uuid.uuid4().hex}"
        try:
            with self.filesystem.open_output_stream(aside) as sink:
                sink.write(content)
            self._flush(aside)
            placed = place(aside, f"{self.path}/{name}")
            self._flush(self.path)
        except OSError:
            self._discard(aside)
            raise
        return placed

    def _move(self, aside: str, path: str) -> bool:
        self.filesystem.move(aside, path)
        return True

    def _move_new(self, aside: str, path: str) -> bool:
        if self.local_path is not None:
            try:
                os.link(aside, path)
            except FileExistsError:
                os.unlink(aside)
                return False
            except OSError as error:
                if error.errno not in _NO_SECOND_NAMES:
                    raise
            else:
                os.unlink(aside)
                return True
        if self.filesystem.get_file_info(path).type != fs.FileType.NotFound:
            self._discard(aside)
            return False
        return self._move(aside, path)

    def _below(self) -> list[str]:
        """Paths from here to all files in it and below; no link is followed."""
        if self.local_path is not None:
            found = os.walk(self.path)
            paths = [f"{folder}/{name}" for folder, _, names in found for name in names]
        else:
            selector = fs.FileSelector(self.path, allow_not_found=True, recursive=True)
            infos = self.filesystem.get_file_info(selector)
            paths = [info.path for info in infos if info.type == fs.FileType.File]
        return [path.removeprefix(f"{self.path}/") for path in paths]

    def _names(self, kind: fs.FileType) -> list[str]:
        found = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(
            info.base_name
            for info in found
            if info.type == kind and not info.base_name.startswith(".")
        )

    def _flush(self, path: str) -> None:
        if self.local_path is None:
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Not every file system knows how to flush a directory.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(descriptor)

    def _discard(self, path: str) -> None:
        if self.filesystem.get_file_info(path).type == fs.FileType.File:
            self.filesystem.delete_file(path)


def _local_content(path: str, most: int) -> bytes:
    """The content of a local file; see `Directory.read`."""
    # A pipe would otherwise wait for whoever writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as source:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        _check_size(found.st_size, most, path)
        return source.read(found.st_size)


def _check_size(size: int, most: int, path: str) -> None:
    if size > most:
        raise OSError(errno.EFBIG, f"too long, {size:,} bytes of at most {most:,}", path)


def absolute_storage(storage: str) -> str:
    """A storage location that means the same in every process and working directory.

    Raises:
        InputError: If it begins with `~` and a user that there is not.
    """
    if not is_encodable(storage):
        raise InputError(f"storage {storage!r} must be a text")
    if "://" in storage:
        return storage
    try:
        return str(Path(storage).expanduser().absolute())
    except RuntimeError as error:
        raise InputError(f"storage {storage!r} cannot be found: {error}") from error


def open_directory(storage: str) -> Directory:
    """Open a storage location.

    Args:
        storage: A local path, or a URI that pyarrow knows (`s3://`, `gs://`, `file://`, ...),
            which may hold credentials.

    Raises:
        InputError: If the URI is none that pyarrow can open.
    """
    if "://" not in storage:
        return Directory(fs.LocalFileSystem(), absolute_storage(storage))
    try:
        filesystem, path = fs.FileSystem.from_uri(storage)
    except (OSError, ValueError) as error:
        said = f"storage {storage!r} cannot be opened: {error}"
        # A cause that holds credentials would show them in the traceback.
        raise InputError(redact(said)) from (error if redact(said) == said else None)
    return Directory(filesystem, path.rstrip("/"))


def check_writable(place: Directory) -> None:
    """Make a directory if need be and prove that files can be put in it.

    Raises:
        InputError: If they cannot.
    """
    try:
        # A name of its own, as two sweeps may start at once.
        name = f"write-check-{uuid.uuid4().hex}"
        place.write(name, b"")
        place.filesystem.delete_file(f"{place.path}/{name}")
    except OSError as error:
        raise InputError(
            f"storage {place.path} must be a directory that can be written to; got: {error}"
        ) from error
