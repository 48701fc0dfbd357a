"""Archive of a sweep's manifest and ledger, for machines that do not see its storage.

`python -m sweeps.store.transfer STORAGE SWEEP` prints one as base64.
"""

from __future__ import annotations

import base64
import gzip
import io
import re
import sys
import tarfile
import zlib
from pathlib import Path
from typing import IO, Final

from sweeps.errors import InputError
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest

ARCHIVE_FILE: Final = "ledger.tar.gz"
"""Name of the archive among the files of a sweep in MLflow."""

MAX_BYTES: Final = 2**30
"""Size limit of an archive's content."""

_NAME: Final = re.compile(r"(spec\.yaml|(ledger|failures|asks)/[A-Za-z0-9][A-Za-z0-9._-]{0,199})")
# A damaged archive causes any of these; numbers in its headers may be of any size.
_DAMAGE: Final = (OSError, EOFError, ValueError, OverflowError, tarfile.TarError, zlib.error)


def pack_sweep(ledger: Ledger, target: IO[bytes]) -> None:
    """Writes an archive of a sweep's manifest, ledger, failures and asks, one file at a time.

    Equal content gives equal archives.

    Raises:
        InputError: If there is no such sweep.
        OSError: If it cannot be read.
    """
    read_manifest(ledger)
    with (
        gzip.GzipFile("", "wb", fileobj=target, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        present = {"", *ledger.directory.directories()}
        for folder in (name for name in ("", "ledger", "failures", "asks") if name in present):
            directory = ledger.directory / folder if folder else ledger.directory
            for file in directory.files():
                member = tarfile.TarInfo(f"{folder}/{file}" if folder else file)
                if _NAME.fullmatch(member.name):
                    content = directory.read(file)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def unpack_sweep(archive: bytes, storage: Path, sweep: str) -> None:
    """Writes the files of an archive, which is not trusted, below a new storage directory.

    Raises:
        InputError: If the archive is damaged, too large, or has other files than a sweep's.
    """
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(archive)).read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise InputError(f"the archive of {sweep} must have at most {MAX_BYTES:,} bytes")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as members:
            for member in members:
                # A few bytes of a sparse file stand for many; a negative size would lead back.
                is_plain = member.isreg() and not member.issparse() and member.size >= 0
                file = members.extractfile(member) if is_plain else None
                if file is None or not _NAME.fullmatch(member.name):
                    raise InputError(f"the archive of {sweep} has the foreign file {member.name!r}")
                path = storage / sweep / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.read())
    except _DAMAGE as error:
        raise InputError(f"the archive of {sweep} is damaged: {error}") from error


def main() -> None:
    """Prints the archive of the sweep that the command line names."""
    storage, sweep = sys.argv[1:]
    archive = io.BytesIO()
    pack_sweep(Ledger(storage, sweep), archive)
    print(base64.b64encode(archive.getvalue()).decode())


if __name__ == "__main__":
    main()
