"""Random sources, one per seed and purpose."""

from __future__ import annotations

import numpy as np


def generator(seed: int, stream: str) -> np.random.Generator:
    """A random source of its own for each purpose, so that one never shifts another."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, *stream.encode()])))
