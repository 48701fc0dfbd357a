"""Counter-based random numbers: published vectors, equal bits by both forms, their laws."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest, norm
from torch import Tensor

from privnets.networks.streams import (
    CUDA_SOURCE,
    RandomStreams,
    _fused_philox,
    integers,
    philox,
    standard_normal,
    uniform,
)
from privnets.randomness import stream_key

_CPU = torch.device("cpu")
_KEYS = [stream_key(seed, "test") for seed in range(3)]


def test_philox_gives_numpys_words_for_any_key_and_counter():
    random = np.random.default_rng(0)
    keys = random.integers(0, 2**64, (5, 2), np.uint64)
    keys[0], keys[1] = 0, 2**64 - 1
    counters = np.array([1, 2, 3, 2**32, 2**62])
    found = philox(torch.from_numpy(keys.view(np.int64)), torch.from_numpy(counters))
    for key, words in zip(keys, found, strict=True):
        for counter, block in zip(counters.tolist(), words, strict=True):
            expected = np.random.Philox(key=key, counter=[counter - 1, 0, 0, 0]).random_raw(4)
            assert block.numpy().view(np.uint64).tolist() == expected.tolist()


def test_philox_gives_the_published_vector():
    """The first known answer of philox4x64-10 in Random123: key and counter 0."""
    words = philox(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    published = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert words[0, 0].numpy().view(np.uint64).tolist() == published


def test_the_cuda_source_of_philox_gives_the_same_words(tmp_path):
    """A compiler of C++ for the CPU computes what NVIDIA's computes for a thread."""
    if (compiler := shutil.which("g++")) is None:
        pytest.skip("needs g++")
    source, library = tmp_path / "philox.cpp", tmp_path / "philox.so"
    source.write_text(f"""
        typedef unsigned long long word;
        static word __umul64hi(word a, word b) {{ return (unsigned __int128)a * b >> 64; }}
        {CUDA_SOURCE}
        extern "C" void compute(long long* k, long long n, long long* out) {{
          philox<long long>(k[0], k[1], n, out[0], out[1], out[2], out[3]); }}""")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    compute = ctypes.CDLL(str(library)).compute
    keys = torch.from_numpy(np.stack(_KEYS).view(np.int64))
    for key in keys:
        for counter in (1, 2**40):
            words = torch.empty(4, dtype=torch.int64)
            at = (ctypes.c_void_p(t.data_ptr()) for t in (key, words))
            compute(next(at), ctypes.c_longlong(counter), next(at))
            assert torch.equal(words, philox(key[None], torch.tensor([counter]))[0, 0])


@pytest.mark.gpu
def test_rows_have_equal_bits_on_a_gpu():
    assert _fused_philox() is not None
    on_gpu = RandomStreams(_KEYS, 27, torch.device("cuda")).rows(7, 12)
    assert torch.equal(on_gpu.cpu(), RandomStreams(_KEYS, 27, _CPU).rows(7, 12))


@pytest.mark.parametrize("words", [1, 8, 27])
def test_rows_have_equal_bits_by_numpy_and_by_torch(words, monkeypatch):
    monkeypatch.setattr("privnets.networks.streams._BLOCKS_TOGETHER", 20)  # in several parts
    streams = RandomStreams(_KEYS, words, _CPU)
    by_torch = streams._draw_by_torch(7 * streams._blocks, 12 * streams._blocks)
    assert torch.equal(streams.rows(7, 12), by_torch.view(torch.int32))
    assert streams.rows(7, 12).shape[-1] >= words


def test_rows_depend_on_neither_stack_nor_neighbouring_rows():
    streams = RandomStreams(_KEYS, 10, _CPU)
    whole = streams.rows(0, 9)
    assert torch.equal(whole[4:6], streams.rows(4, 6))
    alone = RandomStreams(_KEYS[1:2], 10, _CPU)
    assert torch.equal(whole[:, 1:2], alone.rows(0, 9))
    assert len(whole.unique()) > 0.999 * whole.numel()


def _one_row(words: int, stream: str = "test") -> Tensor:
    return RandomStreams([stream_key(4, stream)], words, _CPU).rows(0, 1)[0, 0]


def test_numbers_follow_their_laws():
    words = _one_row(200_000)
    assert kstest(uniform(words).double(), "uniform").pvalue > 0.01
    normal = standard_normal(words)
    assert kstest(normal.double(), norm.cdf).pvalue > 0.01
    # Expected counts beyond 3 and 4 standard deviations are 540 and 12.7.
    assert abs(int((normal.abs() > 3).sum()) - 540) < 4 * 540**0.5
    assert abs(int((normal.abs() > 4).sum()) - 12.7) < 4 * 12.7**0.5
    counts = integers(words[None], torch.tensor([7])).flatten().bincount(minlength=7)
    assert chisquare(counts).pvalue > 0.01


def test_extreme_words_give_finite_numbers_within_bounds():
    words = torch.tensor([-(2**31), -1, 0, 1, 2**31 - 1], dtype=torch.int32)
    pairs = torch.cartesian_prod(words, words)
    assert standard_normal(pairs).isfinite().all()
    assert standard_normal(pairs).abs().max() < 6.6
    assert 0 <= uniform(words).min() <= uniform(words).max() < 1
    assert integers(words[None], torch.tensor([10])).tolist() == [[5, 9, 0, 0, 4]]


def test_members_rows_streams_and_halves_of_a_row_are_uncorrelated():
    n = 50_000
    rows = standard_normal(RandomStreams(_KEYS, n, _CPU).rows(0, 2)).flatten(0, 1)
    other = standard_normal(_one_row(n, "other"))[None]
    series = torch.cat([rows[..., : n // 2], rows[..., n // 2 : n], other[..., : n // 2]])
    for numbers in (series, series.square()):
        correlations = torch.corrcoef(numbers.double()).fill_diagonal_(0)
        assert correlations.abs().max() < 4.5 * (2 / n) ** 0.5
