"""Random generators, one for each seed and purpose."""

from __future__ import annotations

import numpy as np


def generator(seed: int, stream: str) -> np.random.Generator:
    """Returns the generator of a seed for one purpose; purposes do not affect each other."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, *stream.encode()])))
