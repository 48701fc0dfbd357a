"""Random numbers by position: the same words on every device, alone or in a stack.

Normal numbers are the same to rounding. The generator is Philox 4x64-10 (Salmon et al., SC 2011), a
function of a key and a counter. NumPy computes it on a CPU, one kernel on CUDA, and torch's 64-bit
integers on other devices.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_INCREMENTS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10
_LOW_HALF = 0xFFFFFFFF
_WORDS_PER_BLOCK = 8  # words of 32 bits from one counter
# Blocks that torch computes together, over all members, for the memory of intermediate results.
_BLOCKS_TOGETHER = 2**21

# `philox` as CUDA source: one kernel in place of six hundred.
CUDA_SOURCE = f"""template <typename T>
void philox(T key, T other_key, T counter, T& first, T& second, T& third, T& fourth) {{
  unsigned long long one = key, other = other_key, a = counter, b = 0, c = 0, d = 0;
  for (int round = 0; round < {_ROUNDS}; round++) {{
    unsigned long long high = __umul64hi(a, {_MULTIPLIERS[0]}ull), low = a * {_MULTIPLIERS[0]}ull;
    a = __umul64hi(c, {_MULTIPLIERS[1]}ull) ^ b ^ one;
    b = c * {_MULTIPLIERS[1]}ull;
    c = high ^ d ^ other;
    d = low;
    one += {_KEY_INCREMENTS[0]}ull;
    other += {_KEY_INCREMENTS[1]}ull;
  }}
  first = a; second = b; third = c; fourth = d;
}}"""


class RandomStreams:
    """Uniform 32-bit words in rows of equal length: one stream for each member of a stack.

    A word depends only on its stream's key, its row and its place in the row.
    """

    def __init__(
        self, keys: Sequence[NDArray[np.uint64]], words: int, device: torch.device
    ) -> None:
        """Creates a stream for each key, which `privnets.randomness.stream_key` returns.

        Args:
            keys: Each of shape [2].
            words: Words in a row, at least 1; rounded up to a multiple of 8.
            device: Device of the words.
        """
        self._keys, self._device = np.stack(keys), device
        self._device_keys = torch.from_numpy(self._keys.view(np.int64)).to(device)
        self._blocks = math.ceil(words / _WORDS_PER_BLOCK)

    def rows(self, first: int, last: int) -> Tensor:
        """Rows `first` to `last` - 1, int32, shape [rows, S, words]."""
        begin, end = first * self._blocks, last * self._blocks
        if self._device.type == "cpu":
            words = torch.from_numpy(self._draw_by_numpy(begin, end))
        else:
            words = self._draw_by_torch(begin, end)
        return words.view(torch.int32)

    def _draw_by_numpy(self, begin: int, end: int) -> NDArray[np.int64]:
        rows = (end - begin) // self._blocks
        words = np.empty((rows, len(self._keys), 4 * self._blocks), np.uint64)
        source = np.random.Philox(0)
        for member, key in enumerate(self._keys):
            # NumPy increases the counter before it computes a block.
            counters = np.array([begin, 0, 0, 0], np.uint64)
            state: Any = {
                "bit_generator": "Philox",
                "state": {"counter": counters, "key": key},
                "buffer": np.zeros(4, np.uint64),
                "buffer_pos": 4,
                "has_uint32": 0,
                "uinteger": 0,
            }
            source.state = state
            words[:, member] = source.random_raw(4 * (end - begin)).reshape(rows, -1)
        return words.view(np.int64)

    def _draw_by_torch(self, begin: int, end: int) -> Tensor:
        keys = self._device_keys
        together = max(1, _BLOCKS_TOGETHER // len(keys))
        compute = (_fused_philox() if self._device.type == "cuda" else None) or philox
        parts = [
            compute(keys, 1 + torch.arange(i, min(i + together, end), device=self._device))
            for i in range(begin, end, together)
        ]
        words = torch.cat(parts, 1).view(len(keys), -1, 4 * self._blocks)
        return words.transpose(0, 1).contiguous()


def philox(keys: Tensor, counters: Tensor) -> Tensor:
    """Four 64-bit words for each key and counter, as int64.

    Args:
        keys: Shape [S, 2], int64.
        counters: Lowest word of the counter, shape [n], int64; its other words are 0.

    Returns:
        Shape [S, n, 4].
    """
    counters = counters.expand(len(keys), -1)
    zero = torch.zeros_like(counters)
    words = (counters, zero, zero, zero)
    for step in range(_ROUNDS):
        one, other = (
            (key + _signed(step * increment))[:, None]
            for key, increment in zip(keys.unbind(1), _KEY_INCREMENTS, strict=True)
        )
        high, low = _multiply(words[0], _MULTIPLIERS[0])
        other_high, other_low = _multiply(words[2], _MULTIPLIERS[1])
        words = (other_high ^ words[1] ^ one, other_low, high ^ words[3] ^ other, low)
    return torch.stack(words, -1)


@cache
def _fused_philox() -> Callable[[Tensor, Tensor], Tensor] | None:
    """`philox` as one kernel; None if it cannot be compiled here or computes other words."""

    def compute(keys: Tensor, counters: Tensor) -> Tensor:
        return torch.stack(kernel(keys[:, :1], keys[:, 1:], counters), -1)

    keys, counters = torch.tensor([[1, -2], [2**62, 3]]), torch.tensor([1, 2**40])
    try:
        # Of all ways to compile a kernel it alone needs no compiler on the machine, though private.
        kernel: Any = torch.cuda.jiterator._create_multi_output_jit_fn(CUDA_SOURCE, 4)
        if torch.equal(compute(keys.cuda(), counters.cuda()).cpu(), philox(keys, counters)):
            return compute
        reason = "it computes other words"
    except (AttributeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
    message = f"random numbers take longer, as their kernel cannot be used: {reason}"
    warnings.warn(message, RuntimeWarning, stacklevel=2)
    return None


def uniform(words: Tensor) -> Tensor:
    """Numbers in [0, 1), multiples of 2^-24, float32, of the shape of the words."""
    return (words & 0xFFFFFF).float().mul_(2.0**-24)


def standard_normal(words: Tensor) -> Tensor:
    """Gaussian numbers by the Box-Muller transform, float32, of the shape of the words.

    The last dimension must be even. Numbers lie in [-6.6, 6.6], which a normal variable leaves with
    probability 4e-11.
    """
    half = words.shape[-1] // 2
    radius = (words[..., :half] & 0x7FFFFFFF).float().add_(1).mul_(2.0**-31)
    radius = radius.log_().mul_(-2).sqrt_()
    angle = words[..., half:].float().mul_(math.pi * 2.0**-31)
    numbers = angle.new_empty(words.shape)
    torch.mul(radius, angle.cos(), out=numbers[..., :half])
    torch.mul(radius, angle.sin_(), out=numbers[..., half:])
    return numbers


def integers(words: Tensor, bounds: Tensor) -> Tensor:
    """Integers from 0 to a bound - 1, int64, of the shape of the words.

    Probabilities differ from equal ones by at most a share `bound` / 2^32.

    Args:
        words: Any shape.
        bounds: Broadcastable to that shape, int64, at most 2^31.
    """
    return ((words.long() & _LOW_HALF) * bounds) >> 32


def _multiply(words: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """High and low 64 bits of unsigned products; int64 keeps the low ones."""
    factor_high, factor_low = factor >> 32, factor & _LOW_HALF
    high, low = _shift(words), words & _LOW_HALF
    low_product, one, other = low * factor_low, high * factor_low, low * factor_high
    carried = _shift(low_product) + (one & _LOW_HALF) + (other & _LOW_HALF)
    upper = high * factor_high + _shift(one) + _shift(other) + _shift(carried)
    return upper, words * _signed(factor)


def _shift(words: Tensor) -> Tensor:
    """High 32 bits of unsigned 64-bit words."""
    return (words >> 32) & _LOW_HALF


def _signed(word: int) -> int:
    """The signed integer with the lowest 64 bits of an unsigned one."""
    return (word + 2**63) % 2**64 - 2**63
