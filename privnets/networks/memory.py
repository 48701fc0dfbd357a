"""Allocator setting that keeps freed memory in the process, to avoid page faults in training."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache
from typing import Final

# Constants of glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
# Largest threshold that glibc accepts; it maps larger blocks separately in any case.
_MAX_THRESHOLD: Final = 32 * 2**20
_KEPT_BYTES: Final = 2**30
_USER_SETTINGS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Lets this process keep up to a gigabyte of freed memory for later allocations.

    By default, glibc returns freed blocks of a few hundred kilobytes, the size of stacked layers,
    to the kernel, and every page of the next block faults. No result changes. Does nothing with
    another allocator, or if the environment configures glibc.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in _USER_SETTINGS):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    has_mapped = mallopt(_M_MMAP_THRESHOLD, _MAX_THRESHOLD)
    return bool(has_mapped and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
