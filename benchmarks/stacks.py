"""Configuration-steps per second of stacks of games against separate runs of plain PyTorch.

On a CPU both sides have two processes of one thread each, which work at the same time; on a GPU
one process. Processes last for the whole run and play in turn, so that a busy minute falls on all.

* this platform: `Game` with everything that a trial does while it trains: drawing records and
  noise, schedules of learning rates, training curves with a value every 20 steps, and exact
  information of toy filters. It keeps freed memory, as it does in every trial.
* separate runs: `plain_games`, one configuration after another, eager, nothing recorded, in
  processes of their own whose allocator is as it comes.
* vmap (toy alone): `vmapped_toy`, nothing recorded.

Whole trials of the toy, 2,000 steps with set-up, are played once more by the fewest games that
come within 5% of the best rate. What the hardware would allow stands beside: the rate of large
batched matrix products, measured in the same processes, over the multiplications that a plain step
makes, and the bandwidth of memory. Networks have the sizes of the studies; records are drawn at
random, except in the toy.

`--quick` plays for shorter and fewer stacks. `--processor-time` counts what the processes
themselves took, for a CPU that is busy with other work.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cleanup import run
from benchmarks.harness import publish
from benchmarks.plain_games import Amnist, Eco, PlainGame, Toy
from benchmarks.vmapped_toy import VmappedToy
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Splits
from privnets.adversarial.problems.eco import SIDE_FEATURES
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import Pool, load_pool
from privnets.adversarial.training.game import Game

_PLATFORM, _SEPARATE, _VMAP = "this platform", "separate runs", "vmap"
_TRIAL_STEPS: Final = 2000
_CLOCKS: Final = ("perf_counter", "process_time")


@dataclass(frozen=True)
class _Subject:
    """A game.

    Attributes:
        fields: Of its configuration.
        plain: One configuration in plain PyTorch.
        together: Steps that are played without a pause: this platform draws batches and noise for
            this many at once, and again after a pause.
        stacks: How many configurations are stacked, on a CPU.
        vmapped: How many `torch.func` stacks.
    """

    fields: Mapping[str, Any]
    plain: Callable[[AdversarialConfig, str], PlainGame]
    together: int
    stacks: Sequence[int]
    vmapped: Sequence[int] = ()


def _toy(width: int, batch: int, adversary_steps: int) -> _Subject:
    fields = {
        "problem": "gaussian-mixture",
        "evaluation": "exact",
        "steps": _TRIAL_STEPS,
        "adversary_width": width,
        "batch_size": batch,
        "adversary_steps": adversary_steps,
    }
    return _Subject(fields, Toy, 64, (1, 2, 4, 8, 16, 32, 64), (4, 16, 32))


_AMNIST = {"problem": "amnist", "train_size": 2048}
_SUBJECTS: Final = {
    "toy, 64 units, batches of 128": _toy(64, 128, 1),
    "toy, 32 units, batches of 256": _toy(32, 256, 2),
    "AMNIST, width 8": _Subject({**_AMNIST, "adversary_width": 8}, Amnist, 6, (1, 2, 4, 8, 16)),
    "AMNIST, width 32": _Subject({**_AMNIST, "adversary_width": 32}, Amnist, 6, (1, 2, 4, 8, 16)),
    "ECO, LSTM": _Subject({"problem": "eco", "train_size": 443}, Eco, 4, (1, 2, 4, 8, 16)),
}
_ON_GPUS: Final = (1, 4, 16, 64, 128, 256)


@dataclass(frozen=True)
class _Order:
    """Task of a process.

    Attributes:
        contestant: Who plays.
        subject: Which game.
        games: How many together.
        seconds: How long; 0 for one whole trial with set-up.
        clock: Of `time`.
    """

    contestant: str
    subject: str
    games: int
    seconds: float
    clock: str


def _configs(subject: str, count: int) -> list[AdversarialConfig]:
    fields = _SUBJECTS[subject].fields
    return [AdversarialConfig(seed=seed, **fields) for seed in range(count)]


def _materials(configs: Sequence[AdversarialConfig], device: str) -> tuple[Pool, list[Splits]]:
    """The toy's own records, and random ones where data would have to be read."""
    problem, size = problem_of(configs[0]), configs[0].train_size or 0
    if problem.name == "gaussian-mixture":
        return load_pool(problem, configs, device)
    random = torch.Generator().manual_seed(0)
    splits = [Splits(np.arange(size), *[np.arange(1)] * 3) for _ in configs]
    if problem.name == "amnist":
        images = torch.rand(size, 1, 28, 28, generator=random)
        labels = (torch.randint(classes, (size,), generator=random) for classes in (2, 10))
        tensors = [images.to(device), *(label.to(device) for label in labels)]
        return Pool(*tensors, complete=frozenset(("secret", "utility"))), splits
    power = torch.randn(size, Eco.steps, 1, generator=random)
    secret = torch.randint(2, (size, Eco.steps), generator=random)
    side = torch.randn(size, Eco.steps, SIDE_FEATURES, generator=random)
    complete = frozenset(("secret",))
    return Pool(
        power.to(device), secret.to(device), None, side.to(device), complete=complete
    ), splits


