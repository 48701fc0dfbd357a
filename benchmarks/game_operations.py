"""Time of each operation of a game's step against matrix products of its size.

Plays AMNIST at full size, on random images, one game and a stack of four. Around every operation
of PyTorch a clock is read; the quickest of many steps counts, since other programs only make steps
longer. Operations with equal shapes are one row. A convolution has the multiplications of a matrix
product with a row for each pixel of its result, its gradients one such product each; the same
products are timed by `torch.mm`. The row `step` is an unobserved step, `smaller operations` are
those below a hundredth of it, and `between operations` is the rest: Python and autograd.

One thread is timed by processor time, more threads by elapsed time.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.cleanup import run
from benchmarks.harness import publish
from benchmarks.stacks import _materials
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.training.game import Game

_STEPS: Final = 60
_PRODUCT_ROUNDS: Final = 200
_LEAST_SHARE: Final = 0.01  # of the step, for a row of its own

_Product = tuple[int, int, int]
"""Rows, inner dimension and columns."""


@dataclass(frozen=True)
class _Operation:
    name: str
    shapes: str
    products: tuple[_Product, ...]
    """Matrix products with the multiplications of one call; none where it has none."""


@dataclass(frozen=True)
class _Row:
    operation: _Operation
    calls: int
    seconds: float
    products: float = 0.0
    """Seconds of matrix products of this size."""
    multiplications: int = 0


@dataclass
class _Clock(TorchDispatchMode):
    """Seconds and calls by operation, in the step at hand."""

    now: Callable[[], float]
    seconds: dict[_Operation, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[_Operation, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        start = self.now()
        result = func(*args, **(kwargs or {}))
        spent = self.now() - start
        operation = _describe(func, args)
        self.seconds[operation] += spent
        self.calls[operation] += 1
        return result


def _describe(func: Any, args: Sequence[Any]) -> _Operation:
    name = func.overloadpacket.__name__
    tensors = [each for each in args if isinstance(each, Tensor)]
    shapes = " ".join("x".join(map(str, tensor.shape)) for tensor in tensors if tensor.ndim)
    return _Operation(name, shapes, tuple(_products(name, args)))


def _products(name: str, args: Sequence[Any]) -> list[_Product]:
    if name in ("bmm", "baddbmm"):
        left, right = args[-2:]
        return [(left.shape[1], left.shape[2], right.shape[2])] * left.shape[0]
    if name == "convolution":
        x, weight, _, stride = args[:4]
        size = [-(-length // s) for length, s in zip(x.shape[2:], stride, strict=True)]
        return [_convolution_product(len(x), size, weight)]
    if name == "convolution_backward":
        gradient, _, weight = args[:3]
        product = _convolution_product(len(gradient), gradient.shape[2:], weight)
        return [product] * sum(args[-1][:2])
    return []


def _convolution_product(images: int, size: Sequence[int], weight: Tensor) -> _Product:
    return images * math.prod(size), weight[0].numel(), len(weight)


def _product_seconds(
    products: Iterable[_Product], now: Callable[[], float]
) -> dict[_Product, float]:
    """Seconds of each product with its matrices in the caches, the quickest of several rounds."""
    factors = {product: _factors(*product) for product in products}
    seconds = dict.fromkeys(factors, math.inf)
    for _ in range(_PRODUCT_ROUNDS):
        for product, (left, right, result) in factors.items():
            torch.mm(left, right, out=result)
            start = now()
            torch.mm(left, right, out=result)
            seconds[product] = min(seconds[product], now() - start)
    return seconds


def _factors(rows: int, inner: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two matrices and room for their product."""
    return torch.rand(rows, inner), torch.rand(inner, columns), torch.empty(rows, columns)


def _measure(threads: int, games: int) -> list[dict[str, object]]:
    now = time.process_time if threads == 1 else time.perf_counter
    torch.set_num_threads(threads)
    configs = [
        AdversarialConfig(problem="amnist", train_size=2048, seed=seed) for seed in range(games)
    ]
    game = Game(PROBLEMS.get("amnist"), configs, *_materials(configs, "cpu"))
    game.advance(_STEPS)
    clocks, steps = [], []
    for _ in range(_STEPS):
        with _Clock(now) as clock:
            game.advance(1)
        clocks.append(clock)
        start = now()
        game.advance(1)
        steps.append(now() - start)
    step = min(steps)
    quickest = {each: min(c.seconds[each] for c in clocks) for each in clocks[0].seconds}
    products = {product for operation in quickest for product in operation.products}
    by_product = _product_seconds(products, now)

    def row(operation: _Operation) -> _Row:
        calls = clocks[0].calls[operation]
        return _Row(
            operation,
            calls,
            quickest[operation],
            calls * sum(by_product[product] for product in operation.products),
            calls * sum(map(math.prod, operation.products)),
        )

    every = sorted(map(row, quickest), key=lambda row: -row.seconds)
    rows = [row for row in every if row.seconds >= _LEAST_SHARE * step]
    total, large = (sum(row.seconds for row in part) for part in (every, rows))
    count = sum(row.multiplications for row in every)
    rows += [
        _Row(_Operation("smaller operations", "", ()), 0, total - large),
        _Row(_Operation("between operations", "", ()), 0, step - total),
        _Row(_Operation("step", "", ()), 1, step, sum(row.products for row in every), count),
    ]
    return [
        {
            "threads": threads,
            "games": games,
            "contestant": row.operation.name,
            "shapes": row.operation.shapes,
            "rounds": _STEPS,
            "calls": row.calls,
            "ms": round(1e3 * row.seconds, 2),
            "share": f"{row.seconds / step:.1%}",
            "products_ms": round(1e3 * row.products, 2),
            "gflops": round(2e-9 * row.multiplications / row.seconds, 1),
        }
        for row in rows
    ]


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--games", type=int, nargs="+", default=[1, 4])
    asked = parser.parse_args()
    sizes = itertools.product(asked.threads, asked.games)
    publish("game_operations", [row for size in sizes for row in _measure(*size)])


if __name__ == "__main__":
    run(main)
