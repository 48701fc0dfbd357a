"""Random generators and keys, one for each seed and purpose."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def generator(seed: int, stream: str) -> np.random.Generator:
    """Returns the generator of a seed for one purpose; purposes do not affect each other."""
    return np.random.Generator(np.random.SFC64(_sequence(seed, stream)))


def stream_key(seed: int, stream: str) -> NDArray[np.uint64]:
    """Returns the key of a seed for one purpose, shape [2]; for counter-based generators."""
    key: NDArray[np.uint64] = _sequence(seed, stream).generate_state(2, np.uint64)  # type: ignore[assignment]
    return key


def _sequence(seed: int, stream: str) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, *stream.encode()])
