"""How often Python looks for garbage in the processes of a sweep.

Loading torch and Ray makes a million objects that stay. At Python's own pace looking through them
again and again is a fifth of the time that loading takes, and once more at the end a second.
"""

from __future__ import annotations

import atexit
import gc

_THRESHOLD = 100_000


def patient_collection() -> None:
    """Collect more rarely from now on, and not at the end."""
    gc.set_threshold(_THRESHOLD)
    atexit.register(gc.freeze)
