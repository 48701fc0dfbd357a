"""Computing operations of one step of a game, which a GPU starts one by one.

Counts calls of PyTorch's kernels over one block of steps, curves included. Views and allocations
do not count. A `foreach` or fused call counts once.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.harness import publish
from benchmarks.stacks import _materials
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import load_pool
from privnets.adversarial.training.game import Game

_STEPS: Final = 60
_GAMES: Final[Mapping[str, Mapping[str, Any]]] = {
    "toy, squared-kl": {"problem": "gaussian-mixture", "evaluation": "exact"},
    "toy, alpha": {"problem": "gaussian-mixture", "evaluation": "exact", "objective": "alpha"},
    "digits": {"problem": "digits"},
    "AMNIST": {"problem": "amnist", "train_size": 2048},
    "ECO": {"problem": "eco", "train_size": 443},
}
_FREE: Final = frozenset(
    (
        *("view", "_unsafe_view", "view_as", "_reshape_alias", "as_strided", "alias", "detach"),
        *("permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "select", "slice"),
        *("split", "split_with_sizes", "unbind", "unfold", "resize_", "lift_fresh"),
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
    )
)


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.calls[str(func).split(".")[1]] += 1
        return func(*args, **(kwargs or {}))


def _operations(fields: Mapping[str, Any]) -> float:
    config = AdversarialConfig(**fields)
    problem = problem_of(config)
    is_drawn = problem.name in ("amnist", "eco")  # which need their files otherwise
    load = _materials if is_drawn else lambda *given: load_pool(problem, *given)
    game = Game(problem, [config], *load([config], "cpu"))
    game.advance(_STEPS)
    with _Counter() as counter:
        game.advance(_STEPS)
    return sum(n for name, n in counter.calls.items() if name not in _FREE) / _STEPS


def main() -> None:
    """Count and publish."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    publish(
        "operations",
        [
            {"game": name, "rounds": 1, "operations_per_step": round(_operations(fields))}
            for name, fields in _GAMES.items()
        ],
    )


if __name__ == "__main__":
    main()
