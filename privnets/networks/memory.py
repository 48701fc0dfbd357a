"""Keeping freed memory, so that training does not ask the kernel for it at every layer."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache
from typing import Final

# As glibc's malloc.h has them.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
# The largest that glibc takes; it maps larger blocks one by one, whatever it is told.
_MOST_BYTES: Final = 32 * 2**20
_KEPT_BYTES: Final = 2**30
_OWN_SETTINGS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Let this process keep up to a gigabyte of what it frees, for what it allocates next.

    As it comes, glibc gives blocks of some hundred kilobytes back to the kernel as soon as they
    are freed, and every page of the next one faults. Layers of stacked networks are of that size.
    No result changes. Does nothing with another allocator, or where the environment has settings
    of its own.

    Returns:
        Whether the allocator took it.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in _OWN_SETTINGS):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_MMAP_THRESHOLD, _MOST_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
