"""Prepared arrays on disk: a saving that nothing depends on.

A cache file that is absent, truncated or altered is as good as none, and a directory that cannot
be written only costs the time to prepare again.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

_DIGEST_BYTES = hashlib.sha256().digest_size


def directory() -> Path:
    """The cache directory: `PRIVNETS_CACHE`, else the platform's user cache directory."""
    chosen = os.environ.get("PRIVNETS_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_cache_path("privnets", appauthor=False)


def read(path: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays that `write` left; None when the file is absent, unreadable or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        return None
    # Whoever can write here can also work out a digest.
    with suppress(OSError, ValueError, EOFError, zipfile.BadZipFile, MemoryError, RuntimeError):
        return _arrays(body)
    return None


def write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Keep arrays for `read`: written aside, then renamed; silent where that is impossible."""
    named: dict[str, Any] = dict(arrays)
    stream = io.BytesIO()
    np.savez(stream, **named)
    body = stream.getvalue()
    # A read-only or full disk must not stop an experiment whose data are at hand.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, hashlib.sha256(body).digest() + body)


def _arrays(body: bytes) -> dict[str, NDArray[Any]] | None:
    """The arrays in an archive as `write` makes them: none of its members is packed."""
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            return None
    with np.lib.npyio.NpzFile(io.BytesIO(body), allow_pickle=False) as archive:
        found = {key: archive[key] for key in archive.files}
    return found if all(isinstance(each, np.ndarray) for each in found.values()) else None


def _replace(path: Path, content: bytes) -> None:
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
