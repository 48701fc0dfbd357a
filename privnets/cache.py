"""Cache of arrays on disk, which only saves time.

An absent, truncated or altered file counts as a miss. If the directory is not writable, arrays are
computed again in every process.
"""

from __future__ import annotations

import hashlib
import io
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

_DIGEST_BYTES = hashlib.sha256().digest_size


def directory() -> Path:
    """Returns the cache directory: `PRIVNETS_CACHE`, else the platform's user cache directory."""
    configured = os.environ.get("PRIVNETS_CACHE")
    if configured:
        return Path(configured).expanduser().absolute()
    return platformdirs.user_cache_path("privnets", appauthor=False)


def read(path: Path) -> dict[str, NDArray[Any]] | None:
    """Returns the arrays of a file from `write`; None if it is absent, unreadable or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes arrays atomically; ignores failures."""
    named: dict[str, Any] = dict(arrays)
    stream = io.BytesIO()
    np.savez(stream, **named)
    body = stream.getvalue()
    # A read-only or full disk must not stop an experiment.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, hashlib.sha256(body).digest() + body)


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a temporary file beside `path` and renames it.

    Raises:
        OSError: If it cannot be written; an existing file is then kept.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
