"""Errors of a pack in training: whether to try again, elsewhere or in parts."""

from __future__ import annotations

import errno
from typing import Final

from privnets.references.user_files import describe_error, is_memory_limited
from sweeps.store.lease import RunSupersededError

# Torch's errors of a GPU, by name: the driver imports this module without torch.
_GPU_MEMORY_ERROR: Final = "OutOfMemoryError"
_DEVICE_ERRORS: Final = {_GPU_MEMORY_ERROR, "AcceleratorError"}
# A storage with one of these errors does not recover by itself.
_STORAGE_IS_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


def may_succeed_in_parts(error: BaseException) -> bool:
    """Whether parts of a pack may succeed: one of its points may have raised the error.

    A storage that fails, a run that has ended and a GPU that is out of order fail them all.
    """
    if isinstance(error, OSError | RunSupersededError):
        return False
    return type(error).__name__ not in _DEVICE_ERRORS - {_GPU_MEMORY_ERROR}


def may_succeed_elsewhere(error: BaseException) -> bool:
    """Whether the same work may succeed on another worker, or later on this one.

    This holds for a storage that fails for a while, for memory that runs out on a machine, and for
    errors of a GPU, after which its process cannot use it. A limit on memory is the same anywhere.
    """
    if isinstance(error, OSError):
        return error.errno not in _STORAGE_IS_FULL
    if isinstance(error, MemoryError):
        return not is_memory_limited()
    return type(error).__name__ in _DEVICE_ERRORS


def describe_failure(error: BaseException) -> str:
    """Type and message of an error, with the innermost file and line outside of libraries."""
    if isinstance(error, OSError | RunSupersededError):
        return f"{type(error).__name__}: {error}"
    return describe_error(error)
