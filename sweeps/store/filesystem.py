"""Directories that hold sweeps: local, shared, or at any URI that pyarrow can write to."""

from __future__ import annotations

import errno
import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

from privnets.credentials import redact
from sweeps.errors import InputError
from sweeps.study.yaml_reader import is_encodable

DEFAULT_STORAGE: Final = "./sweep-results"
"""Directory of sweeps where none is named."""
MAX_BYTES: Final = 2**30
"""Default limit on the size of a file that is read."""
_TEMPORARY: Final = re.compile(r"\..+?(\.[0-9a-f]{32})?\.[0-9a-f]{32}")


@dataclass(frozen=True)
class Directory:
    """Directory on any file system.

    Other writers of the directory are not trusted. Symbolic links are neither read nor listed as
    directories: what is read may be published, and a link could lead to a private file.

    Attributes:
        filesystem: File system that holds the directory.
        path: Absolute path on that file system.
        run_id: Run that writes here, as hexadecimal digits; None for a process without a run.
    """

    filesystem: fs.FileSystem
    path: str
    run_id: str | None = None

    def __truediv__(self, name: str) -> Directory:
        """Returns the directory `name` inside this one."""
        return replace(self, path=f"{self.path}/{name}")

    @cached_property
    def local_path(self) -> Path | None:
        """Local path; None on a remote file system."""
        return Path(self.path) if isinstance(self.filesystem, fs.LocalFileSystem) else None

    def create(self) -> None:
        """Creates the directory and its parents, if they do not exist."""
        self.filesystem.create_dir(self.path, recursive=True)

    def refresh(self) -> None:
        """Touches a file so that NFS refreshes its listing, which may be a minute old."""
        if self.local_path is not None:
            probe = self.local_path / f".refresh.{uuid.uuid4().hex}"
            with suppress(FileNotFoundError):  # the directory does not exist
                probe.touch()
                probe.unlink()

    def files(self, suffix: str = "") -> list[str]:
        """Lists the files directly inside, sorted, without hidden (among them temporary) files."""
        return [name for name in self._names(fs.FileType.File) if name.endswith(suffix)]

    def directories(self) -> list[str]:
        """Lists the directories directly inside, sorted; links are left out."""
        names = self._names(fs.FileType.Directory)
        local = self.local_path
        return [name for name in names if local is None or not (local / name).is_symlink()]

    def read(self, name: str, max_bytes: int = MAX_BYTES) -> bytes:
        """Reads a file.

        Raises:
            OSError: If the file is absent, unreadable, too large, a link or a device.
        """
        with self._open(name) as source:
            size = source.seek(0, os.SEEK_END)
            if size > max_bytes:
                message = f"too long, {size:,} bytes of at most {max_bytes:,}"
                raise OSError(errno.EFBIG, message, f"{self.path}/{name}")
            source.seek(0)
            return bytes(source.read(size))

    def read_start(self, name: str, count: int) -> bytes:
        """Reads at most the first `count` bytes of a file.

        Raises:
            OSError: If the file is absent, unreadable, a link or a device.
        """
        with self._open(name) as source:
            return bytes(source.read(count))

    @contextmanager
    def _open(self, name: str) -> Iterator[Any]:
        """Opens a file, on a local file system unless it is a link or a device."""
        path = f"{self.path}/{name}"
        if self.local_path is None:
            with self.filesystem.open_input_file(path) as source:
                yield source
            return
        # O_NONBLOCK: opening a pipe would otherwise wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as source:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a plain file", path)
            yield source

    def write(self, name: str, content: bytes) -> None:
        """Writes a file atomically: to a temporary file, flushed, then renamed.

        On a local file system the new name, too, is on the disk when this returns.

        Raises:
            OSError: If it cannot be written; no part of it remains.
        """
        with self._temporary_file(name, content) as temporary:
            self.filesystem.move(temporary, f"{self.path}/{name}")

    def create_exclusive(self, name: str, content: bytes) -> bool:
        """Writes a file atomically, unless a file of that name exists.

        Where the file system has hard links, concurrent writers never replace each other's file.

        Returns:
            Whether the file was written; if not, the existing one is unchanged.
        """
        path = f"{self.path}/{name}"
        with self._temporary_file(name, content) as temporary:
            if self.local_path is not None:
                try:
                    os.link(temporary, path)
                except FileExistsError:
                    return False
                except OSError:
                    pass  # a file system without hard links
                else:
                    return True
            if self.filesystem.get_file_info(path).type != fs.FileType.NotFound:
                return False
            self.filesystem.move(temporary, path)
            return True

    def delete(self, name: str) -> None:
        """Deletes a file."""
        self.filesystem.delete_file(f"{self.path}/{name}")

    def temporary_files(self) -> dict[str, bool]:
        """Temporary files here and below: relative path to whether its writer belongs to a run."""
        if self.local_path is not None:  # links are not followed
            folders = os.walk(self.path)
            paths = [f"{folder}/{name}" for folder, _, names in folders for name in names]
        else:
            selector = fs.FileSelector(self.path, allow_not_found=True, recursive=True)
            infos = self.filesystem.get_file_info(selector)
            paths = [info.path for info in infos if info.is_file]
        matches = {path: _TEMPORARY.fullmatch(path.rpartition("/")[2]) for path in paths}
        return {
            path.removeprefix(f"{self.path}/"): match[1] is not None
            for path, match in matches.items()
            if match is not None
        }

    def modified_at(self, name: str) -> float | None:
        """Unix time at which a file was written, by the clock of the storage; None if absent."""
        time = self.filesystem.get_file_info(f"{self.path}/{name}").mtime
        return None if time is None else time.timestamp()

    def remove(self) -> None:
        """Deletes the directory with everything in it, if it exists."""
        if self.filesystem.get_file_info(self.path).type == fs.FileType.Directory:
            self.filesystem.delete_dir(self.path)

    @contextmanager
    def _temporary_file(self, name: str, content: bytes) -> Iterator[str]:
        """Path of a flushed temporary file, for a block that moves or links it to its name."""
        self.create()
        run = "" if self.run_id is None else f".{self.run_id}"
        temporary = f"{self.path}/.{name}{run}.{uuid.uuid4().hex}"
        try:
            with self.filesystem.open_output_stream(temporary) as sink:
                sink.write(content)
            self._flush(temporary)
            yield temporary
        finally:
            if self.filesystem.get_file_info(temporary).is_file:
                self.filesystem.delete_file(temporary)
        self._flush(self.path)

    def _names(self, kind: fs.FileType) -> list[str]:
        infos = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(
            info.base_name
            for info in infos
            if info.type == kind and not info.base_name.startswith(".")
        )

    def _flush(self, path: str) -> None:
        if self.local_path is None:
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some file systems cannot flush a directory.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(descriptor)