def _platform(subject: str, games: int, device: str) -> Callable[[int], object]:
    configs = _configs(subject, games)
    pool, splits = _materials(configs, device)
    game = Game(problem_of(configs[0]), configs, pool, splits)

    def play(steps: int) -> None:
        if game.step + steps > configs[0].steps:
            game.restore({**game.state(), **_BEGUN})
        game.advance(steps)

    return play


# A game that would end restarts its schedule; its parameters do not affect durations.
_BEGUN: Final = {"step": torch.tensor(0)}


def _separate(subject: str, games: int, device: str) -> Callable[[int], object]:
    played = [_SUBJECTS[subject].plain(config, device) for config in _configs(subject, games)]
    return lambda steps: [game.step() for game in played for _ in range(steps)]


def _vmap_game(subject: str, games: int, device: str) -> Callable[[int], object]:
    game = VmappedToy(_configs(subject, games), device)
    return lambda steps: [game.step() for _ in range(steps)]


_CONTESTANTS: Final = {_PLATFORM: _platform, _SEPARATE: _separate, _VMAP: _vmap_game}


def _serve(pipe: Connection, device: str) -> None:
    """A process: play what is ordered, and answer with configuration-steps per second."""
    torch.set_num_threads(1)
    make = cache(lambda who, subject, games: _CONTESTANTS[who](subject, games, device))
    while (order := pipe.recv()) is not None:
        if isinstance(order, str):
            pipe.send(_CEILINGS[order](device))
        elif order.seconds:
            play = make(order.contestant, order.subject, order.games)
            together = _SUBJECTS[order.subject].together
            rate = _rate(partial(play, together), order.seconds, device, order.clock)
            pipe.send(order.games * together * rate)
        else:
            clock = getattr(time, order.clock)
            start = clock()
            _CONTESTANTS[order.contestant](order.subject, order.games, device)(_TRIAL_STEPS)
            _wait(device)
            pipe.send(order.games * _TRIAL_STEPS / (clock() - start))


def _rate(
    play: Callable[[], object], seconds: float, device: str, clock: str = _CLOCKS[0]
) -> float:
    """Returns how often per second a function runs."""
    now = getattr(time, clock)
    start, times = now(), 0
    while (elapsed := now() - start) < seconds:
        play()
        _wait(device)
        times += 1
    return times / elapsed


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _products(device: str) -> float:
    """Multiplications and additions per second of batched matrix products, float32."""
    matrices = torch.randn(48, 128, 64, device=device), torch.randn(48, 64, 64, device=device)
    if device == "cuda":
        matrices = (
            torch.randn(64, 1024, 1024, device=device),
            torch.randn(64, 1024, 1024, device=device),
        )
    (count, rows, inner), columns = matrices[0].shape, matrices[1].shape[-1]
    rate = _rate(lambda: torch.bmm(*matrices), 1.0, device)
    return 2.0 * count * rows * inner * columns * rate


def _bandwidth(device: str) -> float:
    """Bytes per second that copying 64 MB reads and writes."""
    source = torch.zeros(2**24, device=device)
    target = torch.empty_like(source)
    rate = _rate(lambda: target.copy_(source), 1.0, device)
    return 2.0 * source.nbytes * rate


_CEILINGS: Final = {"products": _products, "bandwidth": _bandwidth}


def _operations(subject: str) -> int:
    """Multiplications and additions of a plain step in matrix products and convolutions."""
    (config,) = _configs(subject, 1)
    game = _SUBJECTS[subject].plain(config, "cpu")
    # The counter knows an LSTM by its products alone.
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        game.step()
    return counter.get_total_flops()


