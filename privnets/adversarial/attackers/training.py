"""Training of stacked classifiers until validation says that they have come to rest."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.losses import cross_entropy
from privnets.adversarial.records import MISSING
from privnets.networks.adam import StackedAdam
from privnets.networks.architecture import Architecture, stacked
from privnets.randomness import generator

AT_REST = 5e-3
"""Nats; training that gains less validation loss in the last quarter of its steps has converged."""

_TRIAL = 5  # a trial of learning rates takes a fifth of the steps
_EVALUATIONS = 40
_SHORTEST_INTERVAL = 25  # steps between evaluations, at the least
_PATIENCE = 4  # evaluations without gain before the learning rate is cut
_CUT = 0.3
_CUTS = 2  # after these a member rests
_GAIN = 1e-4  # nats of validation loss that count as one
_AT_ONCE = 2**20  # numbers that the inputs of one evaluated part hold


@dataclass(frozen=True, eq=False)
class Labelled:
    """Records shared by a stack, and which of them each member has.

    Attributes:
        x: Inputs, shape [N, ...].
        label: Classes from 0, int64, shape [N], or [N, T] for sequences; `MISSING` counts nowhere.
        rows: Each member's records, int64, shape [M, n].
    """

    x: Tensor
    label: Tensor
    rows: Tensor


@dataclass(frozen=True, eq=False)
class Task:
    """What a stack of classifiers is to learn.

    Attributes:
        architecture: Its outputs are logits, shape [M, n, C], or [M, n, T, C] for sequences.
        training: What members are fitted to.
        validation: What chooses their learning rates and parameters.
        seeds: One per member.
        purpose: Names the random draws, so that they differ from those of other networks.
        learning_rates: To choose from.
        batch_size: Records in a minibatch.
    """

    architecture: Architecture
    training: Labelled
    validation: Labelled
    seeds: Sequence[int]
    purpose: str
    learning_rates: Sequence[float] = (3e-3, 1e-3)
    batch_size: int = 128


@dataclass(frozen=True, eq=False)
class Trained:
    """Classifiers at their best on validation.

    Attributes:
        parameters: Each of shape [M, ...].
        validation_loss: Cross-entropy in nats, shape [M].
        learning_rate: That each started from, shape [M].
        converged: False where validation loss was still falling when the steps ran out.
    """

    parameters: list[Tensor]
    validation_loss: Tensor
    learning_rate: Tensor
    converged: tuple[bool, ...]


def own_records(members: Sequence[tuple[Tensor, Tensor]]) -> Labelled:
    """Members with records of their own.

    Args:
        members: Inputs [n, ...] and labels [n] or [n, T] of each, of equal shapes.
    """
    x = torch.cat([inputs for inputs, _ in members])
    rows = torch.arange(len(x), device=x.device).view(len(members), -1)
    return Labelled(x, torch.cat([labels for _, labels in members]), rows)


def train_classifiers(task: Task, steps: int) -> Trained:
    """Train a stack of classifiers to its end; see `training`."""
    run = training(task, steps)
    while True:
        try:
            next(run)
        except StopIteration as end:
            trained: Trained = end.value
            return trained


def training(task: Task, steps: int) -> Generator[float, None, Trained]:
    """Train a stack of classifiers by cross-entropy, pausing at each evaluation.

    Each member starts from the learning rate that did best on validation in a short trial. Where
    validation loss stops falling, the member goes back to its best parameters with a smaller rate;
    after the last cut it rests, and its result no longer changes. A member depends on its own
    records and seed alone.

    Args:
        task: What to learn.
        steps: The most that a member takes, the trial apart.

    Yields:
        The share of the work that is done, in (0, 1].
    """
    rates = torch.tensor(task.learning_rates, device=task.training.x.device)
    interval = max(_SHORTEST_INTERVAL, steps // _EVALUATIONS)
    tried = 0.0
    if len(rates) > 1:
        trial = max(1, steps // _TRIAL)
        tried = trial * len(rates) / (trial * len(rates) + steps)
        every = rates.repeat(len(task.seeds))
        outcome = yield from _run(_every_rate(task), every, trial, interval, (0, tried))
        rates = rates[outcome.validation_loss.view(-1, len(rates)).argmin(1)]
    else:
        rates = rates.repeat(len(task.seeds))
    return (yield from _run(task, rates, steps, interval, (tried, 1)))


@torch.no_grad()
def log_probabilities(
    architecture: Architecture, parameters: Sequence[Tensor], x: Tensor, rows: Tensor
) -> Tensor:
    """What every classifier believes, evaluated a bounded part at a time.

    Args:
        architecture: Of the classifiers.
        parameters: Each of shape [M, ...].
        x: Inputs, shape [N, ...].
        rows: Each member's records, shape [M, n].

    Returns:
        Natural logarithms, shape [M, n, C] or [M, n, T, C].
    """
    step = max(1, _AT_ONCE // (len(rows) * x[0].numel()))
    parts = (x[part] for part in torch.split(rows, step, 1))
    return torch.cat([architecture.forward(parameters, p).log_softmax(-1) for p in parts], 1)


def _every_rate(task: Task) -> Task:
    """The task with each member as often as there are learning rates, side by side."""
    times = len(task.learning_rates)
    training, validation = (
        Labelled(part.x, part.label, part.rows.repeat_interleave(times, 0))
        for part in (task.training, task.validation)
    )
    seeds = [seed for seed in task.seeds for _ in range(times)]
    return Task(task.architecture, training, validation, seeds, task.purpose, (), task.batch_size)


def _run(
    task: Task, rates: Tensor, steps: int, interval: int, span: tuple[float, float]
) -> Generator[float, None, Trained]:
    device = task.training.x.device
    randoms = [generator(seed, task.purpose) for seed in task.seeds]
    networks = [task.architecture.initial(random) for random in randoms]
    parameters = [p.to(device).requires_grad_() for p in stacked(networks)]
    watch = _Watch(parameters, rates)
    optimiser = StackedAdam(parameters, watch.rates)
    rows = [_known_rows(task.training, mine) for mine in task.training.rows]
    for done in range(0, steps, interval):
        count = min(interval, steps - done)
        drawn = [
            _drawn(r, own, count, task.batch_size) for r, own in zip(randoms, rows, strict=True)
        ]
        for batch in torch.from_numpy(np.stack(drawn, 1)).to(device):
            _step(task, parameters, optimiser, batch)
        watch.see(_validation_loss(task, parameters))
        yield span[0] + (span[1] - span[0]) * (done + count) / steps
        if watch.all_rest:
            break
    return watch.trained(rates)


def _known_rows(records: Labelled, rows: Tensor) -> NDArray[np.int64]:
    """Those of a member's records that have a label to learn from; all if none has."""
    known = (records.label[rows] != MISSING).view(len(rows), -1).any(1)
    chosen: NDArray[np.int64] = (rows[known] if known.any() else rows).cpu().numpy()
    return chosen