def absolute_storage(storage: str) -> str:
    """Storage location as an absolute path; URIs are returned as they are.

    Raises:
        InputError: If it is not valid text, or begins with `~` and an unknown user.
    """
    if not is_encodable(storage):
        raise InputError(f"storage must be valid text; got {storage!r}")
    if "://" in storage:
        return storage
    try:
        return str(Path(storage).expanduser().absolute())
    except RuntimeError as error:
        raise InputError(f"storage {storage!r} cannot be found: {error}") from error


def open_directory(storage: str) -> Directory:
    """Directory of a local path, or of a URI that pyarrow knows (`s3://`, `gs://`, ...).

    Raises:
        InputError: If pyarrow cannot open the URI.
    """
    if "://" not in storage:
        return Directory(fs.LocalFileSystem(), absolute_storage(storage))
    try:
        filesystem, path = fs.FileSystem.from_uri(storage)
    except (OSError, ValueError) as error:
        message = f"storage {storage!r} cannot be opened: {error}"
        # The traceback of a cause that holds credentials would show them.
        raise InputError(redact(message)) from (error if redact(message) == message else None)
    return Directory(filesystem, path.rstrip("/"))


def check_writable(directory: Directory) -> None:
    """Creates a directory if it does not exist, and checks that files can be written to it.

    Raises:
        InputError: If they cannot.
    """
    try:
        name = f"write-check-{uuid.uuid4().hex}"  # unique, as two sweeps may start at once
        directory.write(name, b"")
        directory.delete(name)
    except OSError as error:
        raise InputError(
            f"storage {directory.path} must be a writable directory: {error}"
        ) from error