class _Team:
    """Processes that play the same at the same time."""

    def __init__(self, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        pairs = [context.Pipe() for _ in range(2 if device == "cpu" else 1)]
        self._pipes = [ours for ours, _ in pairs]
        self._processes = [
            context.Process(target=_serve, args=(theirs, device), daemon=True)
            for _, theirs in pairs
        ]
        for process, (_, theirs) in zip(self._processes, pairs, strict=True):
            process.start()
            theirs.close()  # so that a process that ends is noticed

    def ask(self, order: _Order | str) -> float:
        """The sum of all answers."""
        for pipe in self._pipes:
            pipe.send(order)
        return sum(pipe.recv() for pipe in self._pipes)

    def close(self) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None)
            process.join()


@contextmanager
def _teams(device: str) -> Iterator[dict[str, _Team]]:
    """Processes of each contestant, so that none shares another's allocator."""
    found = {name: _Team(device) for name in _CONTESTANTS}
    yield found
    for team in found.values():
        team.close()


def _measure_game(
    device: str, subject: str, teams: Mapping[str, _Team], quick: bool, clock: str
) -> list[dict[str, object]]:
    """Rows of one game: rounds of all contestants in turn, then whole trials."""
    own, seconds = _SUBJECTS[subject], 0.5 if quick else 1.5
    stacks = _ON_GPUS if device == "cuda" else own.stacks

    def order(contestant: str, games: int, seconds: float = seconds) -> _Order:
        return _Order(contestant, subject, games, seconds, clock)

    orders = [order(_SEPARATE, 1), *(order(_VMAP, games) for games in own.vmapped)]
    orders += [order(_PLATFORM, games) for games in stacks[:: 2 if quick else 1]]
    rates = _play_rounds(orders, teams, 3 if quick else 5)
    found = _rows(device, "training", rates)
    if own.plain is Toy:
        medians = {
            o.games: statistics.median(rates[o]) for o in orders if o.contestant == _PLATFORM
        }
        trials = [order(_SEPARATE, 1, 0), order(_PLATFORM, _enough(medians), 0)]
        found += _rows(device, "whole trial", _play_rounds(trials, teams, 1 if quick else 3))
    ceiling = teams[_SEPARATE].ask("products") / _operations(subject)
    return [{**row, "products_allow": round(ceiling)} for row in found]


def _enough(rates: Mapping[int, float]) -> int:
    """The fewest games that play almost as fast as the best number of them."""
    return min(games for games, rate in rates.items() if rate > 0.95 * max(rates.values()))


def _play_rounds(
    orders: Sequence[_Order], teams: Mapping[str, _Team], rounds: int
) -> dict[_Order, list[float]]:
    """Rates of every round; a first round of those that last warms up."""
    rates: dict[_Order, list[float]] = {order: [] for order in orders}
    for turn in range(rounds + 1):
        for order in orders:
            if turn or order.seconds:
                rate = teams[order.contestant].ask(order)
                rates[order] += [rate] if turn else []
    return rates


def _rows(
    device: str, what: str, rates: Mapping[_Order, Sequence[float]]
) -> list[dict[str, object]]:
    medians = {order: statistics.median(found) for order, found in rates.items()}
    alone = next(rate for order, rate in medians.items() if order.contestant == _SEPARATE)
    return [
        {
            "device": device,
            "game": order.subject,
            "contestant": order.contestant,
            "games": order.games,
            "measured": what,
            "clock": order.clock,
            "rounds": len(found),
            "config_steps_per_second": round(medians[order]),
            "slowest": round(min(found)),
            "quickest": round(max(found)),
            "times_separate": round(medians[order] / alone, 2),
        }
        for order, found in rates.items()
    ]


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shorter and fewer")
    parser.add_argument("--processor-time", action="store_true", help="for a busy CPU")
    parser.add_argument("--only", default="", help="games whose name has this in it")
    given = parser.parse_args()
    clock = _CLOCKS[given.processor_time]
    rows = []
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        with _teams(device) as teams:
            bandwidth = round(teams[_SEPARATE].ask("bandwidth") / 1e9)
            print(f"{device}: memory copies {bandwidth} GB/s, read and written", flush=True)
            for subject in _SUBJECTS:
                if given.only in subject:
                    found = _measure_game(device, subject, teams, given.quick, clock)
                    rows += [{**row, "memory_gb_per_second": bandwidth} for row in found]
    publish("stacks", rows)


if __name__ == "__main__":
    run(main)
