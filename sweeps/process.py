"""Rarer collection of unused objects in the processes of a sweep.

Torch, Ray and MLflow create a million objects that stay. With Python's default threshold, scanning
them again and again takes a tenth of a short sweep's time (benchmark `end_to_end`).
"""

from __future__ import annotations

import atexit
import gc

_THRESHOLD = 100_000


def raise_gc_thresholds() -> None:
    """Collects unused objects rarely from now on, and not when the process ends."""
    gc.set_threshold(_THRESHOLD)
    atexit.register(gc.freeze)