def _drawn(
    random: np.random.Generator, rows: NDArray[np.int64], steps: int, batch_size: int
) -> NDArray[np.int64]:
    """Minibatches [steps, batch_size] that go through a member's records in shuffled passes."""
    passes = -(-steps * batch_size // len(rows))
    order = np.concatenate([random.permutation(rows) for _ in range(passes)])
    return order[: steps * batch_size].reshape(steps, batch_size)


def _step(task: Task, parameters: Sequence[Tensor], optimiser: StackedAdam, batch: Tensor) -> None:
    logits = task.architecture.forward(parameters, task.training.x[batch])
    loss = cross_entropy(logits, task.training.label[batch]).sum()
    optimiser.step(torch.autograd.grad(loss, list(parameters)))


def _validation_loss(task: Task, parameters: Sequence[Tensor]) -> Tensor:
    x, label, rows = task.validation.x, task.validation.label, task.validation.rows
    return cross_entropy(log_probabilities(task.architecture, parameters, x, rows), label[rows])


class _Watch:
    """Keeps every member's best parameters, cuts its learning rate, and says when it rests."""

    def __init__(self, parameters: Sequence[Tensor], rates: Tensor) -> None:
        self.rates = rates.clone()
        self._parameters = parameters
        self._best = [p.detach().clone() for p in parameters]
        self._loss = torch.full_like(rates, torch.inf)
        self._mark = self._loss.clone()
        self._since, self._cuts = (torch.zeros_like(rates, dtype=torch.int64) for _ in range(2))
        self._history: list[Tensor] = []

    @property
    def all_rest(self) -> bool:
        return bool(self._rests.all())

    @property
    def _rests(self) -> Tensor:
        return self._cuts > _CUTS

    @torch.no_grad()
    def see(self, loss: Tensor) -> None:
        better = (loss < self._loss) & ~self._rests
        self._loss = torch.where(better, loss, self._loss)
        self._history.append(self._loss)
        for best, now in zip(self._best, self._parameters, strict=True):
            _copy(best, now, better)
        gained = self._loss < self._mark - _GAIN
        self._mark = torch.where(gained, self._loss, self._mark)
        self._since = torch.where(gained, 0, self._since + 1)
        self._cut(self._since >= _PATIENCE)

    def trained(self, rates: Tensor) -> Trained:
        # With one evaluation there is nothing to compare with, and nothing has converged.
        seen = [torch.full_like(self._loss, torch.inf), *self._history]
        before = seen[min(len(seen) - 2, 3 * len(seen) // 4)]
        converged = self._rests | (before - self._loss < AT_REST)
        return Trained(self._best, self._loss, rates, tuple(converged.tolist()))

    def _cut(self, stuck: Tensor) -> None:
        # In place: the optimiser holds views of these rates.
        self.rates.mul_(torch.where(stuck, _CUT, 1.0))
        self._cuts += stuck
        self._since = torch.where(stuck, 0, self._since)
        for best, now in zip(self._best, self._parameters, strict=True):
            _copy(now, best, stuck)


def _copy(target: Tensor, source: Tensor, which: Tensor) -> None:
    """Overwrite the members that `which` names."""
    mask = which.view(-1, *[1] * (target.ndim - 1))
    target.copy_(torch.where(mask, source, target))
