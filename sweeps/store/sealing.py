"""A checksum of a file inside the file, so that reading a part of it tells whether it is whole.

The seal stands in the file's own metadata and is worked out with zeros in its place.
"""

from __future__ import annotations

import zlib
from typing import Final

_MARK: Final = b"sweeps-crc32:"
_BLANK: Final = b"00000000"

KEY: Final = "seal"
"""Key of the metadata that `seal` fills in."""

BLANK: Final = (_MARK + _BLANK).decode()
"""Its value before."""


class BrokenSeal(ValueError):
    """A file that is not what was sealed."""


def seal(content: bytes) -> bytes:
    """A file that holds `BLANK` among its metadata, with the checksum filled in."""
    place = content.rindex(_MARK) + len(_MARK)
    found = _checksum(content, place)
    return content[:place] + found + content[place + len(found) :]


def is_sealed(content: bytes) -> bool:
    """Whether a file has a seal, which is then whole.

    Raises:
        BrokenSeal: If it does not fit the file.
    """
    place = content.rfind(_MARK) + len(_MARK)
    if place < len(_MARK):
        return False
    if content[place : place + len(_BLANK)] != _checksum(content, place):
        raise BrokenSeal("its checksum is another")
    return True


def _checksum(content: bytes, place: int) -> bytes:
    view = memoryview(content)
    found = zlib.crc32(_BLANK, zlib.crc32(view[:place]))
    return b"%08x" % zlib.crc32(view[place + len(_BLANK) :], found)
